"""Unions of record types: how a value tells which of them it is.

By a tag, as pydantic and msgspec have it: a field with a Literal of its own in each type, or the tag of a
msgspec.Struct. The column is a struct of the tag and a nullable struct for each type.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pyarrow as pa

from onceflow.runtime.errors import GraphError
from onceflow.runtime.types.annotations import Unwrapped
from onceflow.runtime.types.declared_fields import declared_record
from onceflow.runtime.types.hints import type_name
from onceflow.runtime.types.value_types import Choice, RecordType, UnionOf, ValueType

Records = Sequence[tuple[Any, RecordType]]
"""The types of a union, each with its description."""


def union_type(records: Records, of: Unwrapped, where: str) -> ValueType:
    """The type of values of these record types. Raises GraphError, beginning with `where`, if nothing tells
    them apart."""
    kind = _by_msgspec(records) or _by_field(records, _discriminator(of.notes))
    if kind is None:
        names = " and ".join(type_name(python) for python, _ in records)
        raise GraphError(
            f"{where} is a union of {names}, which nothing tells apart: give each a field of the same name "
            'with a Literal of its own, as in `kind: Literal["order"]`'
        )
    tags = [tag for tag, _ in kind.variants]
    if kind.tag in tags:
        raise GraphError(f"{where} is a union in which {kind.tag!r} is a tag and the tag's field: rename one")
    fields = [pa.field(kind.tag, pa.string(), nullable=False)]
    fields += [pa.field(tag, pa.struct(list(record.schema))) for tag, record in kind.variants]
    is_immutable = all(record.is_immutable for _, record in kind.variants)
    return ValueType(pa.struct(fields), of.nullable, is_immutable, kind, type_name(of.python))


def _by_msgspec(records: Records) -> UnionOf | None:
    tags = [declared_record(python).tag for python, _ in records]
    fields, names = {tag and tag[0] for tag in tags}, [tag and tag[1] for tag in tags]
    if len(fields) > 1 or not all(isinstance(name, str) for name in names) or len(set(names)) < len(names):
        return None
    variants = zip(names, (record for _, record in records), strict=True)
    return UnionOf(str(fields.pop()), tuple((str(name), record) for name, record in variants), False)


def _by_field(records: Records, discriminator: str | None) -> UnionOf | None:
    first = records[0][1]
    for name in [field.name for field in first.fields] if discriminator is None else [discriminator]:
        tags = [_tag(record, name) for _, record in records]
        if None not in tags and len(set(tags)) == len(tags):
            variants = zip(tags, (record for _, record in records), strict=True)
            return UnionOf(name, tuple((str(tag), record) for tag, record in variants), True)
    return None


def _tag(record: RecordType, name: str) -> str | None:
    """The only text that the field can be, if it is so."""
    field = record.field(name)
    if field is None or field.type.nullable or field.outside:
        return None
    kind = field.type.kind
    if (
        isinstance(kind, Choice)
        and kind.enum is None
        and len(kind.values) == 1
        and isinstance(kind.values[0], str)
    ):
        return kind.values[0]
    return None


def _discriminator(notes: tuple[Any, ...]) -> str | None:
    """The tag's field that pydantic was told."""
    found = [note.discriminator for note in notes if isinstance(getattr(note, "discriminator", None), str)]
    return found[-1] if found else None
