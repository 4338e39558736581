"""`.format("onceflow-files")` to write: the options of sinks/files.py as texts."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any

from onceflow.runtime.contracts import Sink
from onceflow.runtime.errors import OptionError
from onceflow.structured_streaming.any_sink.sink_format import SinkFormat
from onceflow.structured_streaming.option_texts import number, path, size, text

_LEVEL = re.compile(r"[^,()]+(?:\([^()]*\))?")
_CALL = re.compile(r"(hourly|daily|every)\(([^()]*)\)")
_EXAMPLE = (
    'give names of columns, and spans of time of a column, as in "country, daily(ts), every(15 min, ts)"'
)


def levels(name: str, value: str) -> tuple[Any, ...]:
    """What the levels of folders are made of: `country`, `hourly(ts)`, `daily(ts)`, `every(15 min, ts)`."""
    from onceflow.connectors.files.buckets import daily, every, hourly

    found: list[Any] = []
    for each in _split(name, value):
        call = _CALL.fullmatch(each)
        if call is None:
            if "(" in each:
                raise OptionError(f"option {name!r} has {each!r}: {_EXAMPLE}")
            found.append(each)
            continue
        span, given = call[1], [part.strip() for part in call[2].split(",")]
        if not all(given) or len(given) != (2 if span == "every" else 1):
            raise OptionError(
                f"option {name!r} has {each!r}, and rows of Spark have no event time that a sink is told: "
                "name the column with their time, as in hourly(ts) or every(15 min, ts)"
            )
        found.append(
            every(*given) if span == "every" else hourly(*given) if span == "hourly" else daily(*given)
        )
    return tuple(found)


def _split(name: str, value: str) -> list[str]:
    found = [each.strip() for each in _LEVEL.findall(value)]
    if not all(found) or re.sub(r"\s", "", ",".join(found)) != re.sub(r"\s", "", value):
        raise OptionError(f"option {name!r} is {value!r}: {_EXAMPLE}")
    return found


def _storage_options(name: str, value: str) -> Mapping[str, Any]:
    try:
        found = json.loads(value)
    except ValueError:
        found = None
    if not isinstance(found, dict):  # the text itself may be a secret
        raise OptionError(f'option {name!r} is not a JSON object: write {{"key": "...", "secret": "..."}}')
    return found


def _no_marker(name: str, value: str) -> Any:
    raise OptionError(
        f"option {name!r}: a folder is complete when event time has passed it, and Spark tells no sink "
        "how far that is: leave it out, or write with a job of onceflow's"
    )


def _make(given: Mapping[str, Any]) -> Sink:
    from onceflow.connectors.files.csv_files import Csv
    from onceflow.sinks.files import FileSink, RollPolicy

    form = given.get("format", "parquet")
    if "delimiter" in given:
        if form != "csv":
            raise OptionError(f"option 'delimiter' is for format csv, and this is {form}: leave it out")
        form = Csv(delimiter=given["delimiter"])
    return FileSink(
        given["path"],
        form,
        partition_by=given.get("partition_by"),
        roll=RollPolicy(size=given["max_file_size"]) if "max_file_size" in given else RollPolicy(),
        compression=given.get("compression"),
        open_files_max=given.get("open_files_max", 100),
        storage_options=given.get("storage_options"),
    )


WRITE_FILES = SinkFormat(
    "onceflow-files",
    _make,
    {
        "path": path,
        "format": text,
        "compression": text,
        "delimiter": text,
        "partition_by": levels,
        "max_file_size": size,
        "open_files_max": number,
        "storage_options": _storage_options,
        "success_marker": _no_marker,
    },
    needs=("path",),
    instead_of_reading='read a batch with .format("parquet"), "json" or "csv"',
)
