"""The formats that are sources of the runtime and no sinks. How to add one: see source_format.py."""

from __future__ import annotations

import datetime as dt
from collections.abc import Mapping
from typing import Any

import pyarrow as pa

from onceflow.runtime.contracts import BatchLimit, Source
from onceflow.runtime.errors import OptionError
from onceflow.structured_streaming.any_source.source_data_source import SourceDataSource
from onceflow.structured_streaming.any_source.source_format import SourceFormat
from onceflow.structured_streaming.option_texts import duration, text


def _start(name: str, value: str) -> Any:
    """`earliest`, `latest`, or a time with its zone."""
    if value in ("earliest", "latest"):
        return value
    try:
        return dt.datetime.fromisoformat(value)
    except ValueError:
        raise OptionError(
            f'option {name!r} is {value!r}: write earliest, latest, or a time, as in "2026-11-27T12:00:00Z"'
        ) from None


def _kinesis(given: Mapping[str, Any], columns: pa.Schema) -> Source:
    from onceflow.connectors.formats import Json
    from onceflow.connectors.kinesis import KinesisSource

    beside = {given[name] for name in given if name.endswith("_column")}
    if missing := sorted(beside - set(columns.names)):
        raise OptionError(f"onceflow-kinesis: column {missing[0]!r} is not in the schema: add it there")
    value = pa.schema([field for field in columns if field.name not in beside])
    source: Source = KinesisSource(value=Json(value), **given)
    return source


class OnceflowKinesis(SourceDataSource):
    """A stream of Amazon Kinesis: connectors/kinesis."""

    reading = SourceFormat(
        "onceflow-kinesis",
        _kinesis,
        {
            "stream": text,
            "start": _start,
            "region": text,
            "endpoint_url": text,
            "partition_key_column": text,
            "arrival_time_column": text,
            "shard_column": text,
            "sequence_number_column": text,
            "fetch_interval": text,
            "timeout": text,
        },
        needs=("stream",),
        limits={"max_time_per_trigger": ("span_ms", duration)},
        by_default=BatchLimit(span_ms=60_000),
    )


FORMATS: tuple[type[SourceDataSource], ...] = (OnceflowKinesis,)
"""All that `onceflow.register` makes known to be read, beside onceflow-kafka and those that are sinks."""
