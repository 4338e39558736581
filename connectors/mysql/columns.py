"""How a column of rows becomes a column of the table: the SQL literals of its values. Pure.

A value that would change on the way is refused: a whole column where its type says so, a row where it is only
this value. What MySQL changes even in strict mode (digits behind the point of a decimal or of a second,
spaces at the end of a text, zero bytes behind one, a null in TIMESTAMP or AUTO_INCREMENT, numbers as members
of an enum) is refused before it is sent.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import polars as pl
import pyarrow as pa
import pyarrow.compute as pc

from onceflow.connectors.mysql.catalog import Column
from onceflow.connectors.sql_tables.json_texts import json_texts
from onceflow.runtime.errors import Fatal

Literals = Callable[[pa.Array], pa.Array]


@dataclass(frozen=True, slots=True)
class SentColumn:
    """A column on its way. `literals` gives strings, null for null, and raises ArrowInvalid or ValueError for
    a value that does not fit. `takes_null`: the column does."""

    name: str
    literals: Literals
    takes_null: bool


_INTS = ("tinyint", "smallint", "mediumint", "int", "bigint")
_TEXTS = ("char", "varchar", "tinytext", "text", "mediumtext", "longtext")
_BYTES = ("binary", "varbinary", "tinyblob", "blob", "mediumblob", "longblob")
_READ_BY_SERVER = ("uuid", "inet4", "inet6")
_INT_TYPES: Mapping[int, str] = {8: "tinyint", 16: "smallint", 32: "int", 64: "bigint"}
_KEY_LENGTH = 255
_DIGITS_MAX, _SCALE_MAX = 65, 30
_EXACT_BITS = 32
"""Integers of so many bits are doubles without loss."""


def sent_column(field: pa.Field, column: Column, is_key: bool, where: str) -> SentColumn:
    """How this column is sent. Raises Fatal where its values could not be kept."""
    literals = _literals(field, column, is_key)
    if literals is None:
        raise Fatal(
            f"{where}: column {column.name!r} is {field.type} in the rows and {column.declared} in the "
            f"table, which does not fit{_advice(field, column)}"
        )
    return SentColumn(column.name, literals, column.is_nullable and not is_key)


def column_type(field: pa.Field, is_key: bool) -> str | None:
    """The type that CREATE TABLE gives a column for these values; None: there is none."""
    of, is_ = field.type, pa.types
    if is_.is_boolean(of):
        return "boolean"
    if is_.is_integer(of):
        return _INT_TYPES[of.bit_width] + (" unsigned" if str(of).startswith("u") else "")
    if is_.is_floating(of):
        return "double" if is_.is_float64(of) else "float"
    if is_.is_decimal(of):
        fits = of.precision <= _DIGITS_MAX and 0 <= of.scale <= _SCALE_MAX
        return f"decimal({of.precision},{of.scale})" if fits else None
    if _is_text(of):
        return f"varchar({_KEY_LENGTH}) COLLATE utf8mb4_bin" if is_key else "longtext"
    if _is_bytes(of):
        return f"varbinary({_KEY_LENGTH})" if is_key else "longblob"
    if is_.is_timestamp(of):
        return "datetime(6)" if not of.tz else "timestamp(6)" + ("" if is_key else " NULL")
    if is_.is_date32(of):
        return "date"
    if is_.is_time(of):
        return "time(6)"
    return "json" if is_.is_nested(of) and not is_key else None


def _literals(field: pa.Field, column: Column, is_key: bool) -> Literals | None:
    of, is_ = field.type, pa.types
    if is_.is_null(of):
        return lambda array: array.cast(pa.string())
    if is_.is_nested(of) and column.type in ("json", "longtext"):
        texts = json_texts(field)
        return lambda array: _escaped(texts(array).cast(pa.string()))
    if _is_text(of):
        return _of_text(column, is_key)
    if is_.is_temporal(of):
        return _of_time(of, column)
    if _is_bytes(of):
        return (lambda array: _byte_literals(array, column)) if column.type in _BYTES else None
    return _of_number(of, column)


def _of_number(of: pa.DataType, column: Column) -> Literals | None:
    to, is_ = column.type, pa.types
    if is_.is_boolean(of):
        is_flag = to == "tinyint" or (to == "bit" and column.precision == 1)
        return (lambda array: array.cast(pa.int8()).cast(pa.string())) if is_flag else None
    if is_.is_integer(of) and to in (*_INTS, "decimal"):
        return lambda array: array.cast(pa.string())
    if to in ("float", "double"):
        return _float_literals if _is_exact(of, column) else None
    if is_.is_decimal(of) and to == "decimal":
        return _decimal_literals(of, column.scale or 0)
    return None


def _of_time(of: pa.DataType, column: Column) -> Literals | None:
    to, is_ = column.type, pa.types
    if is_.is_date32(of) and to == "date":
        return lambda array: _in_quotes(array.cast(pa.string()))
    if is_.is_time(of) and to == "time":
        return _time_literals(pa.time64("us"), column)
    if is_.is_timestamp(of) and to == ("timestamp" if of.tz else "datetime"):
        return _time_literals(pa.timestamp("us", of.tz), column)
    return None


def _of_text(column: Column, is_key: bool) -> Literals | None:
    to = column.type
    if to in _TEXTS:
        return lambda array: _text_literals(array, column, is_key)
    if to == "enum":
        members = pa.array(_members(column.declared))
        return lambda array: _member_literals(array, members)
    return (lambda array: _escaped(array.cast(pa.string()))) if to in ("json", *_READ_BY_SERVER) else None


def _is_text(of: pa.DataType) -> bool:
    return bool(pa.types.is_string(of) or pa.types.is_large_string(of))


def _is_bytes(of: pa.DataType) -> bool:
    is_ = pa.types
    return bool(is_.is_binary(of) or is_.is_large_binary(of) or is_.is_fixed_size_binary(of))


def _is_exact(of: pa.DataType, column: Column) -> bool:
    """Whether all values of this type are values of that column. FLOAT(M,D) rounds."""
    if column.scale is not None:
        return False
    if column.type == "float":
        return str(of) in ("float", "halffloat")
    return bool(pa.types.is_floating(of) or (pa.types.is_integer(of) and of.bit_width <= _EXACT_BITS))


def _float_literals(array: pa.Array) -> pa.Array:
    if pa.types.is_integer(array.type):
        return array.cast(pa.string())
    if pa.types.is_float16(array.type):
        array = array.cast(pa.float32())
    if not pc.all(pc.is_finite(array), min_count=0).as_py():
        raise ValueError("NaN and infinities have no place in MySQL")
    texts = array.cast(pa.string())
    # Without an exponent the server would take it for a decimal, of at most 65 digits.
    return pc.if_else(pc.match_substring(texts, "e"), texts, pc.binary_join_element_wise(texts, "e0", ""))


def _decimal_literals(of: pa.DataType, scale: int) -> Literals:
    """The server would round to the column's scale in silence: the cast refuses what is not the same."""
    is_wide = of.precision > 38
    wanted = of if scale >= of.scale else pa.decimal256(76, scale) if is_wide else pa.decimal128(38, scale)

    def literals(array: pa.Array) -> pa.Array:
        cast = array.cast(wanted)
        if is_wide:
            return pa.array([None if v is None else format(v, "f") for v in cast.to_pylist()], pa.string())
        return _arrow(pl.Series(cast).cast(pl.String))  # Arrow would write small ones with an exponent

    return literals


