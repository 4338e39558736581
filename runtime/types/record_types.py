"""What a Python type of the user's is, once and for all: columns, defaults, and how a record is made.

A type from the user's file travels to the slots by value. There its module is not to be found, so that
annotations which are text can't be resolved, and what `dataclasses` compares by identity may be a copy. So
everything about it is found out here, when the graph is built, and a slot works from the description alone.

docs/types.md has the table of types and their columns. What has no column that keeps every value of it is
refused here, in a sentence that names the type and the field.
"""

from __future__ import annotations

import types
import typing
from collections import namedtuple
from dataclasses import dataclass, replace
from typing import Any

import pyarrow as pa

from onceflow.runtime.errors import GraphError
from onceflow.runtime.types.annotations import Unwrapped, unwrapped
from onceflow.runtime.types.collection_types import CONTAINERS, MAPPINGS, key_problem
from onceflow.runtime.types.declared_fields import declared_record, is_record_type
from onceflow.runtime.types.hints import type_name
from onceflow.runtime.types.single_types import single_type
from onceflow.runtime.types.types_of_arrow import python_of_arrow
from onceflow.runtime.types.unions import union_type
from onceflow.runtime.types.value_types import (
    FormerName,
    ListOf,
    MapOf,
    RecordField,
    RecordOf,
    RecordType,
    TupleOf,
    ValueType,
)

_SUPPORTED = 'the page "Types" of the documents has the types that there are'


def describe_record(record_type: Any) -> RecordType:
    """A record type, resolved in its own module. Called where the graph is built.

    Raises GraphError naming the type and the field that is wrong or has no Arrow type.
    """
    return _record(record_type, ())


def describe_type(python_type: Any, where: str) -> ValueType:
    """A type of values. Raises GraphError that begins with `where`."""
    return _value(unwrapped(python_type, {}, where), _Place(where, ()))


def arrow_schema(record_type: Any) -> pa.Schema:
    """The columns of a record type, one for each field, in its order.

    Raises GraphError naming the type and the field for which there is no Arrow type.
    """
    return describe_record(record_type).schema


def arrow_type(python_type: Any, where: str) -> pa.DataType:
    """The Arrow type for values of a Python type. Raises GraphError that begins with `where`."""
    return describe_type(python_type, where).arrow


def record_class(schema: pa.Schema) -> type:
    """A named tuple for rows that have columns but no type of the user's."""
    return namedtuple("Record", schema.names, rename=True)


# --- Records --------------------------------------------------------------------------------------


def _record(record_type: Any, above: tuple[Any, ...]) -> RecordType:
    name = type_name(record_type)
    if not is_record_type(record_type):
        raise GraphError(
            f"{name} is not a record type: use a dataclass or a NamedTuple (or a TypedDict, or a class of "
            "attrs, pydantic or msgspec)"
        )
    if record_type in above:
        raise GraphError(f"{name} contains itself, which has no Arrow type: keep the id of the other record")
    declared = declared_record(record_type)
    fields = []
    for each in declared.fields:
        place = _Place(f"{name}.{each.name}", (*above, record_type))
        written = unwrapped(each.annotation, each.bound, place.where)
        found = _value(written, place)
        if each.may_be_missing:
            if found.nullable:
                raise GraphError(
                    f"{place.where} may be missing and may be None, which a column can't tell apart: leave "
                    "out one of them"
                )
            found = replace(found, nullable=True)
        fields.append(
            RecordField(
                each.name,
                found,
                each.default,
                each.by_keyword,
                each.outside,
                each.keyword,
                each.may_be_missing,
                _former_names(written),
            )
        )
    _refuse_one_name_twice(name, fields)
    _refuse_names_of_others(name, fields)
    is_immutable = declared.is_frozen and all(f.type.is_immutable for f in fields)
    return RecordType(declared.of, name, tuple(fields), is_immutable, declared.refuses_unknown)


def _refuse_one_name_twice(name: str, fields: list[RecordField]) -> None:
    seen: dict[str, str] = {}
    for field in fields:
        outside = field.outside or field.name
        if outside in seen:
            raise GraphError(f"{name}.{field.name} is called {outside!r} outside, as {seen[outside]} is")
        seen[outside] = field.name


