"""What a type that the program declares is made of, as far as it matters to what was kept before."""

from __future__ import annotations

from collections.abc import Container, Sequence
from dataclasses import dataclass

import pyarrow as pa

from onceflow.runtime.types.value_types import (
    ListOf,
    MapOf,
    RecordField,
    RecordOf,
    TupleOf,
    UnionOf,
    ValueType,
)


@dataclass(frozen=True, slots=True)
class Fields:
    """The fields of a struct. `may_lose`: whether one that was kept may be left out. Of a union or a tuple
    none may: what is left would be another value."""

    fields: Sequence[RecordField]
    may_lose: bool


def fields_of(of: ValueType) -> Fields | None:
    """The fields of a type that is kept as a struct; None: it is kept as something else."""
    match of.kind:
        case RecordOf(record):
            return Fields(record.fields, may_lose=True)
        case TupleOf(parts):
            named = zip(of.kind.names, parts, strict=True)
            return Fields([_required(name, part) for name, part in named], may_lose=False)
        case UnionOf():
            return Fields([_of_union(of.kind, field) for field in of.arrow], may_lose=False)
    if pa.types.is_struct(of.arrow):
        return Fields([_required(field.name, type_of_field(field)) for field in of.arrow], may_lose=True)
    return None


def item_of(of: ValueType) -> ValueType | None:
    """The type of the items of what is kept as a list; None: it is kept as something else."""
    if isinstance(of.kind, ListOf):
        return of.kind.items
    is_list = pa.types.is_list(of.arrow) or pa.types.is_large_list(of.arrow)
    return type_of_field(of.arrow.value_field) if is_list and not isinstance(of.kind, MapOf) else None


def map_of(of: ValueType) -> tuple[ValueType, ValueType] | None:
    """The types of the keys and the values of what is kept as a map, or as a list of entries that are structs
    of key and value; None: it is kept as something else."""
    if isinstance(of.kind, MapOf):
        return of.kind.keys, of.kind.values
    if pa.types.is_map(of.arrow):
        return type_of_field(of.arrow.key_field), type_of_field(of.arrow.item_field)
    return None


def kept_name(field: RecordField, kept: Container[str]) -> str | None:
    """The name under which a field was kept, of these: its own, or else the first of its former names that is
    there. None: it was not kept."""
    return next((name for name in (field.name, *field.former_names) if name in kept), None)


def type_of_field(field: pa.Field) -> ValueType:
    """A column as the type of its values, where no type of the user's is known."""
    return ValueType(field.type, field.nullable, is_immutable=True)


def _required(name: str, of: ValueType) -> RecordField:
    return RecordField(name, of, None, by_keyword=False)


def _of_union(union: UnionOf, field: pa.Field) -> RecordField:
    record = None if field.name == union.tag else union.record(field.name)
    if record is None:
        return _required(field.name, type_of_field(field))
    return _required(field.name, ValueType(field.type, field.nullable, record.is_immutable, RecordOf(record)))
