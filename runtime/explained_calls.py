"""A call with other arguments than it takes ends in a sentence with the nearest name, and not in Python's own
TypeError: `KafkaSource has no argument 'topic' (did you mean 'topics'?)`.

What users call is decorated: in a script, a test and a notebook it says the same as `onceflow run` does.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Mapping, Sequence
from inspect import Parameter
from typing import Any, TypeVar, cast

from onceflow.runtime.errors import OptionError
from onceflow.runtime.nearest import nearest

Called = TypeVar("Called", bound=Callable[..., Any])
Owner = TypeVar("Owner")


def explained(called: Called) -> Called:
    """Decorator of a function, or of a class whose objects users make: for a class it is about `__init__`
    and its class methods.

    A call that fits changes in nothing. One that does not raises OptionError. Not for what is called for
    each record or batch: a call costs half a microsecond more.
    """
    if not isinstance(called, type):
        return cast(Called, _explained(called, called.__qualname__))
    type.__setattr__(called, "__init__", _explained(called.__init__, called.__name__))  # type: ignore[misc]
    for name, member in list(vars(called).items()):
        if isinstance(member, classmethod | staticmethod) and not name.startswith("_"):
            made = type(member)(_explained(member.__func__, f"{called.__name__}.{name}"))
            type.__setattr__(called, name, made)
    return cast(Called, called)


def explained_methods(owner: type[Owner]) -> type[Owner]:
    """Decorator of a class: it is `explained`, and so are its public methods, those too that it has from
    another class. For what builds a graph, whose methods are called once for each step."""
    for name in dir(owner):
        member = inspect.getattr_static(owner, name)
        if inspect.isfunction(member) and not name.startswith("_"):
            type.__setattr__(owner, name, _explained(member, f"{owner.__name__}.{name}"))
    return explained(owner)


def _explained(function: Callable[..., Any], shown: str) -> Callable[..., Any]:
    """`shown`: the name that users know it by."""

    @functools.wraps(function)
    def call(*arguments: Any, **options: Any) -> Any:
        try:
            return function(*arguments, **options)
        except TypeError:
            said = _what_is_wrong(shown, function, arguments, options)
            if said is None:
                raise  # from within the call
            raise OptionError(said) from None

    return call


def _what_is_wrong(
    shown: str, function: Callable[..., Any], arguments: Sequence[Any], options: Mapping[str, Any]
) -> str | None:
    """None: the arguments are those that it takes."""
    signature = inspect.signature(function)
    try:
        signature.bind(*arguments, **options)
    except TypeError as error:
        parameters = [each for each in signature.parameters.values() if each.name not in ("self", "cls")]
        takes = [each.name for each in parameters]
        listed = f"its arguments are {', '.join(takes)}"
        unknown = [name for name in options if name not in takes]
        if unknown and not any(each.kind is Parameter.VAR_KEYWORD for each in parameters):
            return f"{shown} has no argument {unknown[0]!r}{nearest(unknown[0], takes) or f'; {listed}'}"
        if str(error).startswith("too many"):
            return f"{shown} is given more than it takes without a name; {listed}"
        if str(error).startswith("multiple values"):
            return f"{shown} is given one argument twice, with and without its name: {error}; {listed}"
        if missing := _missing(signature, arguments, options):
            return f"{shown} lacks {' and '.join(missing)}; {listed}"
        return f"{shown}: {error}; {listed}"
    return None


def _missing(signature: inspect.Signature, arguments: Sequence[Any], options: Mapping[str, Any]) -> list[str]:
    given = signature.bind_partial(*arguments, **options).arguments
    variable = Parameter.VAR_KEYWORD, Parameter.VAR_POSITIONAL
    return [
        each.name
        for each in signature.parameters.values()
        if each.default is Parameter.empty and each.kind not in variable and each.name not in given
    ]
