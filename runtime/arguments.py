"""What is given where a source, a sink, a format or the like is wanted."""

from __future__ import annotations

import os
from typing import TypeVar, overload

from onceflow.runtime.errors import OptionError, UsageError

T = TypeVar("T")


PathText = str | os.PathLike[str]
"""What names a folder, a file or, as a text, a URL."""


@overload
def path_text(given: PathText) -> str: ...
@overload
def path_text(given: T) -> T: ...
def path_text(given: object) -> object:
    """A pathlib.Path as the text that is kept and sent; anything else as it is."""
    return os.fspath(given) if isinstance(given, os.PathLike) else given


def check_given(
    value: object, offers: str, where: str, wanted: str, error: type[UsageError], instead: str | None = None
) -> None:
    """Raises `error`, which begins with `where`, if the value is not one of what is wanted: if it does not
    have the attribute `offers`, or is a class whose objects have it. `instead`: the call that would take
    it."""
    if isinstance(value, type):
        name = value.__name__
        advice = f"write {name}(...)" if hasattr(value, offers) else f"expected {wanted}"
        raise error(f"{where} is the class {name}: {advice}")
    if not hasattr(value, offers):
        advice = f"write {instead}; " if instead else ""
        raise error(f"{where} is {repr(value)[:80]}, a {type(value).__name__}: {advice}expected {wanted}")


def check_formats(offers: str, **formats: object) -> None:
    """Raises OptionError, naming the option, for one that is no format with the method `offers`, nor None."""
    for name, given in formats.items():
        if given is not None:
            check_given(given, offers, name, "a format, as in Json(Purchase)", OptionError)
