"""Values as msgspec decodes them, one by one, to what Arrow takes for them."""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any
from zoneinfo import ZoneInfo

import msgspec
import pyarrow as pa

from onceflow.connectors.formats.json.structs import Reading, Ready
from onceflow.runtime.types.encoding import WrongValueError, fitting_decimal, in_order_once
from onceflow.runtime.types.value_types import (
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

Convert = Callable[[Any], Any]


def converter(of: ValueType, reading: Reading) -> Convert | None:
    """The function for values of this type, None excepted; None where there is nothing to do. It raises
    WrongValueError for what is not a value of the type after all."""
    match of.kind:
        case Plain():
            return zoned(of.arrow, reading.zone)
        case Decimals():
            return partial(fitting_decimal, kind=of.kind)
        case Uuid():
            return str
        case JsonValue():
            return lambda value: msgspec.json.encode(value).decode()
        case ListOf(items):
            return _list(of.kind, converter(items, reading))
        case TupleOf(parts):
            named = zip(of.kind.names, [_inner(part, reading) for part in parts], strict=True)
            return _tuple(list(named))
        case MapOf(keys, values):
            key, item = _inner(keys, reading), _inner(values, reading)
            return lambda pairs: [(key(k), item(v)) for k, v in pairs.items()]
        case RecordOf(record):
            return _record(record, reading, None)
        case UnionOf(tag):
            return _union(tag, {name: _record(r, reading, tag) for name, r in of.kind.variants}, of.kind)
    return None


def zoned(arrow: pa.DataType, zone: ZoneInfo | None) -> Convert | None:
    """For builtin values of this Arrow type: makes times without an offset those of the zone. None: there
    are none."""
    if zone is None:
        return None
    is_ = pa.types
    if is_.is_timestamp(arrow):
        return None if arrow.tz is None else partial(_in_zone, zone=zone)
    if is_.is_list(arrow) or is_.is_large_list(arrow):
        item = zoned(arrow.value_type, zone)
        return None if item is None else lambda values: [None if v is None else item(v) for v in values]
    if is_.is_map(arrow):
        value = zoned(arrow.item_type, zone)
        if value is None:
            return None
        return lambda pairs: {k: None if v is None else value(v) for k, v in pairs.items()}
    if is_.is_struct(arrow):
        fields = {field.name: convert for field in arrow if (convert := zoned(field.type, zone))}
        return partial(_zoned_fields, fields=fields) if fields else None
    return None


def _zoned_fields(value: dict[str, Any], fields: Mapping[str, Convert]) -> dict[str, Any]:
    changed = {n: convert(value[n]) for n, convert in fields.items() if value[n] is not None}
    return {**value, **changed}


def _in_zone(value: dt.datetime, zone: ZoneInfo) -> dt.datetime:
    if value.tzinfo is not None:
        return value
    first, second = value.replace(tzinfo=zone), value.replace(tzinfo=zone, fold=1)
    if first.utcoffset() == second.utcoffset():
        return first
    if first.astimezone(dt.UTC).astimezone(zone).replace(tzinfo=None) != value:
        raise WrongValueError(f"{value.isoformat()} is skipped by the clocks of {zone.key}")
    raise WrongValueError(f"{value.isoformat()} comes twice in {zone.key}: it needs an offset")


def _inner(of: ValueType, reading: Reading) -> Convert:
    convert = converter(of, reading)

    def inner(value: Any) -> Any:
        if isinstance(value, Ready):
            return value.plain
        return value if value is None or convert is None else convert(value)

    return inner


def _list(kind: ListOf, item: Convert | None) -> Convert | None:
    each = None if item is None else lambda values: [None if v is None else item(v) for v in values]
    if not kind.is_set:
        return each
    return in_order_once if each is None else lambda values: in_order_once(each(values))


def _tuple(parts: list[tuple[str, Convert]]) -> Convert:
    return lambda values: {name: part(value) for (name, part), value in zip(parts, values, strict=True)}


def _record(record: RecordType, reading: Reading, tag: str | None) -> Convert:
    """`tag`: the field of the record that has no attribute, since it is the tag of a union."""
    fields = [
        (field.name, f"f{index}", _inner(field.type, reading))
        for index, field in enumerate(record.fields)
        if field.name != tag
    ]
    return lambda value: {name: inner(getattr(value, attribute)) for name, attribute, inner in fields}


def _union(tag: str, records: Mapping[str, Convert], kind: UnionOf) -> Convert:
    def convert(value: Any) -> dict[str, Any]:
        name = type(value).__struct_config__.tag
        found = records[name](value)
        if kind.is_field:
            found[tag] = name
        return {tag: name} | dict.fromkeys(records) | {name: found}

    return convert
