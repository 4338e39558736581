"""Errors of ours that nobody catches: a program ends with their sentence and exit code, as `onceflow run`."""

from __future__ import annotations

import contextlib
import os
import sys
from types import TracebackType

from onceflow.runtime.errors import JobFailedError, OnceflowError, Unavailable, UsageError

WHOLE_ERROR = "ONCEFLOW_DEBUG"
"""An environment variable: if it is set, errors are shown with their tracebacks."""
HOW_TO_SEE_ALL = f"(set {WHOLE_ERROR}=1 to see the whole error)"

_TOLD = (UsageError, JobFailedError, Unavailable)
"""Errors that say all that a user needs. Of any other one the traceback is what it is found by."""


def tell_uncaught_errors() -> None:
    """Have these errors end the program in a sentence. A hook that somebody has set stays: it may be one
    that reports all errors."""
    if sys.excepthook is sys.__excepthook__:
        sys.excepthook = _tell


def _tell(kind: type[BaseException], error: BaseException, where: TracebackType | None) -> None:
    if not isinstance(error, _TOLD) or not _is_ours(kind) or _is_all_wanted():
        sys.__excepthook__(kind, error, where)
        return
    with contextlib.suppress(OSError, ValueError):
        sys.stdout.flush()
    sys.stderr.write(f"onceflow: {_sentence(error)}\n{HOW_TO_SEE_ALL}\n")
    if isinstance(error, UsageError):
        sys.exit(2)


def _is_ours(kind: type[BaseException]) -> bool:
    """A class that a user has derived from one of ours says what the user's program makes it say."""
    return kind.__module__.startswith("onceflow.")


def _is_all_wanted() -> bool:
    """At Python's prompt, too: it must not end."""
    return bool(os.environ.get(WHOLE_ERROR) or sys.flags.inspect or hasattr(sys, "ps1"))


def _sentence(error: OnceflowError) -> OnceflowError:
    if not isinstance(error, UsageError):
        return error
    # Here and not above: every program imports this module, and few have such an error.
    from onceflow.runtime.mistakes import with_users_line

    return with_users_line(error)
