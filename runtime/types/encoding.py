"""Values of the user's types, one by one, to what Arrow takes for them. `decoding.py` is the way back.

A slot makes the function for a type from its description. Columns of plain values don't come here
(`ValueType.is_plain`). None is left to the caller, at the top; inside of a value it is looked at here.
"""

from __future__ import annotations

import datetime as dt
import uuid
from collections.abc import Callable, Mapping, Sequence
from decimal import Context, Decimal, Inexact, InvalidOperation
from functools import partial
from typing import Any

import msgspec

from onceflow.runtime.types.each_called import called_for_each
from onceflow.runtime.types.kinds_taken import check_kinds
from onceflow.runtime.types.value_types import (
    DECIMAL_PRECISION,
    Choice,
    Clock,
    Decimals,
    JsonValue,
    ListOf,
    MapOf,
    Plain,
    RecordField,
    RecordOf,
    RecordType,
    TupleOf,
    UnionOf,
    Uuid,
    ValueType,
)

Convert = Callable[[Any], Any]
_DECIMALS = Context(prec=DECIMAL_PRECISION, traps=[Inexact, InvalidOperation])


class WrongValueError(ValueError):
    """A value that its type does not have; the message is the end of a sentence about it."""


def encoder(of: ValueType) -> Convert:
    """Raises WrongValueError or TypeError for what is not a value of the type, or would be changed."""
    return _ENCODERS[type(of.kind)](of)


def encode_inner(of: ValueType, what: str) -> Convert:
    """The same for a value inside of another, which may be None only where that is declared. `what`: its
    name there."""
    encode = encoder(of)

    def inner(value: Any) -> Any:
        if value is not None:
            return encode(value)
        if of.nullable:
            return None
        raise WrongValueError(f"its {what} is None, but is declared without None")

    return inner


def _instance_of(*types: type) -> Convert:
    def check(value: Any) -> Any:
        if not isinstance(value, types):
            raise WrongValueError(f"a {type(value).__name__} is no {types[0].__name__}")
        return value

    return check


def _checked(of: ValueType) -> Convert:
    def check(value: Any) -> Any:
        check_kinds([value], of.arrow)
        return value

    return check


def _time(value: Any) -> Any:
    if not isinstance(value, dt.time):
        raise WrongValueError(f"a {type(value).__name__} is not a time")
    if value.tzinfo is not None:
        raise WrongValueError("a time with a zone has no column: leave the zone out")
    return value


def _uuid(value: Any) -> str:
    if not isinstance(value, uuid.UUID):
        raise WrongValueError(f"a {type(value).__name__} is no UUID")
    return str(value)


def fitting_decimal(value: Any, kind: Decimals) -> Decimal:
    """The same number with so many digits behind the point. Raises WrongValueError if it has more."""
    if isinstance(value, bool) or not isinstance(value, Decimal | int):
        raise WrongValueError(f"a {type(value).__name__} is no Decimal")
    try:
        if not Decimal(value).is_finite():
            raise WrongValueError(f"there is no column for {value}")
        fitting = _DECIMALS.quantize(Decimal(value), Decimal((0, (1,), -kind.scale)))
    except (Inexact, InvalidOperation):
        fitting = None
    if fitting is None or len(fitting.as_tuple().digits) > kind.precision:
        raise WrongValueError(
            f"{value} does not fit {kind.precision - kind.scale} digits before and {kind.scale} behind the "
            "point: round it, or say another scale, as in Annotated[Decimal, Scale(4)]"
        )
    return fitting


def _choice(values: Sequence[Any]) -> Convert:
    kind, known = type(values[0]), set(values)

    def check(value: Any) -> Any:
        if type(value) is not kind or value not in known:
            raise WrongValueError(f"it is none of {', '.join(map(repr, values))}")
        return value

    return check


def _member(enum: Any) -> Convert:
    def value_of(value: Any) -> Any:
        if not isinstance(value, enum):
            raise WrongValueError(f"a {type(value).__name__} is no {enum.__name__}")
        return value.value

    return value_of


def json_text(value: Any) -> str:
    """A value of Any as JSON. Raises WrongValueError for what JSON would not give back."""
    _check_json(value)
    return msgspec.json.encode(value).decode()


def _check_json(value: Any) -> None:
    if value is None or type(value) in (bool, int, str):
        return
    if type(value) is float:
        if value - value != 0:
            raise WrongValueError(f"JSON has no {value}")
    elif type(value) is list:
        for item in value:
            _check_json(item)
    elif type(value) is dict:
        for key, item in value.items():
            if type(key) is not str:
                raise WrongValueError(f"the keys of JSON are text, and not {key!r}")
            _check_json(item)
    else:
        raise WrongValueError(
            f"a {type(value).__name__} inside of Any: JSON gives back None, bool, int, float, str, list and "
            "dict only"
        )


