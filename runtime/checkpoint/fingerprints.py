"""What an error has in common with the same error another time. Pure.

An attempt that is restarted reads the same records again. If it then fails with the same error, so will
the next one: the coordinator gives up after the second (checkpoint/verdict.py). Errors that may pass by
themselves have no fingerprint: what onceflow itself calls Retryable, Indeterminate or Fenced, and what
the system says of networks, disks and memory, also where the user's function wrapped it in its own.
"""

from __future__ import annotations

import errno
import os
import re
import traceback
from collections.abc import Iterator

from onceflow.runtime.errors import OnceflowError, Unavailable, UserFunctionError

_ID = re.compile(r"0x[0-9a-fA-F]+|[0-9a-fA-F]{8}(?:-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}|\d+")
_LASTING = {
    errno.EACCES,
    errno.EDQUOT,
    errno.EEXIST,
    errno.EISDIR,
    errno.ELOOP,
    errno.ENAMETOOLONG,
    errno.ENOENT,
    errno.ENOSPC,
    errno.ENOTDIR,
    errno.EPERM,
    errno.EROFS,
}
_LASTING_KINDS = FileExistsError, FileNotFoundError, IsADirectoryError, NotADirectoryError, PermissionError
"""Errors that last even as a program raises them, without a number."""


class Unexpected(OnceflowError):
    """Python raised in a slot what nobody foresaw (a ValueError, a NameError), before the slot had reached
    the driver: once may be chance, and the same twice in a row ends the job."""


def fingerprints(error: BaseException) -> frozenset[str]:
    """Two failures are the same if they share one of these. Empty: it may pass by itself.

    Of a user's function: the operator, the function's line, and the error's type and message; and the
    operator, the type and the record's origin, if that is known. Of any other unexpected error: its
    type, its message, and the line that raised it. Messages are compared without numbers and ids: what
    depends on the records comes back, whichever of them is first this time.
    """
    if isinstance(error, UserFunctionError):
        causes = list(_causes(error))[1:]
        if any(_may_pass(cause) for cause in causes):
            return frozenset()
        marks = {f"{error.where}: {_without_ids(error.kind or str(error))}"}
        if error.record:
            marks.add(error.record)
        return frozenset(marks)
    if isinstance(error, Unexpected):
        return frozenset({_without_ids(str(error))})
    if isinstance(error, OnceflowError) or any(_may_pass(cause) for cause in _causes(error)):
        return frozenset()
    frames = traceback.extract_tb(error.__traceback__)
    line = f" at {os.path.basename(frames[-1].filename)}:{frames[-1].lineno}" if frames else ""
    return frozenset({f"{type(error).__qualname__}: {_without_ids(str(error))}{line}"})


def is_lasting(error: OSError) -> bool:
    """A folder, its permissions or its space are not as they have to be: waiting alone changes nothing."""
    return error.errno in _LASTING or isinstance(error, _LASTING_KINDS)


def is_unavailable(error: BaseException) -> bool:
    """Something outside that onceflow itself needs can't be used: see errors.Unavailable."""
    return isinstance(error, Unavailable) or (isinstance(error, OSError) and is_lasting(error))


def _may_pass(error: BaseException) -> bool:
    if isinstance(error, OSError):
        return not is_lasting(error)
    if any(hasattr(what, "retriable") for what in error.args):
        return True  # of a Kafka client, for whom a lost connection is not even one of these
    return isinstance(error, OnceflowError | MemoryError) and not isinstance(error, UserFunctionError)


def _causes(error: BaseException) -> Iterator[BaseException]:
    """The error and what led to it, as a traceback shows them."""
    found: BaseException | None = error
    seen: set[int] = set()
    while found is not None and id(found) not in seen:
        seen.add(id(found))
        yield found
        found = found.__cause__ or (None if found.__suppress_context__ else found.__context__)


def _without_ids(text: str) -> str:
    return _ID.sub("#", text)
