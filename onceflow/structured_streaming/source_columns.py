"""Which columns a source has, and how the batches that Spark gets are built from what a reader fetched.

Three kinds of columns: Kafka's own, named as Spark's Kafka source names them; those of a decoded value;
and in the second case, on request, any of Kafka's own under a name of the user's choice.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from onceflow.connectors.formats import Format, Raw
from onceflow.connectors.kafka.rows import METADATA, Metadata, RowBuilder, Tolerance
from onceflow.runtime.contracts import Fetch
from onceflow.runtime.errors import BadRecordError, OptionError
from onceflow.runtime.types import nearest
from onceflow.structured_streaming.source_offsets import OffsetRange

if TYPE_CHECKING:
    from onceflow.connectors.formats import Avro

_TIMESTAMP = pa.timestamp("us", "UTC")
KAFKA_COLUMNS: Mapping[str, pa.DataType] = {
    "key": pa.binary(),
    "value": pa.binary(),
    "topic": pa.string(),
    "partition": pa.int32(),
    "offset": pa.int64(),
    "timestamp": _TIMESTAMP,
    "timestampType": pa.int32(),
    "headers": pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())])),
}
"""Kafka's own, in the order and with the types that Spark's source gives them."""

_COLUMN_OPTIONS = {
    "key_column": "key",
    "topic_column": "topic",
    "partition_column": "partition",
    "offset_column": "offset",
    "timestamp_column": "timestamp",
    "headers_column": "headers",
}
_CORRUPT = "_corrupt_record"
_MODES = ("failfast", "permissive")
_SHOWN_BYTES = 100
# Names inside a reader that no column of a user's can have.
_INSIDE = "\0"
_KEY, _VALUE = "\0key", "\0value"
_READ: Mapping[str, Metadata] = {"headers": "headers", "timestampType": "timestamp_kind"}


@dataclass(frozen=True, slots=True)
class Columns:
    """Pickled into the tasks. `schema` is what Spark gets; `kafka` tells which of its columns are
    Kafka's own, `corrupt` which one takes values that can't be decoded (None: they fail the query)."""

    schema: pa.Schema
    kafka: Mapping[str, str]
    corrupt: str | None
    value: Format

    def row_builder(self) -> RowBuilder:
        """For one reader. Bad records come out as dead letters, for `build` to decide on."""
        wanted = set(self.kafka.values())
        key = Raw(_KEY).decoder() if "key" in wanted else None
        decoded = self._decoded()
        value = self.value.decoder(frozenset(decoded))
        metadata: list[Metadata] = [name for own, name in _READ.items() if own in wanted]
        fields = [pa.field(_KEY, pa.binary())] if key else []
        fields += list(value.schema)
        fields += [pa.field(_INSIDE + name, *METADATA[name]) for name in metadata]
        tolerance: Tolerance = "none" if isinstance(self.value, Raw) else "all"
        return RowBuilder(pa.schema(fields), key, value, metadata, tolerance)

    def build(self, fetch: Fetch, where: OffsetRange) -> pa.RecordBatch:
        """The rows of a fetch as Spark gets them. Raises BadRecordError, naming the first bad record."""
        letters = fetch.dead_letters
        if letters is not None and self.corrupt is None:
            raise _bad_record(letters.slice(0, 1).to_pylist()[0])
        batch = self._rows(fetch, where)
        if letters is None:
            return batch
        bad = self._corrupt_rows(letters)
        assert fetch.offset is not None, "the reader was opened with_origin"
        offsets = np.concatenate([fetch.offset, letters.column("offset").to_numpy()])
        both = pa.Table.from_batches([batch, bad]).combine_chunks().take(np.argsort(offsets, kind="stable"))
        return both.to_batches()[0]

    def _decoded(self) -> list[str]:
        if isinstance(self.value, Raw):
            return [_VALUE] if "value" in self.kafka.values() else []
        return [name for name in self.schema.names if name not in self.kafka and name != self.corrupt]

    def _rows(self, fetch: Fetch, where: OffsetRange) -> pa.RecordBatch:
        count = len(fetch.row_split)
        own: dict[str, Callable[[], pa.Array]] = {
            "key": lambda: fetch.records.column(_KEY),
            "value": lambda: fetch.records.column(_VALUE),
            "topic": lambda: _constant(where.topic, count, pa.string()),
            "partition": lambda: _constant(where.partition, count, pa.int32()),
            "offset": lambda: pa.array(fetch.offset, pa.int64()),
            "timestamp": lambda: _timestamps(fetch.timestamp_ms),
            "timestampType": lambda: _types(fetch.records.column(_INSIDE + "timestamp_kind")),
            "headers": lambda: _headers(fetch.records.column(_INSIDE + "headers")),
        }
        arrays = []
        for field in self.schema:
            if field.name in self.kafka:
                array = own[self.kafka[field.name]]()
            elif field.name == self.corrupt:
                array = pa.nulls(count, field.type)
            else:
                array = fetch.records.column(field.name)
            arrays.append(array if array.type == field.type else array.cast(field.type))
        return pa.RecordBatch.from_arrays(arrays, schema=self.schema)

    def _corrupt_rows(self, letters: pa.RecordBatch) -> pa.RecordBatch:
        """Nulls for what could not be decoded, the value itself in the column for it."""
        own: dict[str, Callable[[], pa.Array]] = {
            "timestamp": lambda: _timestamps(letters.column("timestamp").fill_null(-1).to_numpy()),
            "headers": lambda: _headers(letters.column("headers")),
        }
        arrays = []
        for field in self.schema:
            name = self.kafka.get(field.name)
            if name is not None:
                array = own[name]() if name in own else letters.column(name)
            elif field.name == self.corrupt:
                array = _as_text_or_bytes(letters.column("value"), field.type)
            else:
                array = pa.nulls(len(letters), field.type)
            arrays.append(array if array.type == field.type else array.cast(field.type))
        return pa.RecordBatch.from_arrays(arrays, schema=self.schema)


def _constant(value: str | int, count: int, arrow: pa.DataType) -> pa.Array:
    """The same value in every row. A range has many batches: they share one array."""
    return _longest(value, 1 << max(0, count - 1).bit_length(), arrow).slice(0, count)


@functools.lru_cache(maxsize=4)
def _longest(value: str | int, count: int, arrow: pa.DataType) -> pa.Array:
    return pa.repeat(pa.scalar(value, arrow), count)


def _timestamps(timestamp_ms: Any) -> pa.Array:
    """Null for a record without a time, which is as old as Kafka 0.9."""
    times = np.asarray(timestamp_ms, np.int64)
    if (times < 0).any():
        return pa.array(times * 1_000, pa.int64(), mask=times < 0).cast(_TIMESTAMP)
    return pa.Array.from_buffers(_TIMESTAMP, len(times), [None, pa.py_buffer(times * 1_000)], 0)


def _types(kinds: pa.Array) -> pa.Array:
    """Spark's numbers: -1 none, 0 CreateTime, 1 LogAppendTime."""
    return pa.array(kinds.to_numpy().astype(np.int32) - 1, pa.int32())


