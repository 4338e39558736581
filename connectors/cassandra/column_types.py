"""Which Arrow type a type of Cassandra takes, and a column's values as its driver wants them. Pure."""

from __future__ import annotations

import uuid
from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

Values = tuple[list[Any], dict[int, str]]
"""A value for each row, and why rows have none, by their places."""

_WHOLE = {"tinyint": 8, "smallint": 16, "int": 32, "bigint": 64, "varint": 128}
_DAYS_BEFORE_1970 = 1 << 31
"""The server's dates are unsigned, and 1970-01-01 is in their middle."""


def takes(cql: str, of: pa.DataType) -> bool:
    """Whether each value of the Arrow type has its place in the type of Cassandra, and stays what it is. An
    instant may have more digits than the server keeps: that is seen value by value."""
    is_ = pa.types
    if inner := _within(cql, "frozen"):
        return takes(inner, of)
    if is_.is_list(of) or is_.is_large_list(of):
        element = _within(cql, "list")
        return _is_plain(element) and takes(element, of.value_type)
    if is_.is_map(of):
        parts = _parts(_within(cql, "map"))
        if len(parts) != 2 or not all(map(_is_plain, parts)):
            return False
        return takes(parts[0], of.key_type) and takes(parts[1], of.item_type)
    if is_.is_integer(of):
        bits = of.bit_width + is_.is_unsigned_integer(of)
        return bool(bits <= _WHOLE.get(cql, 0))
    if is_.is_timestamp(of):
        return cql == "timestamp" and of.tz is not None
    kinds: dict[str, Callable[[pa.DataType], bool]] = {
        "text": _is_text,
        "ascii": _is_text,
        "uuid": _is_text,
        "timeuuid": _is_text,
        "boolean": is_.is_boolean,
        "blob": lambda t: is_.is_binary(t) or is_.is_large_binary(t) or is_.is_fixed_size_binary(t),
        "float": lambda t: is_.is_float16(t) or is_.is_float32(t),
        "double": is_.is_floating,
        "decimal": is_.is_decimal,
        "date": is_.is_date,
        "time": is_.is_time,
    }
    return cql in kinds and bool(kinds[cql](of))


def doubles_when_repeated(cql: str) -> bool:
    """A list whose elements lie each by itself: the server gives each a place of its own at every write, so
    one that comes twice has all of them twice, whatever its version."""
    return cql.startswith("list<")


def values_of(cql: str, column: pa.Array) -> Values:
    """The column's values; None for null."""
    bare = _within(cql, "frozen") or cql
    is_ = pa.types
    if is_.is_timestamp(column.type):
        return _instants(column)
    if is_.is_date(column.type):
        days = column.cast(pa.date32()).cast(pa.int32()).cast(pa.int64())
        return pc.add(days, _DAYS_BEFORE_1970).to_pylist(), {}
    if is_.is_time(column.type):
        return column.cast(pa.time64("ns")).cast(pa.int64()).to_pylist(), {}
    if bare in ("uuid", "timeuuid"):
        return _one_by_one(column, lambda text: _uuid(text, bare))
    if bare == "ascii":
        return _one_by_one(column, _ascii)
    if is_.is_map(column.type):
        return [None if row is None else dict(row) for row in column.to_pylist()], {}
    return column.to_pylist(), {}


def _instants(column: pa.Array) -> Values:
    """The times in ms, as the server keeps them."""
    utc = column.cast(pa.timestamp(column.type.unit, "UTC"))
    whole = utc.cast(pa.timestamp("ms", "UTC"), safe=False)
    is_cut = pc.fill_null(pc.not_equal(whole.cast(utc.type), utc), False)
    bad = {
        n: f"{column[n]} has more than the milliseconds that Cassandra keeps: round it in the job"
        for n in pc.indices_nonzero(is_cut).to_pylist()
    }
    return whole.cast(pa.int64()).to_pylist(), bad


def _one_by_one(column: pa.Array, convert: Callable[[str], Any]) -> Values:
    values, bad = [], {}
    for n, text in enumerate(column.to_pylist()):
        try:
            values.append(None if text is None else convert(text))
        except ValueError as error:
            values.append(None)
            bad[n] = str(error)
    return values, bad


def _uuid(text: str, cql: str) -> uuid.UUID:
    """In its one form: two texts of one key would be two rows of one version."""
    try:
        value = uuid.UUID(text)
    except ValueError:
        raise ValueError(f"{text!r} is no uuid") from None
    if str(value) != text:
        raise ValueError(f"{text!r} is not how a uuid is written: {str(value)!r}")
    if cql == "timeuuid" and value.version != 1:
        raise ValueError(f"{text!r} is no uuid of version 1, which timeuuid wants")
    return value


def _ascii(text: str) -> str:
    if not text.isascii():
        raise ValueError(f"{text!r} is not ascii")
    return text


def _is_text(of: pa.DataType) -> bool:
    return bool(pa.types.is_string(of) or pa.types.is_large_string(of))


def _is_plain(cql: str) -> bool:
    """An element whose Python value is what the driver takes, and that no value is refused in."""
    return cql in (*_WHOLE, "text", "boolean", "blob", "float", "double", "decimal")


def _within(cql: str, name: str) -> str:
    """What stands between the brackets behind the name; empty if it is another type."""
    return cql[len(name) + 1 : -1] if cql.startswith(f"{name}<") else ""


def _parts(inner: str) -> list[str]:
    return [part.strip() for part in inner.split(",")] if inner else []
