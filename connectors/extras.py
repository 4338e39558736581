"""needs_extra: what a connector says whose optional packages are not installed."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

from onceflow.runtime.errors import UsageError


@contextlib.contextmanager
def needs_extra(who: str, extra: str) -> Iterator[None]:
    """Around the imports of a connector's optional packages, when one is made. `who`: the class that the user
    has called; `extra`: of ours, which brings the packages. Raises UsageError if one of them is not there."""
    try:
        yield
    except ImportError as error:
        raise UsageError(
            f"{who} needs packages that are not installed: pip install 'onceflow[{extra}]' "
            f"(it lacks {error.name!r})"
        ) from error
