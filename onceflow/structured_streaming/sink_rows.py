"""Rows of a query to records of Kafka (PRODUCE_SCHEMA), in the tasks.

The partition is chosen later, in the driver, where the topics are known: tasks need no way to Kafka.
"""

from __future__ import annotations

import pyarrow as pa
import pyarrow.compute as pc

from onceflow.connectors.kafka.client import PRODUCE_SCHEMA
from onceflow.runtime.errors import GraphError
from onceflow.runtime.nearest import nearest
from onceflow.structured_streaming.sink_options import SinkOptions

CHOSEN_LATER = -1
"""The partition of a row that names none."""

HEADERS = PRODUCE_SCHEMA.field("headers").type
_TEXT = (pa.string(), pa.large_string())
_BYTES = (pa.binary(), pa.large_binary())
_OWN = ("key", "value", "topic", "headers", "partition")
_OF_THE_SOURCE = ("offset", "timestamp", "timestampType")
"""What Spark's Kafka source gives besides, and its sink leaves out; so do we."""


class RowEncoder:
    """Rows of one schema. Raises GraphError, when it is made, for columns or types that can't be written."""

    def __init__(self, options: SinkOptions, schema: pa.Schema) -> None:
        self._options = options
        if options.format is None:
            _check_columns(schema, options.topic)
            self._value = None
        else:
            if options.topic is None:
                raise GraphError('rows written with a format need .option("topic", NAME)')
            self._value = options.format.encoder(schema)
            if options.key is not None:
                _check_key(schema, options.key)

    def encode(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """The records of these rows, one for each, in their order. Raises EncodeError naming a row without
        one."""
        count = batch.num_rows
        if self._value is not None:
            key = pa.nulls(count) if self._options.key is None else batch.column(self._options.key)
            value = self._value.encode(batch)
            return _records(self._topics(batch), _unchosen(count), key, value, pa.nulls(count))
        names = batch.schema.names
        partition = batch.column("partition") if "partition" in names else pa.nulls(count)
        return _records(
            self._topics(batch),
            pc.fill_null(partition.cast(pa.int32()), CHOSEN_LATER),
            batch.column("key") if "key" in names else pa.nulls(count),
            batch.column("value"),
            batch.column("headers") if "headers" in names else pa.nulls(count),
        )

    def _topics(self, batch: pa.RecordBatch) -> pa.Array:
        if self._options.topic is not None:
            return pa.repeat(pa.scalar(self._options.topic), batch.num_rows)
        topics = batch.column("topic")
        if topics.null_count:
            row = pc.index(topics.is_null(), True).as_py()
            raise _no_record(
                f"column 'topic' is null in row {row} of a batch: fill it, or give option topic for all rows"
            )
        return topics.cast(pa.string())


def _no_record(why: str) -> Exception:
    from onceflow.connectors.formats import EncodeError  # as in sink_options: costly, and rarely needed

    return EncodeError(why)


def _unchosen(count: int) -> pa.Array:
    return pa.repeat(pa.scalar(CHOSEN_LATER, pa.int32()), count)


def _records(
    topic: pa.Array, partition: pa.Array, key: pa.Array, value: pa.Array, headers: pa.Array
) -> pa.RecordBatch:
    nobody = pa.nulls(len(topic), pa.int64())
    return pa.RecordBatch.from_arrays(
        [topic, partition, _as_bytes(key), _as_bytes(value), _headers(headers), nobody], schema=PRODUCE_SCHEMA
    )


def _as_bytes(array: pa.Array) -> pa.Array:
    if array.type in _TEXT:
        array = array.cast(pa.large_string())
    return array.cast(pa.large_binary())


def _headers(array: pa.Array) -> pa.Array:
    if array.null_count == len(array):
        return pa.nulls(len(array), HEADERS)
    headers = array.cast(HEADERS)
    names = headers.flatten().field("key")
    if names.null_count:
        raise _no_record("column 'headers' holds a header without a key: Kafka has no such header")
    return headers


def _check_columns(schema: pa.Schema, topic: str | None) -> None:
    for name in schema.names:
        if name not in (*_OWN, *_OF_THE_SOURCE):
            raise GraphError(
                f"column {name!r} has no place in a Kafka record{nearest(name, _OWN)}: rows have key, value, "
                'topic, headers and partition, or any columns with .option("format", "json")'
            )
    if "value" not in schema.names:
        raise GraphError(
            "the rows have no column 'value' (text or binary): name one so, or give "
            '.option("format", "json") to write all columns'
        )
    if topic is None and "topic" not in schema.names:
        raise GraphError("where to? give .option(\"topic\", NAME), or rows with a column 'topic'")
    for name in ("key", "value"):
        if name in schema.names and schema.field(name).type not in (*_TEXT, *_BYTES, pa.null()):
            raise GraphError(
                f"column {name!r} must be string or binary, not {schema.field(name).type}: cast it, or give "
                '.option("format", "json") to write all columns'
            )
    if "topic" in schema.names and topic is None and schema.field("topic").type not in _TEXT:
        raise GraphError(f"column 'topic' must be string, not {schema.field('topic').type}")
    if "partition" in schema.names and not pa.types.is_integer(schema.field("partition").type):
        raise GraphError(f"column 'partition' must be int, not {schema.field('partition').type}")
    if "headers" in schema.names:
        _check_headers(schema.field("headers").type)


def _check_headers(found: pa.DataType) -> None:
    is_list = pa.types.is_list(found) or pa.types.is_large_list(found)
    entry = found.value_type if is_list else None
    if entry is not None and pa.types.is_struct(entry):
        fields = {entry.field(i).name: entry.field(i).type for i in range(entry.num_fields)}
        if set(fields) == {"key", "value"} and fields["key"] in _TEXT and fields["value"] in _BYTES:
            return
    raise GraphError(f"column 'headers' must be array<struct<key: string, value: binary>>, not {found}")


def _check_key(schema: pa.Schema, key: str) -> None:
    if key not in schema.names:
        raise GraphError(
            f"option key={key!r} names a column that the rows don't have{nearest(key, schema.names)}; they "
            f"have {', '.join(schema.names)}"
        )
    if schema.field(key).type not in (*_TEXT, *_BYTES):
        raise GraphError(
            f"option key={key!r}: that column is {schema.field(key).type}; a key is string or binary: cast it"
        )
