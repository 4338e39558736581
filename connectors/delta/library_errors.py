"""Errors of the deltalake library, as what the engine does next."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterator

from deltalake.exceptions import DeltaError, DeltaProtocolError

from onceflow.runtime.errors import Fatal, Indeterminate, Unavailable

_COLOURS = re.compile(r"\x1b\[[0-9;]*m")
_STACK = re.compile(r"\n\s*0: .*", re.DOTALL)


@contextlib.contextmanager
def asking(what: str) -> Iterator[None]:
    """Nothing is changed inside: what fails can be tried again."""
    try:
        yield
    except DeltaProtocolError as error:
        raise Fatal(f"{what}: {in_a_line(error)}") from error
    except (DeltaError, OSError, ValueError) as error:
        raise Unavailable(f"{what} can't be read: {in_a_line(error)}") from error


@contextlib.contextmanager
def committing(what: str) -> Iterator[None]:
    """A commit. Whatever it says of others who have committed, it may have met itself, sent twice by the
    client below: so nothing but the ledger tells."""
    try:
        yield
    except DeltaProtocolError as error:
        raise Fatal(f"{what}: {in_a_line(error)}") from error
    except (DeltaError, OSError, ValueError) as error:
        raise Indeterminate(f"{what}: the commit is in doubt: {in_a_line(error)}") from error


def in_a_line(error: BaseException) -> str:
    """The library draws trees of causes, and its own stack: the causes, one behind the other."""
    text = _STACK.sub("", _COLOURS.sub("", str(error)))
    lines = [line.strip(" ↳\t").rstrip(":") for line in text.splitlines()]
    return ": ".join(line for line in lines if line)
