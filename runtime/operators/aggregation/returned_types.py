"""What the methods of a user's aggregate say that they return."""

from __future__ import annotations

import typing
from typing import Any, TypeVar

from onceflow.runtime.errors import GraphError
from onceflow.runtime.types.record_types import describe_type
from onceflow.runtime.types.value_types import ValueType


def returned_type(function: object, method: str, where: str) -> ValueType:
    """The type that a method of the user's aggregate declares. Raises GraphError, which begins with
    `where`, if it declares none, or one that has no column."""
    return describe_type(
        returned_hint(function, method, where), f"{where}: what {_shown(function, method)} returns"
    )


def returned_hint(function: object, method: str, where: str) -> Any:
    """The annotation of what a method of the user's aggregate returns, resolved."""
    name = _shown(function, method)
    try:
        returned = typing.get_type_hints(getattr(type(function), method), include_extras=True).get("return")
    except NameError as error:
        raise GraphError(f"{where}: the annotation of {name} can't be resolved: {error}") from error
    if returned is None or isinstance(returned, TypeVar):
        raise GraphError(f"{where}: {name} has no return annotation: write `def {method}(...) -> int:`")
    return returned


def _shown(function: object, method: str) -> str:
    return f"{type(function).__name__}.{method}"
