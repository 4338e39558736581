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
from onceflow.structured_streaming.option_texts import (
    Convert,
    duration,
    names,
    number,
    per_second,
    size,
    text,
    yes_or_no,
)


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


def _beside(name: str, given: Mapping[str, Any], columns: pa.Schema) -> frozenset[str]:
    """The columns with what is known of a record beside its data. Raises OptionError."""
    beside = frozenset(given[option] for option in given if option.endswith("_column"))
    if missing := sorted(beside - set(columns.names)):
        raise OptionError(f"{name}: column {missing[0]!r} is not in the schema: add it there")
    return beside


def _json(name: str, given: Mapping[str, Any], columns: pa.Schema) -> Any:
    """JSON with the columns that are not beside a record's data. Raises OptionError."""
    from onceflow.connectors.formats import Json

    beside = _beside(name, given, columns)
    return Json(pa.schema([field for field in columns if field.name not in beside]))


def _kinesis(given: Mapping[str, Any], columns: pa.Schema) -> Source:
    from onceflow.connectors.kinesis import KinesisSource

    source: Source = KinesisSource(value=_json("onceflow-kinesis", given, columns), **given)
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
        of_letters={"partition_key_column": "key"},
        by_default=BatchLimit(span_ms=60_000),
    )


def _offset_or_start(name: str, value: str) -> Any:
    """`earliest`, `latest`, an offset, or a time with its zone."""
    return int(value) if value.isdigit() else _start(name, value)


def _rabbitmq_stream(given: Mapping[str, Any], columns: pa.Schema) -> Source:
    from onceflow.connectors.rabbitmq import RabbitStreamSource

    source: Source = RabbitStreamSource(value=_json("onceflow-rabbitmq-stream", given, columns), **given)
    return source


class OnceflowRabbitmqStream(SourceDataSource):
    """Streams of RabbitMQ: connectors/rabbitmq."""

    reading = SourceFormat(
        "onceflow-rabbitmq-stream",
        _rabbitmq_stream,
        {
            "streams": names,
            "super_stream": text,
            "url": text,
            "start": _offset_or_start,
            "offset_column": text,
            "stream_column": text,
            "prefetch": number,
            "timeout": text,
        },
        limits={"max_records_per_trigger": ("records", number)},
        of_letters={"offset_column": "offset", "stream_column": "topic"},
    )


def _postgres_cdc(given: Mapping[str, Any], columns: pa.Schema) -> Source:
    from onceflow.connectors.postgres_cdc import PostgresCdcSource

    beside = _beside("onceflow-postgres-cdc", given, columns)
    rows = pa.schema([field for field in columns if field.name not in beside])
    source: Source = PostgresCdcSource(of=rows, start="slot", **given)
    return source


class OnceflowPostgresCdc(SourceDataSource):
    """Changes of a table of PostgreSQL: connectors/postgres_cdc."""

    reading = SourceFormat(
        "onceflow-postgres-cdc",
        _postgres_cdc,
        {
            "url": text,
            "table": text,
            "slot": text,
            "publication": text,
            "before": text,
            "truncate": text,
            "create_slot": yes_or_no,
            "commit_time_column": text,
            "lsn_column": text,
            "timeout": text,
        },
        needs=("url", "table", "slot", "publication"),
        has_kinds=True,
        limits={"max_bytes_per_trigger": ("bytes", size)},
        of_letters={"commit_time_column": "timestamp"},
    )


def _generator(given: Mapping[str, Any], columns: pa.Schema) -> Source:
    from onceflow.connectors.generator.source import generator_source

    return generator_source(
        columns, given.get("rate"), given.get("count"), given.get("seed", 1), None, given.get("event_time")
    )


_RECORDS: Mapping[str, tuple[str, Convert]] = {"max_records_per_trigger": ("records", number)}


class OnceflowGenerator(SourceDataSource):
    """Made-up records: connectors/generator."""

    reading = SourceFormat(
        "onceflow-generator",
        _generator,
        {"rate": text, "count": number, "seed": number, "event_time": text},
        limits=_RECORDS,
    )


def _nexmark(given: Mapping[str, Any], columns: pa.Schema | None) -> Any:
    from onceflow.connectors.nexmark import nexmark

    return nexmark(**given)


class OnceflowNexmark(SourceDataSource):
    """Events of one kind of Nexmark: connectors/nexmark."""

    reading = SourceFormat(
        "onceflow-nexmark",
        _nexmark,
        {"kind": text, "rate": per_second, "events": number, "seed": number},
        needs=("kind",),
        columns=lambda given: _nexmark(given, None).schema,
        limits=_RECORDS,
    )


FORMATS: tuple[type[SourceDataSource], ...] = (
    OnceflowKinesis,
    OnceflowRabbitmqStream,
    OnceflowPostgresCdc,
    OnceflowGenerator,
    OnceflowNexmark,
)
"""All that `onceflow.register` makes known to be read, beside onceflow-kafka and those that are sinks."""
