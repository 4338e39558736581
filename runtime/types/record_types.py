"""What a Python type of the user's is, once and for all: columns, defaults, and how a record is made.

A type from the user's file travels to the slots by value. There its module is not to be found, so that
annotations which are text can't be resolved, and what `dataclasses` compares by identity may be a copy. So
everything about it is found out here, when the graph is built, and a slot works from the description alone.

A record type is a dataclass or a NamedTuple; each field is a column:

    str, int, float, bool, bytes     string, int64, double, bool, binary
    datetime, date                   timestamp[ms, UTC] (a naive datetime is taken as UTC), date32
    X | None, Optional[X]            the same, nullable
    list[X], dict[str, X]            list, map
    a record type                    struct
"""

from __future__ import annotations

import dataclasses
import datetime as dt
import types
import typing
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from onceflow.runtime.errors import GraphError

PLAIN: Mapping[Any, pa.DataType] = {
    str: pa.string(),
    int: pa.int64(),
    float: pa.float64(),
    bool: pa.bool_(),
    bytes: pa.binary(),
    dt.datetime: pa.timestamp("ms", "UTC"),
    dt.date: pa.date32(),
}
"""Types of single values and their Arrow types."""

_SUPPORTED = "str, int, float, bool, bytes, datetime, date, X | None, list[X], dict[str, X] and record types"


@dataclass(frozen=True, slots=True)
class Default:
    """What a field is if nothing is given for it: a value, or what a function of the user's makes."""

    value: Any = None
    factory: Callable[[], Any] | None = None

    def make(self) -> Any:
        return self.value if self.factory is None else self.factory()


@dataclass(frozen=True, slots=True)
class ValueType:
    """A type of values. `items`: of a list, or the values of a map; `record`: the type of a struct."""

    arrow: pa.DataType
    nullable: bool
    is_immutable: bool
    """No code can change a value in place."""
    items: ValueType | None = None
    record: RecordType | None = None

    def field(self, name: str) -> pa.Field:
        return pa.field(name, self.arrow, self.nullable)


@dataclass(frozen=True, slots=True)
class RecordField:
    """A field that is given when a record is made. `default`: None if it must be."""

    name: str
    type: ValueType
    default: Default | None
    by_keyword: bool
    """Whether only a keyword says which field it is: it is keyword-only, or comes after an InitVar."""


@dataclass(frozen=True, slots=True)
class RecordType:
    """A record type, described. Picklable with the type itself, which is called and never looked into."""

    of: type
    fields: tuple[RecordField, ...]
    is_immutable: bool

    @property
    def schema(self) -> pa.Schema:
        """The columns, one for each field, in its order."""
        return pa.schema([field.type.field(field.name) for field in self.fields])

    @property
    def defaults(self) -> dict[str, Default]:
        """The defaults of the fields that may be missing, by name."""
        return {field.name: field.default for field in self.fields if field.default is not None}

    def field(self, name: str) -> RecordField | None:
        return next((field for field in self.fields if field.name == name), None)


def is_record_type(value: object) -> bool:
    """A dataclass or a NamedTuple with annotated fields."""
    if not isinstance(value, type):
        return False
    return dataclasses.is_dataclass(value) or (issubclass(value, tuple) and hasattr(value, "_fields"))


def type_name(python_type: Any) -> str:
    """How a type is called in a sentence: `int`, `list[str]`, `Purchase`."""
    plain = isinstance(python_type, type) and not typing.get_args(python_type)
    return str(python_type.__name__ if plain else python_type)


def describe_record(record_type: type) -> RecordType:
    """A record type, resolved in its own module. Called where the graph is built.

    Raises GraphError naming the type and the field that is wrong or has no Arrow type.
    """
    return _record(record_type, ())


def describe_type(python_type: Any, where: str) -> ValueType:
    """A type of values. Raises GraphError that begins with `where`."""
    return _value(python_type, where, ())