def _headers(headers: pa.Array) -> pa.Array:
    """Null where there are none, as Spark's source has it."""
    has_none = pc.equal(pc.list_value_length(headers), 0)
    return pa.ListArray.from_arrays(headers.offsets, headers.values, type=headers.type, mask=has_none)


def _as_text_or_bytes(values: pa.Array, arrow: pa.DataType) -> pa.Array:
    if pa.types.is_binary(arrow):
        return values
    texts = [None if value is None else value.decode(errors="replace") for value in values.to_pylist()]
    return pa.array(texts, arrow)


def _bad_record(letter: Mapping[str, Any]) -> BadRecordError:
    value = letter["value"]
    shown = "" if value is None else f"; the value begins with {value[:_SHOWN_BYTES]!r}"
    return BadRecordError(
        f"the value of the record in {letter['topic']}-{letter['partition']} at offset {letter['offset']} "
        f"can't be decoded: {letter['reason']}{shown}. To go on with such records in a column of their own, "
        f'add {_CORRUPT} BINARY to the schema and .option("mode", "permissive")'
    )


# --- What the user asked for ----------------------------------------------------------------------


def raw_schema(includes_headers: bool) -> pa.Schema:
    """The columns of a source that decodes nothing, if the user names none."""
    names = [name for name in KAFKA_COLUMNS if name != "headers" or includes_headers]
    return pa.schema([pa.field(name, KAFKA_COLUMNS[name]) for name in names])


