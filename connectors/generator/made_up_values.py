"""Made-up values of a user's type, for columns of which nothing is said, the same for the same name. Pure."""

from __future__ import annotations

import datetime as dt
import uuid
from decimal import Decimal
from typing import Any

import pyarrow as pa

from onceflow.runtime.types.decoding import record_making_call
from onceflow.runtime.types.value_types import (
    Choice,
    Clock,
    Decimals,
    JsonValue,
    ListOf,
    MapOf,
    Plain,
    RecordOf,
    RecordType,
    TupleOf,
    UnionOf,
    Uuid,
    ValueType,
)

_VALUES = 10
_ITEMS_MAX = 3
_BEGIN = dt.datetime(2026, 1, 1, tzinfo=dt.UTC)


def values_of(of: ValueType, name: str) -> list[Any]:
    """Some values of the type, as a user's program has them. Raises what a class of the user's raises that
    does not take them."""
    return [_value(of, name, n) for n in range(1, _VALUES + 1)]


def _value(of: ValueType, name: str, n: int) -> Any:
    match of.kind:
        case Plain():
            return _plain(of.arrow, name, n)
        case Clock("time"):
            return dt.time(n % 24, n)
        case Clock():
            return dt.timedelta(seconds=n)
        case Decimals(scale=scale):
            return Decimal(n).scaleb(-min(scale, 1))
        case Choice(values, enum):
            choices: list[Any] = list(values if enum is None else enum)
            return choices[n % len(choices)]
        case Uuid():
            return uuid.uuid5(uuid.NAMESPACE_OID, f"{name}-{n}")
        case JsonValue():
            return {name: n}
        case _:
            return _of_several(of, name, n)


def _of_several(of: ValueType, name: str, n: int) -> Any:
    match of.kind:
        case ListOf(items, container):
            made = [_value(items, name, n + i) for i in range(n % (_ITEMS_MAX + 1))]
            return {"list": list, "tuple": tuple, "set": set, "frozenset": frozenset}[container](made)
        case TupleOf(parts):
            return tuple(_value(part, name, n) for part in parts)
        case MapOf(keys, values):
            count = n % (_ITEMS_MAX + 1)
            return {_value(keys, name, n + i): _value(values, name, n + i) for i in range(count)}
        case RecordOf(record):
            return _record(record, n)
        case UnionOf(variants=variants):
            return _record(variants[n % len(variants)][1], n)
    raise TypeError(f"there are no values of {of.said}")


def _record(record: RecordType, n: int) -> Any:
    return record_making_call(record)(*(_value(field.type, field.name, n) for field in record.fields))


def _plain(arrow: pa.DataType, name: str, n: int) -> Any:
    if pa.types.is_integer(arrow):
        return n
    if pa.types.is_floating(arrow):
        return n / _VALUES
    if pa.types.is_boolean(arrow):
        return n % 2 == 1
    if pa.types.is_timestamp(arrow):
        return _BEGIN + dt.timedelta(minutes=n)
    if pa.types.is_date(arrow):
        return _BEGIN.date() + dt.timedelta(days=n)
    return f"{name}-{n}".encode() if pa.types.is_binary(arrow) else f"{name}-{n}"
