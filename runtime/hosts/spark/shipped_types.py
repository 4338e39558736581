"""What Spark's pickler can't send by value of the user's types: a msgspec.Struct, which is made once and for
all by its metaclass; msgspec.Meta; and a NewType, which it looks for in an importable module."""

from __future__ import annotations

import typing
from types import MemberDescriptorType, UnionType
from typing import Any, ForwardRef, NewType, Union

import msgspec

_STRUCT: Any = type(msgspec.Struct)
_MADE_ANEW = frozenset(
    {
        "__annotations__",
        "__dict__",
        "__match_args__",
        "__module__",
        "__orig_bases__",
        "__parameters__",
        "__post_init__",
        "__qualname__",
        "__slots__",
        "__weakref__",
    }
)
"""What the metaclass makes, or what goes into it."""
_OPTIONS = (
    "frozen", "eq", "order", "array_like", "gc", "repr_omit_defaults", "omit_defaults",
    "forbid_unknown_fields", "weakref", "dict", "cache_hash", "tag", "tag_field",
)  # fmt: skip
_META = (
    "gt", "ge", "lt", "le", "multiple_of", "pattern", "min_length", "max_length", "tz", "title",
    "description", "examples", "extra_json_schema", "extra",
)  # fmt: skip
_LATER = "_onceflow_later"


def reduced_otherwise(value: object) -> tuple[Any, ...] | None:
    """How an object that is no class is made anew; None if Spark's pickler knows."""
    if isinstance(value, NewType):
        return make_new_type, (value.__name__, value.__module__, value.__supertype__)
    if isinstance(value, msgspec.Meta):
        said = {name: getattr(value, name) for name in _META if getattr(value, name) is not None}
        return make_meta, (said,)
    return None


def make_new_type(name: str, module: str, supertype: Any) -> Any:
    """Called when it is unpickled."""
    new_type: Any = NewType
    made = new_type(name, supertype)
    made.__module__ = module
    return made


def make_meta(said: dict[str, Any]) -> msgspec.Meta:
    """Called when it is unpickled."""
    return msgspec.Meta(**said)


def is_struct(value: object) -> bool:
    """Whether this is a class of msgspec's that a user has written."""
    return isinstance(value, _STRUCT) and value is not msgspec.Struct


def reduced_struct(cls: Any) -> tuple[Any, ...]:
    """How a Struct is made anew: first with its fields, then what is in its body, which may refer to it."""
    config = cls.__struct_config__
    options = {name: getattr(config, name) for name in _OPTIONS}
    body = {name: value for name, value in vars(cls).items() if _is_written(cls, name, value)}
    fields = _own_fields(cls)
    keyword_only = {name for name, *_ in fields} & _keyword_only(cls)
    post_init = vars(cls).get("__post_init__")
    arguments = (
        cls.__name__,
        cls.__module__,
        cls.__qualname__,
        (cls.__bases__, vars(cls).get("__orig_bases__")),
        fields,
        options | {"kw_only": bool(keyword_only)},
        post_init is not None,
    )
    return make_struct, arguments, (body, post_init), None, None, fill_struct


def make_struct(
    name: str,
    module: str,
    qualname: str,
    bases: tuple[tuple[type, ...], tuple[Any, ...] | None],
    fields: list[tuple[str, Any, str, str, Any]],
    options: dict[str, Any],
    has_post_init: bool,
) -> Any:
    """Called when it is unpickled. `bases`: also with the parameters of generics, if they have any. What
    checks a record, `__post_init__`, msgspec looks for only now; it is there a moment later."""
    namespace: dict[str, Any] = {"__qualname__": qualname}
    if bases[1] is not None:
        namespace["__orig_bases__"] = bases[1]
    if has_post_init:
        later: list[Any] = []

        def __post_init__(self: Any) -> None:
            later[0](self)

        setattr(__post_init__, _LATER, later)
        namespace["__post_init__"] = __post_init__
    definitions = [
        (field, annotation, _definition(outside, kind, given))
        for field, annotation, outside, kind, given in fields
    ]
    return msgspec.defstruct(name, definitions, bases=bases[0], module=module, namespace=namespace, **options)


def fill_struct(cls: Any, state: tuple[dict[str, Any], Any]) -> None:
    """Called when it is unpickled, after the class is known to what refers to it."""
    body, post_init = state
    if post_init is not None:
        getattr(vars(cls)["__post_init__"], _LATER).append(post_init)
    for name, value in body.items():
        setattr(cls, name, value)


def _own_fields(cls: Any) -> list[tuple[str, Any, str, str, Any]]:
    """The fields that the class itself annotates: name, type, name in JSON, and its default."""
    own = vars(cls).get("__annotations__", {})
    try:
        hints = typing.get_type_hints(cls, include_extras=True)
    except NameError:  # of a type checker's only, say
        hints = {}
    found = []
    fields = {field.name: field for field in msgspec.structs.fields(cls)} if hints else {}
    for name, outside in zip(cls.__struct_fields__, cls.__struct_encode_fields__, strict=True):
        if name not in own:
            continue
        field = fields.get(name)
        kind, given = "", None
        if field is not None and field.default is not msgspec.NODEFAULT:
            kind, given = "value", field.default
        elif field is not None and field.default_factory is not msgspec.NODEFAULT:
            kind, given = "factory", field.default_factory
        found.append((name, _by_name(hints.get(name, own[name]), cls), outside, kind, given))
    return found


def _definition(outside: str, kind: str, given: Any) -> Any:
    if kind == "value":
        return msgspec.field(default=given, name=outside)
    return msgspec.field(default_factory=given, name=outside) if kind else msgspec.field(name=outside)


def _keyword_only(cls: Any) -> set[str]:
    parameters = cls.__signature__.parameters.values()
    return {each.name for each in parameters if each.kind is each.KEYWORD_ONLY}


def _by_name(annotation: Any, cls: Any) -> Any:
    """The annotation with the class itself by name, since it is not there yet when it is made anew."""
    if annotation is cls:
        return ForwardRef(cls.__name__)
    inner = tuple(_by_name(arg, cls) for arg in typing.get_args(annotation))
    if not any(isinstance(each, ForwardRef) or _is_by_name(each) for each in inner):
        return annotation
    if typing.get_origin(annotation) in (Union, UnionType):
        return Union[inner]  # noqa: UP007 - ForwardRef knows no `|`
    is_of_typing = hasattr(annotation, "copy_with")
    return annotation.copy_with(inner) if is_of_typing else typing.get_origin(annotation)[inner]


def _is_by_name(annotation: Any) -> bool:
    return any(isinstance(arg, ForwardRef) or _is_by_name(arg) for arg in typing.get_args(annotation))


def _is_written(cls: Any, name: str, value: Any) -> bool:
    """Whether the user wrote it: it is none of what the metaclass makes."""
    is_made = name in _MADE_ANEW or name.startswith("__struct_") or name in cls.__struct_fields__
    return not is_made and not isinstance(value, MemberDescriptorType)
