"""What an error of Redis or of its client means for whoever writes. Pure."""

from __future__ import annotations

from redis import exceptions

from onceflow.runtime.errors import Fatal, Indeterminate, OnceflowError, Retryable

_HOPELESS = (
    exceptions.AuthenticationError,
    exceptions.AuthorizationError,
    exceptions.NoPermissionError,
    exceptions.InvalidResponse,
)
_PASSING = (
    "BUSY",
    "LOADING",
    "MASTERDOWN",
    "MISCONF",
    "NOREPLICAS",
    "OOM",
    "READONLY",
    "TRYAGAIN",
    "UNBLOCKED",
)
"""First words of answers that pass by themselves, or when somebody mends the server."""


def meaning(error: exceptions.RedisError, doing: str) -> OnceflowError:
    """What to raise for an error of a call."""
    text = (str(error).strip().splitlines() or [type(error).__name__])[0].rstrip(".")
    said = f"{doing}: {text}"
    if isinstance(error, _HOPELESS):
        return Fatal(said)
    if isinstance(error, exceptions.ConnectionError | exceptions.TimeoutError) and not isinstance(
        error, exceptions.BusyLoadingError
    ):
        return Indeterminate(said)
    passing = (exceptions.BusyLoadingError, exceptions.ReadOnlyError, exceptions.OutOfMemoryError)
    if isinstance(error, passing) or text.startswith(_PASSING):
        return Retryable(said)
    return Fatal(said)
