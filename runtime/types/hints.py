"""Annotations as they are meant: resolved in their module, with what type variables stand for, and by the
names that a sentence has for them."""

from __future__ import annotations

import types
import typing
from collections.abc import Mapping
from typing import Annotated, Any, Final, TypeVar

from onceflow.runtime.errors import GraphError

Bound = Mapping[Any, Any]
"""Type variables of a generic class, and what they stand for."""
NO_TYPES: Final[Bound] = types.MappingProxyType({})


def type_name(python_type: Any) -> str:
    """How a type is called in a sentence: `int`, `list[str]`, `Purchase`, `Box[int]`."""
    args, origin = typing.get_args(python_type), typing.get_origin(python_type)
    if origin is Annotated:
        return type_name(args[0])
    if args and origin is not typing.Literal:
        inside = [type_name(arg) for arg in args]
        if origin in (typing.Union, types.UnionType):
            return " | ".join("None" if name == "NoneType" else name for name in inside)
        return f"{type_name(origin)}[{', '.join(inside)}]"
    if python_type is ...:
        return "..."
    named = getattr(python_type, "__name__", None)
    return named if isinstance(named, str) and not args else str(python_type).removeprefix("typing.")


class Hints:
    """The resolved annotations of a class, each with what its type variables stand for."""

    def __init__(self, cls: type, bound: Mapping[type, Bound]) -> None:
        self._cls = cls
        self._bound = bound
        try:
            self._hints = typing.get_type_hints(cls, include_extras=True)
        except NameError as error:
            raise GraphError(
                f"{cls.__name__} has an annotation that can't be resolved: {error}; "
                "define the type at the top level of its module"
            ) from error

    def __getitem__(self, name: str) -> tuple[Any, Bound]:
        if name not in self._hints:
            raise GraphError(f"{self._cls.__name__}.{name} has no type: annotate the field")
        owner = next((c for c in self._cls.__mro__ if name in vars(c).get("__annotations__", {})), self._cls)
        return self._hints[name], self._bound.get(owner, NO_TYPES)


def bound_of(record_type: Any) -> dict[type, Bound]:
    """What the type variables of a generic class, and of those that it derives from, stand for."""
    found: dict[type, Bound] = {}

    def bind(alias: Any, outer: Bound) -> None:
        cls = typing.get_origin(alias) or alias
        parameters = getattr(cls, "__parameters__", ())
        given = [_substituted(arg, outer) for arg in typing.get_args(alias)]
        found[cls] = dict(zip(parameters, given, strict=False))
        for base in getattr(cls, "__orig_bases__", ()):
            if isinstance(typing.get_origin(base), type) and typing.get_origin(base) is not typing.Generic:
                bind(base, found[cls])

    bind(record_type, NO_TYPES)
    return found


def _substituted(annotation: Any, bound: Bound) -> Any:
    if isinstance(annotation, TypeVar):
        return bound.get(annotation, annotation)
    parameters = getattr(annotation, "__parameters__", ())
    return annotation[tuple(bound.get(p, p) for p in parameters)] if parameters else annotation
