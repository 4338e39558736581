"""Annotations without what is around a type: None, Annotated, NewType, type variables."""

from __future__ import annotations

import types
import typing
from dataclasses import dataclass
from typing import Annotated, Any, TypeVar

from onceflow.runtime.errors import GraphError
from onceflow.runtime.types.hints import Bound


@dataclass(frozen=True, slots=True)
class Unwrapped:
    """A type without what is around it. `notes` are Annotated's, the outermost last."""

    python: Any
    nullable: bool
    notes: tuple[Any, ...]
    bound: Bound

    def inner(self, python: Any, where: str) -> Unwrapped:
        """A type inside this one."""
        return unwrapped(python, self.bound, where)


def unwrapped(python: Any, bound: Bound, where: str) -> Unwrapped:
    """`Annotated[NewType("Cents", int) | None, ...]` as int, nullable. Raises GraphError."""
    nullable = False
    notes: list[Any] = []
    while True:
        origin, args = typing.get_origin(python), typing.get_args(python)
        if origin is Annotated:
            notes[:0] = python.__metadata__
            python = args[0]
        elif origin in (typing.Required, typing.NotRequired):
            python = args[0]
        elif isinstance(python, typing.NewType):
            python = python.__supertype__
        elif type(python).__name__ == "TypeAliasType":  # `type X = ...`, since Python 3.12
            python = python.__value__
        elif isinstance(python, TypeVar):
            if python not in bound or bound[python] is python:
                raise GraphError(f"{where} is the type variable {python}: say what it is, as in Box[int]")
            python, bound = bound[python], {}  # which is of another class, whose variables are others
        elif origin in (typing.Union, types.UnionType) and type(None) in args:
            nullable = True
            rest = tuple(arg for arg in args if arg is not type(None))
            python = typing.Union[rest]  # noqa: UP007 - of one it is that one
        else:
            return Unwrapped(python, nullable, tuple(notes), bound)
