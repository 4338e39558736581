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
    return user_error_at(uid, fn, error, describe_record(records, row, record), records, row)


def user_error_at(
    uid: str,
    fn: Callable[..., Any],
    error: BaseException,
    place: str,
    records: Records | None = None,
    row: int = 0,
) -> Exception:
    """The same, where `place` says on what the function failed: a record, a timer, a batch."""
    if isinstance(error, OnceflowError):
        return error
    who, line = f"operator {uid!r}: {function_name(fn)} failed", _line(fn, error)
    what = f"{type(error).__name__}: {error}"
    origin = origin_of(records, row)
    record = f"{who} on {origin}: {type(error).__name__}" if origin else ""
    return UserFunctionError(f"{who} on {place}{line}: {what}", f"{who}{line}: {what}", record)


def origin_of(records: Records | None, row: int) -> str:
    """`events-3 at offset 17`; "" if it is not known."""
    if records is None or records.origin is None or row >= len(records):
        return ""
    return records.origin.describe(row)


def describe_record(records: Records | None, row: int, record: object) -> str:
    """`the record events-3 at offset 17, Purchase(user='u1', ...)`, cut where it gets long."""
    origin = origin_of(records, row)
    place = f" {origin}," if origin else ""
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
