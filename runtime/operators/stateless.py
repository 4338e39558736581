"""The user's own functions of one record, without state: map, flat_map, filter.

Per-record functions run in a tight loop over the batch; an error names operator, function, record and
the user's line. Event time, origin and kind of an output row are those of the record it came from.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import Any, Protocol, runtime_checkable

import numpy as np
import pyarrow as pa

from onceflow.runtime.errors import UserFunctionError
from onceflow.runtime.functions.lives import own_instance
from onceflow.runtime.operators.failed_records import (
    ErrorPolicy,
    FailedRecords,
    call_or_set_aside,
    read_or_set_aside,
)
from onceflow.runtime.operators.operator import FrozenState, OperatorContext, Output, RestoredState
from onceflow.runtime.records import Indices, Mask, Records
from onceflow.runtime.types.columns_of_records import RecordWriter, WrongFieldError, array_from_values
from onceflow.runtime.types.each_called import check_called
from onceflow.runtime.types.records_of_columns import RecordReader
from onceflow.runtime.types.user_functions import (
    Reads,
    function_name,
    origin_of,
    read_records,
    shown_record,
    user_function_error,
)
from onceflow.runtime.types.value_types import ValueType


@runtime_checkable
class CallsFunction(Protocol):
    """A transform that calls a function of the user's."""

    @property
    def function(self) -> Any:
        """The one of this subtask."""
        ...

    def open(self, context: OperatorContext, failed: FailedRecords | None) -> None:
        """Open it, before the first batch. `failed`: where records go for which it raises; None: it fails."""
        ...


class Stateless:
    """An operator that only transforms batches: nothing at watermarks, barriers and the end.

    `transform` gives the rows to send on, or None if there are none.
    """

    def __init__(
        self, transform: Callable[[Records], Records | None], on_error: ErrorPolicy | None = None
    ) -> None:
        self._transform = transform
        self._on_error = on_error
        self._failed: FailedRecords | None = None

    def open(self, context: OperatorContext, out: Output) -> None:
        self._out = out
        if self._on_error is not None:
            self._failed = FailedRecords(self._on_error, context, out)
        transform: object = self._transform
        if isinstance(transform, CallsFunction):
            transform.open(context, self._failed)

    def restore(self, states: Sequence[RestoredState]) -> None:
        assert not states, "a stateless operator has no state"

    def on_records(self, records: Records) -> None:
        transformed = self._transform(records)
        if transformed is not None:
            self._out.emit(transformed)
        if self._failed is not None:
            self._failed.send()

    def on_watermark(self, time_ms: int) -> None:
        pass

    def snapshot(self) -> FrozenState | None:
        return None

    def close(self) -> None:
        pass


def pass_on(records: Records) -> Records:
    """The transform of an operator where only edges come together: a union, a rebalance."""
    return records


class MapRecords:
    """One record out for each record in. `writer` is that of the function's return type."""

    _failed: FailedRecords | None = None

    def __init__(
        self,
        uid: str,
        fn: Callable[[Any], Any],
        reader: RecordReader,
        writer: RecordWriter,
        is_own: bool = False,
    ) -> None:
        """`is_own`: the function is this subtask's alone, and whoever gave it has it opened."""
        self._uid, self._fn = uid, fn if is_own else own_instance(fn, uid)
        self._reader, self._writer = reader, writer

    @property
    def function(self) -> Any:
        return self._fn

    def open(self, context: OperatorContext, failed: FailedRecords | None) -> None:
        context.open_function(self._fn)
        self._failed = failed

    def __call__(self, records: Records) -> Records | None:
        results, records = results_of(self._uid, self._fn, self._reader, records, self._failed)
        if not results:
            return None
        try:
            batch = self._writer.write(results)
        except WrongFieldError as error:
            raise wrong_result(self._uid, self._fn, error, records, error.row) from error
        return Records(batch, records.event_time, None, records.origin, records.kind)


class KeyRecords:
    """Adds a column with what the function returns for each record: the key of a key_by(function). `of`: the
    type of what it returns."""

    def __init__(
        self, uid: str, fn: Callable[[Any], Any], reader: RecordReader, field: pa.Field, of: ValueType
    ) -> None:
        self._uid, self._fn = uid, own_instance(fn, uid)
        self._reader, self._field, self._of = reader, field, of

    @property
    def function(self) -> Any:
        return self._fn

    def open(self, context: OperatorContext, failed: FailedRecords | None) -> None:
        context.open_function(self._fn)

    def __call__(self, records: Records) -> Records | None:
        results = call_each(self._uid, self._fn, read_records(self._uid, self._reader, records), records)
        try:
            column = array_from_values(results, self._field, self._of)
        except WrongFieldError as error:
            raise wrong_result(self._uid, self._fn, error, records, error.row) from error
        return records.with_batch(records.batch.append_column(self._field, column))


