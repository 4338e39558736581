"""Values as Arrow gives them, one by one, to values of the user's types; and what may come in as one.

`decoder` makes the function for a type from its description, None where there is nothing to do. `admitter` is
for values that came from outside, as Arrow has them: it tells whether one is a value of the type, and gives
it as `encoding.encoder` would have, without making an object of the user's.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Sequence
from decimal import Context, Decimal
from typing import Any

import msgspec

from onceflow.runtime.types.encoding import WrongValueError, in_order_once, json_text
from onceflow.runtime.types.record_making import record_call
from onceflow.runtime.types.value_types import (
    DECIMAL_PRECISION,
    Choice,
    Decimals,
    JsonValue,
    ListOf,
    MapOf,
    RecordOf,
    RecordType,
    TupleOf,
    UnionOf,
    Uuid,
    ValueType,
)

Convert = Callable[[Any], Any]
_EXACT = Context(prec=DECIMAL_PRECISION)
_CONTAINERS: dict[str, Convert] = {"tuple": tuple, "set": set, "frozenset": frozenset}


def decoder(of: ValueType) -> Convert | None:
    """The function for what `to_pylist` gives, None excepted. It raises WrongValueError for what is no value
    of the type, and whatever a class of the user's raises."""
    match of.kind:
        case Decimals(is_stated=is_stated):
            return None if is_stated else without_zeros
        case Choice(values, enum):
            return _known(values, values if enum is None else list(map(enum, values)))
        case Uuid():
            return uuid.UUID
        case JsonValue():
            return json_value
        case ListOf(items, container):
            return _decode_list(decoder(items), _CONTAINERS.get(container))
        case TupleOf(parts):
            return _decode_tuple(of.kind, [decoder(part) for part in parts])
        case MapOf(keys, values):
            return _decode_map(decoder(keys) or _same, decoder(values) or _same)
        case RecordOf(record):
            return _decode_record(record)
        case UnionOf(tag, variants):
            return _decode_union(tag, {name: _decode_record(record) for name, record in variants})
    return None


def record_making_call(record: RecordType) -> Callable[..., Any]:
    """What makes a record of its fields by position."""
    names = [field.keyword or field.name for field in record.fields]
    by_keyword = [field.keyword or field.name for field in record.fields if field.by_keyword]
    left_out = [field.name for field in record.fields if field.may_be_missing]
    return record_call(record.of, names, by_keyword, left_out)


def json_value(text: str | bytes) -> Any:
    """The value of Any that is kept as this text. Raises WrongValueError for what is no JSON."""
    try:
        return msgspec.json.decode(text)
    except (msgspec.DecodeError, UnicodeError, RecursionError) as error:
        raise WrongValueError(f"it is no JSON: {error}") from error


def without_zeros(value: Decimal) -> Decimal:
    """The same number where a column's scale is not the user's: 1.5 and 100, not 1.500 and 1E+2."""
    plain = _EXACT.normalize(value)
    exponent = plain.as_tuple().exponent
    return _EXACT.quantize(plain, Decimal(1)) if isinstance(exponent, int) and exponent > 0 else plain


def _known(values: Sequence[Any], decoded: Sequence[Any]) -> Convert:
    by_value = dict(zip(values, decoded, strict=True))

    def find(value: Any) -> Any:
        try:
            return by_value[value]
        except KeyError:
            raise WrongValueError(f"{value!r} is none of {', '.join(map(repr, values))}") from None

    return find


def _decode_list(item: Convert | None, container: Convert | None) -> Convert | None:
    if item is None:
        return container
    each = _each(item)
    return each if container is None else lambda values: container(each(values))


def _each(convert: Convert) -> Convert:
    return lambda values: [None if v is None else convert(v) for v in values]


def _decode_tuple(kind: TupleOf, parts: Sequence[Convert | None]) -> Convert:
    named = [(name, part or _same) for name, part in zip(kind.names, parts, strict=True)]
    return lambda value: tuple(None if value[n] is None else part(value[n]) for n, part in named)


def _decode_map(key: Convert, item: Convert) -> Convert:
    return lambda pairs: {key(k): None if v is None else item(v) for k, v in pairs}


def _decode_record(record: RecordType) -> Convert:
    fields = [(field.name, decoder(field.type) or _same) for field in record.fields]
    new = record_making_call(record)
    return lambda v: new(*(None if v[n] is None else as_type(v[n]) for n, as_type in fields))


def _decode_union(tag: str, decoders: dict[str, Convert]) -> Convert:
    return lambda value: decoders[value[tag]](value[value[tag]])


def _same(value: Any) -> Any:
    return value


# --- Values from outside --------------------------------------------------------------------------


def admitter(of: ValueType) -> Convert | None:
    """The function for values from outside, None excepted; None if Arrow's type already says it all. It
    raises WrongValueError."""
    match of.kind:
        case Choice(values):
            return _known(values, values)
        case Uuid():
            return _uuid_text
        case JsonValue():
            return lambda text: json_text(json_value(text))
        case ListOf(items):
            return _admit_list(of.kind, admitter(items))
        case TupleOf(parts):
            return _admit_struct(dict(zip(of.kind.names, map(admitter, parts), strict=True)))
        case MapOf(keys, values):
            return _admit_map(admitter(keys), admitter(values))
        case RecordOf(record):
            return _admit_struct({field.name: admitter(field.type) for field in record.fields})
        case UnionOf():
            return _admit_union(of.kind)
    return None


def _uuid_text(value: str) -> str:
    try:
        return str(uuid.UUID(value))
    except ValueError as error:
        raise WrongValueError(f"{value!r} is no UUID") from error


def _admit_list(kind: ListOf, item: Convert | None) -> Convert | None:
    each = None if item is None else _each(item)
    if not kind.is_set:
        return each

    return in_order_once if each is None else lambda values: in_order_once(each(values))


def _admit_map(key: Convert | None, item: Convert | None) -> Convert | None:
    if key is None and item is None:
        return None
    key, item = key or _same, item or _same
    return lambda pairs: [(key(k), None if v is None else item(v)) for k, v in pairs]


def _admit_struct(fields: dict[str, Convert | None]) -> Convert | None:
    special = {name: convert for name, convert in fields.items() if convert is not None}
    if not special:
        return None

    def admit(value: dict[str, Any]) -> dict[str, Any]:
        changed = {n: convert(value[n]) for n, convert in special.items() if value[n] is not None}
        return {**value, **changed}

    return admit


def _admit_union(kind: UnionOf) -> Convert:
    admitters = {
        tag: _admit_struct({field.name: admitter(field.type) for field in record.fields}) or _same
        for tag, record in kind.variants
    }

    def admit(value: dict[str, Any]) -> dict[str, Any]:
        tag = value[kind.tag]
        if tag not in admitters or value[tag] is None:
            raise WrongValueError(f"the tag {tag!r} is none of {', '.join(admitters)}, or has no record")
        return {kind.tag: tag} | dict.fromkeys(admitters) | {tag: admitters[tag](value[tag])}

    return admit
