"""Dicts as records of a type, also within each other, as a program writes them or json.loads gives them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from onceflow.runtime.nearest import nearest
from onceflow.runtime.types.value_types import (
    ListOf,
    MapOf,
    RecordField,
    RecordOf,
    RecordType,
    TupleOf,
    UnionOf,
    ValueType,
)


class UnfitDictError(Exception):
    """A dict that makes no record of its type: the message is a sentence about it."""


def record_of_dict(row: Mapping[str, Any], record: RecordType, within: str = "") -> Any:
    """The record; fields that are not there have the type's defaults. A field may have the name that it has
    in JSON. `within`: the field that the dict is in. Raises UnfitDictError, and what the type raises."""
    fields = _by_name(record)
    where = f"in {within!r} " if within else ""
    made = {}
    for name, value in row.items():
        if (field := fields.get(name)) is None:
            raise UnfitDictError(f"{where}{record.name} has no field {name!r}{nearest(str(name), fields)}")
        inner = f"{within}.{field.name}" if within else field.name
        made[field.keyword or field.name] = _value(value, field.type, inner)
    for field in record.fields:
        if field.default is None and not field.may_be_missing and (field.keyword or field.name) not in made:
            raise UnfitDictError(f"{where}{record.name} needs {field.name!r}, which is not there")
    return made if record.is_dict else record.of(**made)


def _by_name(record: RecordType) -> dict[str, RecordField]:
    names = {field.outside: field for field in record.fields if field.outside}
    return (
        names
        | {field.keyword or field.name: field for field in record.fields}
        | {field.name: field for field in record.fields}
    )


def _value(value: Any, of: ValueType, within: str) -> Any:
    """The value with the dicts in it made into records, where its type has records."""
    match of.kind, value:
        case RecordOf(record), dict():
            return record_of_dict(value, record, within)
        case UnionOf() as kind, dict():
            return _variant(value, kind, within)
        case ListOf(items), list() | tuple():
            return type(value)(_value(each, items, f"{within}[]") for each in value)
        case TupleOf(parts), tuple() if len(value) == len(parts):
            return tuple(_value(each, part, within) for each, part in zip(value, parts, strict=True))
        case MapOf(_, values), dict():
            return {key: _value(each, values, f"{within}[{key!r}]") for key, each in value.items()}
    return value


def _variant(value: dict[str, Any], kind: UnionOf, within: str) -> Any:
    tags = [tag for tag, _ in kind.variants]
    record = kind.record(str(value.get(kind.tag)))
    if record is None:
        raise UnfitDictError(
            f"in {within!r} {kind.tag!r} is {value.get(kind.tag)!r}, and has to be one of "
            f"{', '.join(map(repr, tags))}"
        )
    rest = value if kind.is_field else {name: each for name, each in value.items() if name != kind.tag}
    return record_of_dict(rest, record, within)