class FilterRecords:
    """Keeps the records for which the function returns something true."""

    _failed: FailedRecords | None = None

    def __init__(self, uid: str, fn: Callable[[Any], Any], reader: RecordReader) -> None:
        self._uid, self._fn, self._reader = uid, own_instance(fn, uid), reader

    @property
    def function(self) -> Any:
        return self._fn

    def open(self, context: OperatorContext, failed: FailedRecords | None) -> None:
        context.open_function(self._fn)
        self._failed = failed

    def __call__(self, records: Records) -> Records | None:
        fn = self._fn if self._failed is None else partial(_is_true, self._fn)
        results, records = results_of(self._uid, fn, self._reader, records, self._failed)
        mask: Mask = np.fromiter(map(bool, results), np.bool_, len(results))
        return records.filter(mask) if mask.any() else None


class FlatMapRecords:
    """Any number of records out for each record in: the function yields, or returns an iterable or None."""

    _failed: FailedRecords | None = None

    def __init__(
        self,
        uid: str,
        fn: Callable[[Any], Iterable[Any] | None],
        reader: Reads,
        writer: RecordWriter,
        is_own: bool = False,
    ) -> None:
        """`is_own`: see MapRecords."""
        self._uid, self._fn = uid, fn if is_own else own_instance(fn, uid)
        self._reader, self._writer = reader, writer

    @property
    def function(self) -> Any:
        return self._fn

    def open(self, context: OperatorContext, failed: FailedRecords | None) -> None:
        context.open_function(self._fn)
        self._failed = failed

    @property
    def _call(self) -> Callable[[Any], Iterable[Any] | None]:
        """What is called with each record that was read."""
        return self._fn

    def __call__(self, records: Records) -> Records | None:
        results: list[Any] = []
        ends: list[int] = []
        fn, call, failed = self._fn, self._call, self._failed
        if failed is None:
            rows = read_records(self._uid, self._reader, records)
        else:
            rows, records = read_or_set_aside(self._uid, self._reader, records, failed)
        record: Any = None
        for record in rows:
            try:
                made = call(record)
                if made is not None:
                    results.extend(made)
            except Exception as error:
                row = len(ends)
                if failed is None:
                    raise user_function_error(self._uid, fn, error, records, row, record) from error
                failed.add(fn, error, records, row, record)
                del results[ends[-1] if ends else 0 :]  # all that a record makes, or nothing
            ends.append(len(results))
        if not results:
            return None
        parent: Indices = np.repeat(np.arange(len(ends)), np.diff(ends, prepend=0))
        try:
            batch = self._writer.write(results)
        except WrongFieldError as error:
            raise wrong_result(self._uid, fn, error, records, int(parent[error.row])) from error
        return Records(
            batch,
            None if records.event_time is None else records.event_time[parent],
            None,
            None if records.origin is None else records.origin.take(parent),
            None if records.kind is None else records.kind[parent],
        )


def results_of(
    uid: str, fn: Callable[[Any], Any], reader: RecordReader, records: Records, failed: FailedRecords | None
) -> tuple[list[Any], Records]:
    """The function's result for each row, and the rows: all of them, unless some were set aside."""
    if failed is None:
        return call_each(uid, fn, read_records(uid, reader, records), records), records
    typed, readable = read_or_set_aside(uid, reader, records, failed)
    return call_or_set_aside(fn, typed, readable, failed)


def _is_true(fn: Callable[[Any], Any], record: Any) -> bool:
    return bool(fn(record))


def call_each(uid: str, fn: Callable[[Any], Any], rows: list[Any], records: Records) -> list[Any]:
    """The function's result for each row."""
    results: list[Any] = []
    try:
        results.extend(map(fn, rows))  # appends one by one: at an error its length is the row
        check_called(len(results), len(rows))
    except Exception as error:
        row = len(results)
        raise user_function_error(uid, fn, error, records, row, rows[row]) from error
    return results


def wrong_result(
    uid: str, fn: Callable[..., Any], error: WrongFieldError, records: Records, row: int
) -> UserFunctionError:
    """A function returned what its annotation does not promise; `row` is the input row it was called with."""
    place = shown_record(records, row, records.batch.slice(row, 1).to_pylist()[0])
    who = f"operator {uid!r}: {function_name(fn)}"
    return UserFunctionError(f"{who} for {place}: {error}", who, str(error), origin_of(records, row))
