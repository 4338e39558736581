"""The fields of a record type as its library declares them: dataclasses, NamedTuple, TypedDict, attrs,
pydantic, msgspec.

attrs and pydantic are never imported: their classes are told by what they carry.
"""

from __future__ import annotations

import dataclasses
import typing
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Annotated, Any

import msgspec

from onceflow.runtime.errors import GraphError
from onceflow.runtime.types.hints import NO_TYPES, Bound, Hints, bound_of
from onceflow.runtime.types.value_types import Default


@dataclass(frozen=True, slots=True)
class DeclaredField:
    """A field as it is written. `annotation` is resolved, with Annotated and the like still around it;
    `bound` are the type variables in it. For the others see RecordField."""

    name: str
    annotation: Any
    bound: Bound
    default: Default | None = None
    by_keyword: bool = False
    outside: str = ""
    keyword: str = ""
    may_be_missing: bool = False


@dataclass(frozen=True, slots=True)
class DeclaredRecord:
    """A record type as it is written: what makes a record, its fields, and what it says of itself."""

    of: type
    fields: tuple[DeclaredField, ...]
    is_frozen: bool
    refuses_unknown: bool = False
    tag: tuple[str, str] | None = None
    """The field and the tag by which msgspec tells it in a union."""


def is_record_type(value: object) -> bool:
    """A class with annotated fields of one of the libraries above, or one of generics with its parameters,
    as in `Box[int]`."""
    origin = typing.get_origin(value)
    cls = value if origin is None else origin
    if not isinstance(cls, type):
        return False
    return (
        dataclasses.is_dataclass(cls)
        or (issubclass(cls, tuple) and hasattr(cls, "_fields"))
        or typing.is_typeddict(cls)
        or _is_attrs(cls)
        or _is_pydantic(cls)
        or _is_msgspec(cls)
    )


def declared_record(record_type: Any) -> DeclaredRecord:
    """What is declared. Raises GraphError naming the type and a field that has no column or no type."""
    cls: Any = typing.get_origin(record_type) or record_type
    bound = bound_of(record_type)
    if _is_pydantic(cls):
        return _pydantic(cls)
    hints = Hints(cls, bound)
    if _is_msgspec(cls):
        return _msgspec(cls, hints)
    if _is_attrs(cls):
        return _attrs(cls, hints)
    if typing.is_typeddict(cls):
        return _typed_dict(cls, hints)
    if dataclasses.is_dataclass(cls):
        settings: Any = getattr(cls, "__dataclass_params__", None)
        return DeclaredRecord(
            typing.cast(type, cls), tuple(_dataclass(cls, hints)), settings is None or bool(settings.frozen)
        )
    given: Mapping[str, Any] = getattr(cls, "_field_defaults", {})
    names: tuple[str, ...] = cls._fields
    made = [DeclaredField(n, *hints[n], Default(given[n]) if n in given else None) for n in names]
    return DeclaredRecord(cls, tuple(made), True)


def _outside(cls: type, name: str, alias: Any) -> str:
    """The name in JSON and Avro that a field's metadata says."""
    if alias is None or (isinstance(alias, str) and alias):
        return alias or ""
    raise GraphError(f"{cls.__name__}.{name} has the alias {alias!r}: it must be one name, as text")


# --- The libraries --------------------------------------------------------------------------------


def _dataclass(cls: Any, hints: Hints) -> Iterator[DeclaredField]:
    is_behind_init_var = False
    of_class: Mapping[str, Any] = cls.__dataclass_fields__  # with those that fields() leaves out
    named = {field.name for field in dataclasses.fields(cls)}
    for field in of_class.values():
        default = None
        if field.default is not dataclasses.MISSING:
            default = Default(field.default)
        elif field.default_factory is not dataclasses.MISSING:
            default = Default(factory=field.default_factory)
        if field.name in named and field.init:
            outside = _outside(cls, field.name, field.metadata.get("alias"))
            by_keyword = is_behind_init_var or field.kw_only
            yield DeclaredField(field.name, *hints[field.name], default, by_keyword, outside)
        elif field.name not in named and _is_init_var(field):
            is_behind_init_var = True
            if default is None:
                raise GraphError(
                    f"{cls.__name__}.{field.name} is an InitVar, for which there is no column: give it a "
                    "default"
                )


def _is_init_var(field: Any) -> bool:
    """Whether this is an InitVar, and not a ClassVar, the other one that is no field."""
    return field._field_type is dataclasses._FIELD_INITVAR  # type: ignore[attr-defined]


def _typed_dict(cls: Any, hints: Hints) -> DeclaredRecord:
    made = []
    for name in typing.get_type_hints(cls):
        annotation, bound = hints[name]
        wrapper = typing.get_origin(annotation)
        is_required = wrapper is typing.Required or (
            wrapper is not typing.NotRequired and name in cls.__required_keys__
        )
        default = None if is_required else Default(None)
        made.append(
            DeclaredField(name, annotation, bound, default, True, "", "", may_be_missing=not is_required)
        )
    return DeclaredRecord(dict, tuple(made), False)