def _former_names(written: Unwrapped) -> tuple[str, ...]:
    return tuple(name for note in written.notes if isinstance(note, FormerName) for name in note.names)


def _refuse_names_of_others(name: str, fields: list[RecordField]) -> None:
    """What was kept goes to one field only."""
    taken = {field.name: field.name for field in fields}
    for field in fields:
        for former in field.former_names:
            if taken.setdefault(former, field.name) != field.name or former == field.name:
                raise GraphError(
                    f"{name}.{field.name} has the former name {former!r}, which is that of "
                    f"{name}.{taken[former]}: a field has former names of its own, which no field has now"
                )


# --- Values ---------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Place:
    """What a sentence begins with, and the record types around."""

    where: str
    above: tuple[Any, ...]


def _value(of: Unwrapped, place: _Place) -> ValueType:
    python, said = of.python, type_name(of.python)
    if isinstance(python, pa.DataType):
        return replace(_value(of.inner(python_of_arrow(python, place.where), place.where), place), said=said)
    origin, args = typing.get_origin(python), typing.get_args(python)
    if (single := single_type(of, place.where)) is not None:
        return single
    if is_record_type(python):
        record = _record(python, place.above)
        arrow = pa.struct(list(record.schema))
        return ValueType(arrow, of.nullable, record.is_immutable, RecordOf(record), said)
    if origin is tuple:
        return _tuple(of, place)
    if origin in CONTAINERS:
        return _list(of, CONTAINERS[origin], args[0], place)
    if origin in MAPPINGS:
        return _map(of, place)
    if origin in (typing.Union, types.UnionType):
        inner = [of.inner(arg, place.where).python for arg in args]
        if all(map(is_record_type, inner)):
            return union_type([(each, _record(each, place.above)) for each in inner], of, place.where)
    raise GraphError(
        f"{place.where} is {_article(said)}, which has no Arrow type{_hint(python)}; {_SUPPORTED}"
    )


def _tuple(of: Unwrapped, place: _Place) -> ValueType:
    args = typing.get_args(of.python)
    if len(args) == 2 and args[1] is ...:
        return _list(of, "tuple", args[0], place)
    if not args:
        raise GraphError(f"{place.where} is an empty tuple, which has no Arrow type; {_SUPPORTED}")
    kind = TupleOf(tuple(_value(of.inner(arg, place.where), place) for arg in args))
    fields = [part.field(name) for name, part in zip(kind.names, kind.parts, strict=True)]
    is_immutable = all(part.is_immutable for part in kind.parts)
    return ValueType(pa.struct(fields), of.nullable, is_immutable, kind, type_name(of.python))


def _list(of: Unwrapped, container: Any, arg: Any, place: _Place) -> ValueType:
    items = _value(of.inner(arg, place.where), place)
    kind = ListOf(items, container)
    if kind.is_set and not items.is_immutable:
        raise GraphError(
            f"{place.where} is {_article(type_name(of.python))} of values that can change, which have no "
            "hash in Python: make them frozen"
        )
    is_immutable = container in ("tuple", "frozenset") and items.is_immutable
    return ValueType(pa.list_(items.field("item")), of.nullable, is_immutable, kind, type_name(of.python))


def _map(of: Unwrapped, place: _Place) -> ValueType:
    args = typing.get_args(of.python)
    keys, values = (_value(of.inner(arg, place.where), place) for arg in args)
    if problem := key_problem(keys):
        raise GraphError(f"{place.where} is {_article(type_name(of.python))}, {problem}")
    kind = MapOf(keys, values)
    arrow = pa.map_(keys.arrow, values.field("value"))
    return ValueType(arrow, of.nullable, False, kind, type_name(of.python))


def _hint(python: Any) -> str:
    if python in CONTAINERS or python in MAPPINGS or python is tuple:
        return f": say of what, as in {python.__name__}[{'str, int' if python in MAPPINGS else 'str'}]"
    if typing.get_origin(python) in (typing.Union, types.UnionType):
        return ": there are unions of record types, and X | None"
    return ""


def _article(said: str) -> str:
    return f"{'an' if said[:1].lower() in 'aeiou' else 'a'} {said}"