def make_columns(schema: pa.Schema, given: Mapping[str, str]) -> Columns:
    """`schema` is the one the user gave, or raw_schema. Raises OptionError for columns that can't be
    had."""
    if "format" not in given:
        _refuse_without_format(given)
        for field in schema:
            _check_own(field, field.name, "without option format the columns are Kafka's own")
        return Columns(schema, {name: name for name in schema.names}, None, Raw(_VALUE))
    kafka: dict[str, str] = {}
    for option, own in _COLUMN_OPTIONS.items():
        if option in given:
            name = given[option]
            if name not in schema.names:
                raise OptionError(f"{option}={name!r} is no column{nearest(name, schema.names)}")
            _check_own(schema.field(name), own, f"{option} takes Kafka's own")
            kafka[name] = own
    corrupt = _corrupt(schema, given)
    decoded = pa.schema([field for field in schema if field.name not in kafka and field.name != corrupt])
    if not len(decoded):
        raise OptionError("no column of the schema is left for the value's own fields")
    if corrupt is not None:
        required = [field.name for field in decoded if not field.nullable]
        if required:
            raise OptionError(f"mode=permissive needs columns that may be null, and {required[0]!r} may not")
    return Columns(schema, kafka, corrupt, _format(given["format"], decoded, given))


def _format(name: str, schema: pa.Schema, given: Mapping[str, str]) -> Format:
    if name.lower() == "json":
        from onceflow.connectors.formats import Json

        return Json(schema)
    if name.lower() != "avro":
        raise OptionError(
            f'format={name!r}{nearest(name, ("json", "avro"))}: write "json" or "avro", or leave it out'
        )
    avro = avro_format(given, schema)
    names = avro.schema.names if avro.schema is not None else []
    for column in schema.names:
        if column not in names:
            raise OptionError(f"avro_schema has no field {column!r}{nearest(column, names)}")
    return avro


def avro_format(given: Mapping[str, str], schema: pa.Schema | None) -> Avro:
    """`schema`: the columns, if the user gave them. Raises OptionError."""
    registry, written = given.get("schema_registry"), given.get("avro_schema")
    if registry is None and written is None:
        raise OptionError(
            'format="avro" needs .option("schema_registry", "http://host:8081"), or for values without its '
            'header .option("avro_schema", the JSON of the schema they were written with)'
        )
    from onceflow.connectors.formats import Avro

    of = schema if written is None else written
    return Avro(of, registry=registry, framing="none" if registry is None else "confluent")


def _check_own(field: pa.Field, own: str, rule: str) -> None:
    if own not in KAFKA_COLUMNS:
        raise OptionError(
            f"there is no column {field.name!r}{nearest(field.name, KAFKA_COLUMNS)}: {rule} "
            f"({', '.join(KAFKA_COLUMNS)})"
        )
    arrow = KAFKA_COLUMNS[own]
    same = field.type == arrow or (own in ("key", "value") and field.type == pa.string())
    if not (same or (own == "headers" and _is_headers(field.type))):
        raise OptionError(
            f"column {field.name!r} is {field.type} in the schema, and Kafka's {own} is {arrow}"
        )


def _is_headers(arrow: pa.DataType) -> bool:
    return bool(
        pa.types.is_list(arrow)
        and pa.types.is_struct(arrow.value_type)
        and [(f.name, f.type) for f in arrow.value_type] == [("key", pa.string()), ("value", pa.binary())]
    )


def _corrupt(schema: pa.Schema, given: Mapping[str, str]) -> str | None:
    mode = given.get("mode", "failfast").lower()
    if mode not in _MODES:
        dropped = " (no record is dropped without a trace)" if mode == "dropmalformed" else ""
        raise OptionError(f'mode={mode!r}{dropped}: write "failfast" or "permissive"')
    named = "columnNameOfCorruptRecord" in given
    if mode == "failfast":
        if named:
            raise OptionError('columnNameOfCorruptRecord is of no use unless mode="permissive"')
        return None
    name = given.get("columnNameOfCorruptRecord", _CORRUPT)
    if name not in schema.names or schema.field(name).type not in (pa.string(), pa.binary()):
        raise OptionError(
            f'mode="permissive" needs a column {name!r} of type BINARY or STRING in the schema, for values '
            "that can't be decoded"
        )
    return name


def _refuse_without_format(given: Mapping[str, str]) -> None:
    only_decoded = ("mode", "columnNameOfCorruptRecord", "avro_schema", "schema_registry", *_COLUMN_OPTIONS)
    for name in only_decoded:
        if name in given:
            raise OptionError(f'option {name!r} is for decoded values: add .option("format", "json")')
