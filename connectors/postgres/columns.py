"""How a column of rows becomes a column of the table: what each pair of types needs. Pure.

Rows are sent in PostgreSQL's binary COPY format, in which a value must have just the type of its column. A
value that would change on the way is refused: a whole column where its type says so, a row where it is only
this value. A type that is not known here is sent as text and read by the server, as in `'...'::inet`.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from uuid import UUID

import pyarrow as pa
import pyarrow.compute as pc

from onceflow.connectors.postgres.catalog import Column
from onceflow.connectors.sql_tables.json_texts import json_texts
from onceflow.runtime.errors import Fatal

Cast = Callable[[pa.Array], pa.Array]


@dataclass(frozen=True, slots=True)
class SentColumn:
    """A column on its way. `cast` raises ArrowInvalid or ValueError for a value that does not fit."""

    name: str
    cast: Cast
    type: pa.DataType
    """What `cast` gives."""
    is_read_by_server: bool = False
    """Text that the server turns into the column's type."""


_INTS = {"int2": pa.int16(), "int4": pa.int32(), "int8": pa.int64()}
_NUMBERS = {*_INTS, "float4", "float8", "numeric"}
_TEXTS = {"text", "varchar", "bpchar", "citext", "name"}
_PLAIN: Mapping[str, pa.DataType] = {
    "bool": pa.bool_(),
    "date": pa.date32(),
    "time": pa.time64("us"),
    "timestamp": pa.timestamp("us"),
    "interval": pa.duration("us"),
    "bytea": pa.binary(),
}
_FOR: Mapping[str, str] = {
    "bool": "bool",
    "date32[day]": "date",
    "string": "text",
    "binary": "bytea",
    "double": "double precision",
    "float": "real",
    "int64": "bigint",
    "int32": "integer",
    "int16": "smallint",
}
_DIGITS = {pa.int64(): 19, pa.uint64(): 20}


def sent_column(field: pa.Field, column: Column, where: str) -> SentColumn:
    """How this column is sent. Raises Fatal where its values could not be kept."""
    name, of = column.name, field.type
    cast_to = _cast_to(of, column)
    if cast_to is not None:
        return SentColumn(name, _casting(cast_to), cast_to)
    match column.type:
        case "uuid" if pa.types.is_string(of):
            return SentColumn(name, _uuid_bytes, pa.binary())
        case "json" | "jsonb":
            head = b"\x01" if column.type == "jsonb" else b""  # the version of its binary format
            return SentColumn(name, _json_bytes(field, head), pa.binary())
    if (
        pa.types.is_string(of)
        and not column.element
        and column.type not in {*_INTS, *_PLAIN, "float4", "float8"}
    ):
        return SentColumn(name, _casting(pa.string()), pa.string(), is_read_by_server=not column.is_enum)
    raise Fatal(
        f"{where}: column {name!r} is {of} in the rows and {column.declared} in the table, which does not fit"
        f"{_advice(of, column)}"
    )


def column_type(field: pa.Field) -> str:
    """The type that CREATE TABLE gives a column for these values."""
    of = field.type
    if pa.types.is_timestamp(of):
        return "timestamptz" if of.tz else "timestamp"
    if pa.types.is_time(of):
        return "time"
    if pa.types.is_duration(of):
        return "interval"
    if pa.types.is_decimal(of):
        return f"numeric({of.precision},{of.scale})"
    if pa.types.is_uint64(of):
        return "numeric(20)"
    if pa.types.is_integer(of):
        return (
            "smallint"
            if of.bit_width < 16
            else "integer"
            if str(of) == "uint16"
            else _FOR.get(str(of), "bigint")
        )
    if pa.types.is_list(of) and str(of.value_type) in _FOR:
        return f"{_FOR[str(of.value_type)]}[]"
    return _FOR.get(str(of).removeprefix("large_"), "jsonb")


def _cast_to(of: pa.DataType, column: Column) -> pa.DataType | None:
    """The Arrow type whose binary form is the column's, if all values of `of` may be cast to it."""
    if column.type in _NUMBERS:
        return _number_type(of, column)
    if column.type == "timestamptz":
        return pa.timestamp("us", "UTC") if pa.types.is_timestamp(of) and of.tz else None
    if column.type in _TEXTS or column.is_enum:
        return pa.string() if pa.types.is_string(of) or pa.types.is_large_string(of) else None
    if column.element:
        if not pa.types.is_list(of) and not pa.types.is_large_list(of):
            return None
        inner = _cast_to(of.value_type, _element(column))
        return None if inner is None else pa.list_(inner)
    if column.type in _PLAIN:
        wanted = _PLAIN[column.type]
        return wanted if _is_same_kind(of, wanted) else None
    return None


def _number_type(of: pa.DataType, column: Column) -> pa.DataType | None:
    if column.type in _INTS:
        return _INTS[column.type] if pa.types.is_integer(of) else None  # a value that is too large is refused
    if column.type == "float8":
        is_exact = pa.types.is_floating(of) or (pa.types.is_integer(of) and of.bit_width <= 32)
        return pa.float64() if is_exact else None
    if column.type == "float4":
        return pa.float32() if str(of) in ("float", "halffloat") else None
    if pa.types.is_integer(of):
        return pa.decimal128(_DIGITS.get(of, 10))
    return _rounded_to(of, column.declared) if pa.types.is_decimal(of) else None


def _rounded_to(of: pa.DataType, declared: str) -> pa.DataType:
    """The server would round to the column's scale in silence: the cast refuses what is not the same."""
    with_scale = re.fullmatch(r"numeric\(\d+,(\d+)\)", declared)
    if with_scale is None or int(with_scale[1]) >= of.scale:
        return of
    return (
        pa.decimal256(76, int(with_scale[1])) if of.precision > 38 else pa.decimal128(38, int(with_scale[1]))
    )


def _element(column: Column) -> Column:
    return Column(column.name, column.element, column.element, "", False, False, False)


def _is_same_kind(of: pa.DataType, wanted: pa.DataType) -> bool:
    if pa.types.is_timestamp(wanted):
        return bool(pa.types.is_timestamp(of) and not of.tz)
    if pa.types.is_time(wanted):
        return bool(pa.types.is_time(of))
    if pa.types.is_duration(wanted):
        return bool(pa.types.is_duration(of))
    if pa.types.is_binary(wanted):
        return bool(
            pa.types.is_binary(of) or pa.types.is_large_binary(of) or pa.types.is_fixed_size_binary(of)
        )
    return bool(of == wanted)


def _casting(to: pa.DataType) -> Cast:
    return lambda array: array.cast(to)  # safe: it raises for a value that would not be the same


def _uuid_bytes(array: pa.Array) -> pa.Array:
    return pa.array([None if each is None else UUID(each).bytes for each in array.to_pylist()], pa.binary())


def _json_bytes(field: pa.Field, head: bytes) -> Cast:
    texts = json_texts(field)
    return lambda array: _headed(texts(array), head)


def _headed(array: pa.Array, head: bytes) -> pa.Array:
    if not head:
        return array
    return pc.binary_join_element_wise(pa.scalar(head), array, pa.scalar(b""))


def _advice(of: pa.DataType, column: Column) -> str:
    if pa.types.is_timestamp(of) and column.type in ("timestamp", "timestamptz"):
        zone, wanted = "a zone" if of.tz else "no zone", column_type(pa.field("x", of))
        return f": a time with {zone} would be read as another one; make the column {wanted}"
    if pa.types.is_floating(of) and column.type == "float4":
        return ": digits would be lost; make the column double precision"
    return f": make the column {column_type(pa.field('x', of))}, or cast in the job"