def _time_literals(of: pa.DataType, column: Column) -> Literals:
    """The server would round to the column's digits of a second in silence."""
    step = 10 ** (6 - column.fraction)

    def literals(array: pa.Array) -> pa.Array:
        cast = array.cast(of)  # safe: raises for nanoseconds
        ticks = cast.cast(pa.int64())
        if step > 1:
            rest = pc.subtract(ticks, pc.multiply(pc.divide(ticks, step), step))
            if pc.any(pc.not_equal(rest, 0), min_count=0).as_py():
                raise ValueError(
                    f"a value has more digits of a second than {column.declared}, which would round it"
                )
        plain = ticks.cast(pa.timestamp("us")) if pa.types.is_timestamp(of) else cast
        return _in_quotes(plain.cast(pa.string()))

    return literals


def _byte_literals(array: pa.Array, column: Column) -> pa.Array:
    array = array.cast(pa.binary())
    if column.type == "binary":
        other = pc.any(pc.not_equal(pc.binary_length(array), column.bytes), min_count=0)
        if other.as_py():
            raise ValueError(f"a value has not just the length of {column.declared}, which would fill it up")
    texts = _arrow(pl.Series(array).bin.encode("hex"))
    return pc.binary_join_element_wise("x'", texts, "'", "")


def _text_literals(array: pa.Array, column: Column, is_key: bool) -> pa.Array:
    texts = array.cast(pa.string())
    has_space = pc.ends_with(texts, " ")
    if pc.any(has_space, min_count=0).as_py():
        pads = is_key and "nopad" not in column.collation and "0900" not in column.collation
        if column.type == "char" or pads:
            what = "takes spaces at the end away" if column.type == "char" else "does not count spaces there"
            raise ValueError(f"a text ends with a space, and {column.declared} {what}")
        long = pc.greater(pc.utf8_length(texts), column.characters)
        long = pc.or_(long, pc.greater(pc.binary_length(texts), column.bytes))
        if pc.any(pc.and_(has_space, long), min_count=0).as_py():
            raise ValueError(f"a text is too long for {column.declared}, which would cut spaces at its end")
    return _escaped(texts)


def _member_literals(array: pa.Array, members: pa.Array) -> pa.Array:
    texts = array.cast(pa.string())
    is_one = pc.or_(pc.is_in(texts, members), pc.is_null(texts))
    if not pc.all(is_one, min_count=0).as_py():
        other = texts.filter(pc.invert(is_one))[0].as_py()
        raise ValueError(f"{other!r} is none of {', '.join(members.to_pylist())}")
    return _escaped(texts)


def _members(declared: str) -> list[str]:
    return [each.replace("''", "'") for each in re.findall(r"'((?:[^']|'')*)'", declared)]


def _escaped(texts: pa.Array) -> pa.Array:
    return _in_quotes(pc.replace_substring(pc.replace_substring(texts, "\\", "\\\\"), "'", "''"))


def _in_quotes(texts: pa.Array) -> pa.Array:
    return pc.binary_join_element_wise("'", texts, "'", "")


def _arrow(texts: pl.Series) -> pa.Array:
    return texts.to_arrow().cast(pa.string())


def _advice(field: pa.Field, column: Column) -> str:
    of = field.type
    wanted = column_type(field, is_key=False)
    if pa.types.is_timestamp(of) and column.type in ("timestamp", "datetime"):
        zone = "a zone" if of.tz else "no zone"
        return f": a time with {zone} would be read as another one; make the column {wanted}"
    if pa.types.is_floating(of) and column.type == "float":
        return ": digits would be lost; make the column double"
    return f": make the column {wanted}, or cast in the job" if wanted else ": cast in the job"