def _encode_list(kind: ListOf) -> Convert:
    item = encode_inner(kind.items, "item")
    taken: tuple[type, ...] = {
        "list": (list, tuple),
        "tuple": (tuple,),
        "set": (set, frozenset),
        "frozenset": (frozenset, set),
    }[kind.container]
    check = _instance_of(*taken)
    if kind.is_set:
        return lambda values: in_order_once(called_for_each(item, check(values)))
    return lambda values: called_for_each(item, check(values))


def in_order_once(values: list[Any]) -> list[Any]:
    """The values of a set, as Arrow takes them, in the order in which its column has them."""
    found = sorted(values, key=order_of)
    return [value for i, value in enumerate(found) if not i or order_of(value) != order_of(found[i - 1])]


def order_of(value: Any) -> Any:
    """A key by which any two values of one type are in the same order, whatever they were made of. NaN comes
    last, and null first."""
    if value is None:
        return (0,)
    if isinstance(value, dict):
        return (1, tuple(map(order_of, value.values())))
    if isinstance(value, list | tuple):
        return (1, tuple(map(order_of, value)))
    if isinstance(value, float):
        return (2,) if value != value else (1, value)
    return (1, value)


def _encode_tuple(kind: TupleOf) -> Convert:
    parts = [(name, encode_inner(part, name)) for name, part in zip(kind.names, kind.parts, strict=True)]
    check = _instance_of(tuple)

    def encode(values: Any) -> Any:
        if len(check(values)) != len(parts):
            raise WrongValueError(f"it has {len(values)} places, and {len(parts)} are declared")
        return {name: part(value) for (name, part), value in zip(parts, values, strict=True)}

    return encode


def _encode_map(kind: MapOf) -> Convert:
    key, item = encode_inner(kind.keys, "key"), encode_inner(kind.values, "value")
    check = _instance_of(dict, Mapping)
    return lambda values: [(key(k), item(v)) for k, v in check(values).items()]


def _encode_record(record: RecordType) -> Convert:
    fields = [(f.name, field_getter(record, f), encode_inner(f.type, f.name)) for f in record.fields]
    if record.is_dict:
        known = {field.name for field in record.fields}

        def encode_dict(value: Any) -> Any:
            if not isinstance(value, dict):
                raise WrongValueError(f"a {type(value).__name__} is no {record.name}")
            if strange := value.keys() - known:
                raise WrongValueError(f"{record.name} has no {min(map(repr, strange))}")
            return {name: encode(get(value)) for name, get, encode in fields}

        return encode_dict

    def encode(value: Any) -> Any:
        return {name: encode(get(value)) for name, get, encode in fields}

    return encode


def field_getter(record: RecordType, field: RecordField) -> Convert:
    """A function from a record to the field. It raises WrongValueError if there is none."""
    name = field.name
    if record.is_dict:
        if field.may_be_missing:
            return lambda value: value.get(name)
        return lambda value: _found(value.get(name, _MISSING), value, name)
    return lambda value: _found(getattr(value, name, _MISSING), value, name)


_MISSING = object()


def _found(found: Any, value: Any, name: str) -> Any:
    if found is _MISSING:
        raise WrongValueError(f"a {type(value).__name__} without {name!r}")
    return found


def _encode_union(kind: UnionOf) -> Convert:
    encoders = {tag: _encode_record(record) for tag, record in kind.variants}
    classes = {record.of: tag for tag, record in kind.variants}

    def tag_of(value: Any) -> Any:
        if not kind.is_field:
            return classes.get(type(value))
        return value.get(kind.tag) if isinstance(value, dict) else getattr(value, kind.tag, None)

    def encode(value: Any) -> Any:
        tag = tag_of(value)
        if tag not in encoders:
            raise WrongValueError(f"a {type(value).__name__} is none of its types, {', '.join(encoders)}")
        return {kind.tag: tag} | dict.fromkeys(encoders) | {tag: encoders[tag](value)}

    return encode


_ENCODERS: dict[type, Callable[[Any], Convert]] = {
    Plain: _checked,
    Clock: lambda of: _time if of.kind.of == "time" else _instance_of(dt.timedelta),
    Decimals: lambda of: partial(fitting_decimal, kind=of.kind),
    Choice: lambda of: _choice(of.kind.values) if of.kind.enum is None else _member(of.kind.enum),
    Uuid: lambda of: _uuid,
    JsonValue: lambda of: json_text,
    ListOf: lambda of: _encode_list(of.kind),
    TupleOf: lambda of: _encode_tuple(of.kind),
    MapOf: lambda of: _encode_map(of.kind),
    RecordOf: lambda of: _encode_record(of.kind.record),
    UnionOf: lambda of: _encode_union(of.kind),
}
