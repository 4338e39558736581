"""The Avro schema of rows that have columns but no schema of their own, as JSON."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any

import pyarrow as pa

from onceflow.connectors.formats.avro.schema.nodes import DECIMAL_PRECISION_MAX
from onceflow.runtime.errors import GraphError
from onceflow.runtime.types.column_forms import UUID, form_of

_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_PLAIN: dict[pa.DataType, Any] = {
    pa.bool_(): "boolean",
    pa.int8(): "int",
    pa.int16(): "int",
    pa.int32(): "int",
    pa.uint8(): "int",
    pa.uint16(): "int",
    pa.uint32(): "long",
    pa.int64(): "long",
    pa.float32(): "float",
    pa.float64(): "double",
    pa.string(): "string",
    pa.large_string(): "string",
    pa.binary(): "bytes",
    pa.large_binary(): "bytes",
    pa.date32(): {"type": "int", "logicalType": "date"},
    pa.time32("ms"): {"type": "int", "logicalType": "time-millis"},
    pa.time64("us"): {"type": "long", "logicalType": "time-micros"},
}
_UUID = {"type": "string", "logicalType": "uuid"}
_TIMESTAMPS = {"ms": "timestamp-millis", "us": "timestamp-micros"}


def avro_of_arrow(schema: pa.Schema, name: str) -> dict[str, Any]:
    """The schema of rows with these columns, as a record of this name.

    A nullable column is a union with null, which is its default. Raises GraphError naming a column that
    has no Avro type, or whose name is none in Avro.
    """
    short = name.rsplit(".", 1)[-1]
    if not all(_NAME.fullmatch(part) for part in name.split(".")):
        raise GraphError(f"{name!r} is no name for an Avro record: letters, digits, underscores, dots")
    if not len(schema):
        raise GraphError("Avro can't write rows that have no columns")
    record = {"type": "record", "name": short, "fields": _fields(schema, short, "")}
    if short != name:
        record["namespace"] = name[: -len(short) - 1]
    return record


def _fields(fields: Iterable[pa.Field], record: str, above: str) -> list[dict[str, Any]]:
    made: list[dict[str, Any]] = []
    for field in fields:
        where = f"{above}{field.name}"
        if not _NAME.fullmatch(field.name):
            raise GraphError(
                f"Avro has no field named {where!r}: a name is letters, digits and underscores; "
                "rename the column"
            )
        if any(other["name"] == field.name for other in made):
            raise GraphError(f"Avro can't write two columns of the same name: {where!r}")
        entry = {"name": field.name, "type": _nullable(field, f"{record}_{field.name}", where)}
        made.append({**entry, "default": None} if field.nullable else entry)
    return made


def _nullable(field: pa.Field, record: str, where: str) -> Any:
    avro = _UUID if form_of(field) == UUID else _type(field.type, record, where)
    return ["null", avro] if field.nullable and avro != "null" else avro


def _type(arrow: pa.DataType, record: str, where: str) -> Any:
    is_ = pa.types
    if arrow in _PLAIN:
        return _PLAIN[arrow]
    if is_.is_timestamp(arrow) and arrow.unit in _TIMESTAMPS:
        prefix = "" if arrow.tz is not None else "local-"
        return {"type": "long", "logicalType": prefix + _TIMESTAMPS[arrow.unit]}
    if is_.is_decimal128(arrow) and 0 <= arrow.scale <= arrow.precision <= DECIMAL_PRECISION_MAX:
        return {
            "type": "bytes", "logicalType": "decimal", "precision": arrow.precision, "scale": arrow.scale
        }  # fmt: skip
    if is_.is_fixed_size_binary(arrow):
        return {"type": "fixed", "name": record, "size": arrow.byte_width}
    if is_.is_list(arrow) or is_.is_large_list(arrow):
        return {"type": "array", "items": _nullable(arrow.value_field, record, f"{where}[]")}
    if is_.is_map(arrow) and arrow.key_type in (pa.string(), pa.large_string()):
        return {"type": "map", "values": _nullable(arrow.item_field, record, f"{where}[]")}
    if is_.is_struct(arrow) and arrow.num_fields:
        return {"type": "record", "name": record, "fields": _fields(arrow, record, f"{where}.")}
    hint = "cast it to timestamp[us]" if is_.is_timestamp(arrow) else "cast it, or leave the column out"
    raise GraphError(f"Avro has no type for column {where!r}, which is {arrow}: {hint}")
