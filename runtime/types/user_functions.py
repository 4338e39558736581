"""When the user's own function raises: who, which record, which line."""

from __future__ import annotations

import os
import traceback
from collections.abc import Callable
from typing import Any, Protocol

import pyarrow as pa

from onceflow.runtime.errors import OnceflowError, Retryable, UserFunctionError
from onceflow.runtime.records import Records
from onceflow.runtime.types.records_of_columns import UnmadeRecordError, validation_reason

_OURS = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__)))) + os.sep


def function_name(fn: Callable[..., Any]) -> str:
    """How a user knows it: `to_total`, `Alert.process`, `<lambda>`."""
    named = fn if hasattr(fn, "__qualname__") else type(fn)
    return str(named.__qualname__).replace("<locals>.", "").rpartition("<locals>")[2]


def owner_name(method: Callable[..., Any]) -> str:
    """The name of the class whose method it is."""
    return type(getattr(method, "__self__", method)).__name__


def user_function_error(
    uid: str, fn: Callable[..., Any], error: BaseException, records: Records | None, row: int, record: object
) -> Exception:
    """What to raise from `error`: names operator, function, record, the user's line and its message.

    A Retryable of the user's stays one. Another error that onceflow itself raised for the user (Fenced,
    GraphError, ...) is handed back as it is.
    """
    return user_error_at(uid, fn, error, shown_record(records, row, record), records, row)


class Reads(Protocol):
    """What makes records of a batch: a RecordReader, or rows of a stream."""

    @property
    def type_name(self) -> str: ...

    def read(self, batch: pa.RecordBatch) -> list[Any]: ...


def read_records(uid: str, reader: Reads, records: Records) -> list[Any]:
    """The records of a batch as the user's type. Raises UserFunctionError naming operator, type, record and
    field if the type does not take one, as a validator of pydantic may not."""
    try:
        return reader.read(records.batch)
    except UnmadeRecordError as error:
        if isinstance(error.__cause__, OnceflowError):
            raise error.__cause__ from None
        shown = records.batch.slice(error.row, 1).to_pylist()[0]
        who = f"operator {uid!r}: {reader.type_name} can't be made"
        message = f"{who} of {shown_record(records, error.row, shown)}: {error}"
        raise UserFunctionError(message, who, str(error), origin_of(records, error.row)) from error


def user_error_at(
    uid: str,
    fn: Callable[..., Any],
    error: BaseException,
    place: str,
    records: Records | None = None,
    row: int = 0,
) -> Exception:
    """The same, where `place` says on what the function failed: a record, a timer, a batch."""
    who = f"operator {uid!r}: {function_name(fn)} failed"
    what = f"{type(error).__name__}: {validation_reason(error) or error}"
    frame = _frame(fn, error)
    line = f" (at {frame.filename}:{frame.lineno})" if frame else ""
    message = f"{who} on {place}{line}: {what}"
    if type(error) is Retryable:
        return Retryable(message)
    if isinstance(error, OnceflowError):
        return error
    origin = origin_of(records, row)
    record = f"{who} on {origin}: {type(error).__name__}" if origin else ""
    # Without the folder: another machine's copy of the program may lie elsewhere.
    where = f"{who} (at {os.path.basename(frame.filename)}:{frame.lineno})" if frame else who
    return UserFunctionError(message, where, what, record)


def origin_of(records: Records | None, row: int) -> str:
    """`events-3 at offset 17`; "" if it is not known."""
    if records is None or records.origin is None or row >= len(records):
        return ""
    return records.origin.describe(row)


def shown_record(records: Records | None, row: int, record: object) -> str:
    """`the record in events-3 at offset 17, Purchase(user='u1', ...)`, cut where it gets long."""
    origin = origin_of(records, row)
    place = f" in {origin}," if origin else ""
    try:
        shown = repr(record)
    except Exception:
        shown = f"a {type(record).__name__}"
    return f"the record{place} {shown if len(shown) <= 200 else shown[:200] + '...'}"


def _frame(fn: Callable[..., Any], error: BaseException) -> traceback.FrameSummary | None:
    """The last one inside the user's file, or outside of onceflow; None: there is none, since it could not
    even be called."""
    frames = traceback.extract_tb(error.__traceback__)
    called = fn if hasattr(fn, "__code__") else type(fn).__call__
    code = getattr(called, "__code__", None)
    own = [f for f in frames if code is not None and f.filename == code.co_filename]
    found = own or [f for f in frames if not f.filename.startswith(_OURS)]
    return found[-1] if found else None