def _is_attrs(cls: type) -> bool:
    return hasattr(cls, "__attrs_attrs__")


def _attrs(cls: Any, hints: Hints) -> DeclaredRecord:
    made = []
    for field in cls.__attrs_attrs__:
        if not field.init:
            continue
        is_given = type(field.default).__name__ != "_Nothing"
        default = Default(field.default) if is_given else None
        if hasattr(field.default, "factory") and hasattr(field.default, "takes_self"):
            if field.default.takes_self:
                raise GraphError(
                    f"{cls.__name__}.{field.name} has a default that takes the record itself, which is not "
                    "there yet when a field is missing: use attrs.field(factory=...)"
                )
            default = Default(factory=field.default.factory)
        outside = _outside(cls, field.name, field.metadata.get("alias"))
        made.append(DeclaredField(field.name, *hints[field.name], default, True, outside, field.alias))
    return DeclaredRecord(cls, tuple(made), cls.__setattr__.__name__ == "_frozen_setattrs")


def _is_msgspec(cls: type) -> bool:
    return isinstance(cls, type(msgspec.Struct)) and cls is not msgspec.Struct


_NO_DEFAULT: Any = msgspec.NODEFAULT


def _msgspec(cls: Any, hints: Hints) -> DeclaredRecord:
    config = cls.__struct_config__
    if config.array_like:
        raise GraphError(f"{cls.__name__} is array_like, which has no columns by name: leave that out")
    made = []
    fields = zip(cls.__struct_fields__, cls.__struct_encode_fields__, strict=True)
    defaults: dict[str, Any] = dict(
        zip(cls.__struct_fields__[::-1], cls.__struct_defaults__[::-1], strict=False)
    )
    for name, outside in fields:
        given = defaults.get(name, _NO_DEFAULT)
        default = None if given is _NO_DEFAULT else Default(given)
        if type(given).__name__ == "Factory" and hasattr(given, "factory"):
            default = Default(factory=given.factory)
        made.append(DeclaredField(name, *hints[name], default, True, "" if outside == name else outside))
    tag = None if config.tag is None else (config.tag_field, config.tag)
    return DeclaredRecord(cls, tuple(made), bool(config.frozen), bool(config.forbid_unknown_fields), tag)


def _is_pydantic(cls: type) -> bool:
    return hasattr(cls, "__pydantic_fields__") and hasattr(cls, "__pydantic_validator__")


def _pydantic(cls: Any) -> DeclaredRecord:
    settings: Mapping[str, Any] = getattr(cls, "model_config", None) or getattr(
        cls, "__pydantic_config__", {}
    )
    name = cls.__name__
    if getattr(cls, "__pydantic_root_model__", False):
        raise GraphError(f"{name} is a RootModel, which has no columns: use a model with fields")
    if settings.get("extra") == "allow":
        raise GraphError(
            f'{name} keeps unknown fields (extra="allow"), for which there are no columns: give it a field '
            '`extra: dict[str, Any]` and read it by Json(..., extra="collect")'
        )
    if not cls.__pydantic_complete__:
        rebuild = getattr(cls, "model_rebuild", None)
        if rebuild is None or not rebuild(raise_errors=False):
            raise GraphError(
                f"{name} has an annotation that can't be resolved; define the type at the top level of its "
                "module"
            )
    made = [
        _pydantic_field(cls, *item) for item in cls.__pydantic_fields__.items() if item[1].init is not False
    ]
    parameters: Any = getattr(cls, "__dataclass_params__", None)
    is_frozen = bool(settings.get("frozen") or (parameters is not None and parameters.frozen))
    return DeclaredRecord(cls, tuple(made), is_frozen, settings.get("extra") == "forbid")


def _pydantic_field(cls: type, name: str, field: Any) -> DeclaredField:
    read = field.validation_alias if field.validation_alias is not None else field.alias
    written = field.serialization_alias if field.serialization_alias is not None else field.alias
    if (read or name) != (written or name):
        raise GraphError(
            f"{cls.__name__}.{name} is read as {read or name!r} and written as {written or name!r}: a field "
            "has one name outside, give it by Field(alias=...)"
        )
    default = None
    if field.default_factory is not None:
        if field.default_factory_takes_validated_data:
            raise GraphError(
                f"{cls.__name__}.{name} has a default that is made of the other fields, which are not there "
                "yet when a field is missing: use a factory without arguments"
            )
        default = Default(factory=field.default_factory)
    elif not field.is_required():
        default = Default(field.default)
    notes = [*field.metadata, *([field] if field.discriminator else [])]
    annotation = Annotated[field.annotation, *notes] if notes else field.annotation
    outside = _outside(cls, name, read)
    return DeclaredField(name, annotation, NO_TYPES, default, True, outside, outside or name)