def _record(record_type: Any, above: tuple[type, ...]) -> RecordType:
    if not is_record_type(record_type):
        raise GraphError(f"{type_name(record_type)} is no record type: use a dataclass or a NamedTuple")
    name = record_type.__name__
    if record_type in above:
        raise GraphError(f"{name} contains itself, which has no Arrow type: keep the id of the other record")
    hints = _hints(record_type)
    fields = []
    for each, default, by_keyword in _declared(record_type):
        if each not in hints:
            raise GraphError(f"{name}.{each} has no type: annotate the field")
        value = _value(hints[each], f"{name}.{each}", (*above, record_type))
        fields.append(RecordField(each, value, default, by_keyword))
    settings: Any = getattr(record_type, "__dataclass_params__", None)
    is_frozen = settings is None or bool(settings.frozen)
    return RecordType(record_type, tuple(fields), is_frozen and all(f.type.is_immutable for f in fields))


def _hints(record_type: type) -> Mapping[str, Any]:
    try:
        return typing.get_type_hints(record_type)
    except NameError as error:
        raise GraphError(
            f"{record_type.__name__} has an annotation that can't be resolved: {error}; "
            "define the type at the top level of its module"
        ) from error


def _declared(record_type: Any) -> list[tuple[str, Default | None, bool]]:
    """Name, default, and whether it is given by keyword, of each field that is given."""
    name = record_type.__name__
    if not dataclasses.is_dataclass(record_type):
        given: Mapping[str, Any] = getattr(record_type, "_field_defaults", {})
        return [(n, Default(given[n]) if n in given else None, False) for n in record_type._fields]
    found = []
    is_behind_init_var = False
    of_class: Mapping[str, Any] = record_type.__dataclass_fields__  # with those that fields() leaves out
    named = {field.name for field in dataclasses.fields(record_type)}
    for field in of_class.values():
        default = _default(field)
        if field.name in named and field.init:
            found.append((field.name, default, is_behind_init_var or field.kw_only))
        elif field.name not in named and _is_init_var(field):
            is_behind_init_var = True
            if default is None:
                raise GraphError(
                    f"{name}.{field.name} is an InitVar, for which there is no column: give it a default"
                )
    return found


def _is_init_var(field: Any) -> bool:
    """Whether this is an InitVar, and not a ClassVar, the other one that is no field."""
    return field._field_type is dataclasses._FIELD_INITVAR  # type: ignore[attr-defined]


def _default(field: dataclasses.Field[Any]) -> Default | None:
    if field.default is not dataclasses.MISSING:
        return Default(field.default)
    if field.default_factory is not dataclasses.MISSING:
        return Default(factory=field.default_factory)
    return None


def _value(python_type: Any, where: str, above: tuple[type, ...]) -> ValueType:
    inner, nullable = _without_none(python_type)
    if inner in PLAIN:
        return ValueType(PLAIN[inner], nullable, True)
    origin, args = typing.get_origin(inner), typing.get_args(inner)
    if origin is list:
        items = _value(args[0], where, above)
        return ValueType(pa.list_(items.field("item")), nullable, False, items)
    if origin is dict and args[0] is str:
        items = _value(args[1], where, above)
        return ValueType(pa.map_(pa.string(), items.field("value")), nullable, False, items)
    if is_record_type(inner):
        record = _record(inner, above)
        return ValueType(pa.struct(list(record.schema)), nullable, record.is_immutable, None, record)
    raise GraphError(f"{where} is a {type_name(inner)}, which has no Arrow type; there are {_SUPPORTED}")


def _without_none(python_type: Any) -> tuple[Any, bool]:
    """`X | None` as (X, True); anything else as it is, and False."""
    if typing.get_origin(python_type) not in (typing.Union, types.UnionType):
        return python_type, False
    args = typing.get_args(python_type)
    rest = [a for a in args if a is not type(None)]
    return (rest[0] if len(rest) == 1 else python_type), len(rest) < len(args)
