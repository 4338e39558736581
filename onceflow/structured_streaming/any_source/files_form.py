"""`.format("onceflow-files")` to read: connectors/files."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pyarrow as pa

from onceflow.runtime.contracts import Source
from onceflow.runtime.errors import OptionError
from onceflow.structured_streaming.any_source.source_format import SourceFormat
from onceflow.structured_streaming.option_texts import number, path, size, text

_SPLIT_SIZE = "128 MiB"


def _source(given: Mapping[str, Any], columns: pa.Schema | None) -> Any:
    from onceflow.connectors.files.csv_files import Csv
    from onceflow.connectors.files.source import file_format, files_source

    url = given["path"]
    form: Any = file_format(given.get("format"), url, "onceflow-files")
    if "delimiter" in given:
        if not isinstance(form, Csv):
            raise OptionError(f"option 'delimiter' is for format csv, and this is {form.name}: leave it out")
        form = replace(form, delimiter=given["delimiter"])
    if "compression" in given and form.name in ("jsonl", "csv"):  # the others say it themselves
        form = replace(form, compression=given["compression"])
    if form.name != "csv":
        form = replace(form, split_size=given.get("split_size", _SPLIT_SIZE))
    elif "split_size" in given:
        raise OptionError(
            "option 'split_size': CSV can't be cut, since a line's end may be in quotes: leave it out"
        )
    return files_source(url, columns, form, watch="1 s", dead_letters=given.get("dead_letters"))


def _make(given: Mapping[str, Any], columns: pa.Schema) -> Source:
    source: Source = _source(given, columns)
    return source


def _columns(given: Mapping[str, Any]) -> pa.Schema:
    """The columns of the first file that is there, if it says them."""
    from onceflow.connectors.files.file_format import DescribingFormat
    from onceflow.connectors.files.source import file_format

    form = file_format(given.get("format"), given["path"], "onceflow-files")
    if not isinstance(form, DescribingFormat):
        raise OptionError(
            "onceflow-files needs the columns, which only Parquet and Avro say: "
            '.schema("user STRING, n BIGINT")'
        )
    return _source(given, None).schema


READ_FILES = SourceFormat(
    "onceflow-files",
    _make,
    {"path": path, "format": text, "compression": text, "delimiter": text, "split_size": text},
    needs=("path",),
    columns=_columns,
    limits={"max_files_per_trigger": ("splits", number), "max_bytes_per_trigger": ("bytes", size)},
    of_letters={},
)
