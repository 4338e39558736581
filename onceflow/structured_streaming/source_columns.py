"""The columns that a source has: what the user asked for, checked at the door. source_rows.py fills them.

Three kinds of columns: Kafka's own, named as Spark's Kafka source names them; those of a decoded value;
and in the second case, on request, any of Kafka's own under a name of the user's choice.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

import pyarrow as pa

from onceflow.connectors.formats import Format, Raw
from onceflow.runtime.errors import OptionError
from onceflow.runtime.nearest import nearest
from onceflow.structured_streaming.corrupt_records import OPTIONS, check_nullable, corrupt_column

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
VALUE = "\0value"
"""The bytes of a value inside a reader: no column of a user's can have this name."""


@dataclass(frozen=True, slots=True)
class Columns:
    """Pickled into the tasks. `schema` is what Spark gets; `kafka` tells which of its columns are
    Kafka's own, `corrupt` which one takes values that can't be decoded (None: they fail the query)."""

    schema: pa.Schema
    kafka: Mapping[str, str]
    corrupt: str | None
    value: Format


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
        return Columns(schema, {name: name for name in schema.names}, None, Raw(VALUE))
    kafka: dict[str, str] = {}
    for option, own in _COLUMN_OPTIONS.items():
        if option in given:
            name = given[option]
            if name not in schema.names:
                raise OptionError(f"{option}={name!r} is not a column{nearest(name, schema.names)}")
            _check_own(schema.field(name), own, f"{option} takes Kafka's own")
            kafka[name] = own
    corrupt = corrupt_column(schema, given)
    decoded = pa.schema([field for field in schema if field.name not in kafka and field.name != corrupt])
    if not len(decoded):
        raise OptionError("no column of the schema is left for the value's own fields")
    if corrupt is not None:
        check_nullable(list(decoded))
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


def _refuse_without_format(given: Mapping[str, str]) -> None:
    only_decoded = (*OPTIONS, "avro_schema", "schema_registry", *_COLUMN_OPTIONS)
    for name in only_decoded:
        if name in given:
            raise OptionError(f'option {name!r} is for decoded values: add .option("format", "json")')
