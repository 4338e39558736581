"""When the user's own function raises: who, which record, which line."""

from __future__ import annotations

import traceback
from collections.abc import Callable
from typing import Any

from onceflow.runtime.errors import OnceflowError, UserFunctionError
from onceflow.runtime.records import Records


def function_name(fn: Callable[..., Any]) -> str:
    """How a user knows it: `to_total`, `Alert.process`, `<lambda>`."""
    named = fn if hasattr(fn, "__qualname__") else type(fn)
    return str(named.__qualname__).replace("<locals>.", "").rpartition("<locals>")[2]


def user_function_error(
    uid: str, fn: Callable[..., Any], error: BaseException, records: Records | None, row: int, record: object
) -> Exception:
    """What to raise from `error`: names operator, function, record, the user's line and its message.

    An error that onceflow itself raised for the user (Fenced, GraphError, ...) is handed back as it is.
    """
    return user_error_at(uid, fn, error, describe_record(records, row, record))


def user_error_at(uid: str, fn: Callable[..., Any], error: BaseException, place: str) -> Exception:
    """The same for what is not a record: `place` says on what the function failed."""
    if isinstance(error, OnceflowError):
        return error
    return UserFunctionError(
        f"operator {uid!r}: {function_name(fn)} failed on {place}{_line(fn, error)}: "
        f"{type(error).__name__}: {error}"
    )


def describe_record(records: Records | None, row: int, record: object) -> str:
    """`the record events-3 at offset 17, Purchase(user='u1', ...)`, cut where it gets long."""
    place = ""
    if records is not None and records.origin is not None and row < len(records):
        place = f" {records.origin.describe(row)},"
    try:
        shown = repr(record)
    except Exception:
        shown = f"a {type(record).__name__}"
    return f"the record{place} {shown if len(shown) <= 200 else shown[:200] + '...'}"


def _line(fn: Callable[..., Any], error: BaseException) -> str:
    """` (at totals.py:12)`: the last line inside the user's file, or where it was raised."""
    frames = traceback.extract_tb(error.__traceback__)
    code = getattr(fn, "__code__", None)
    own = [f for f in frames if code is not None and f.filename == code.co_filename]
    if not (own or frames):
        return ""
    frame = (own or frames)[-1]
    return f" (at {frame.filename}:{frame.lineno})"
