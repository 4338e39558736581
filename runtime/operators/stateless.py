"""The user's own functions without state: map, flat_map, filter, and map_batches.

Per-record functions run in a tight loop over the batch; an error names operator, function, record and
the user's line. Event time, origin and kind of an output row are those of the record it came from.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any, Protocol, runtime_checkable

import numpy as np
import polars as pl
import pyarrow as pa

from onceflow.runtime.errors import UserFunctionError
from onceflow.runtime.functions.lives import own_instance
from onceflow.runtime.operators.operator import FrozenState, OperatorContext, Output, RestoredState
from onceflow.runtime.records import Indices, Int64s, Mask, Records
from onceflow.runtime.types.columns_of_records import RecordWriter, WrongFieldError, array_from_values
from onceflow.runtime.types.records_of_columns import RecordReader
from onceflow.runtime.types.user_functions import (
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

    def open(self, context: OperatorContext) -> None:
        """Open it, before the first batch."""
        ...


class Stateless:
    """An operator that only transforms batches: nothing at watermarks, barriers and the end.

    `transform` gives the rows to send on, or None if there are none.
    """

    def __init__(self, transform: Callable[[Records], Records | None]) -> None:
        self._transform = transform

    def open(self, context: OperatorContext, out: Output) -> None:
        self._out = out
        transform: object = self._transform
        if isinstance(transform, CallsFunction):
            transform.open(context)

    def restore(self, states: Sequence[RestoredState]) -> None:
        assert not states, "a stateless operator has no state"

    def on_records(self, records: Records) -> None:
        transformed = self._transform(records)
        if transformed is not None:
            self._out.emit(transformed)

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

    def __init__(
        self, uid: str, fn: Callable[[Any], Any], reader: RecordReader, writer: RecordWriter
    ) -> None:
        self._uid, self._fn = uid, own_instance(fn, uid)
        self._reader, self._writer = reader, writer

    def open(self, context: OperatorContext) -> None:
        context.open_function(self._fn)

    def __call__(self, records: Records) -> Records | None:
        results = call_each(self._uid, self._fn, read_records(self._uid, self._reader, records), records)
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

    def open(self, context: OperatorContext) -> None:
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

    def __init__(self, uid: str, fn: Callable[[Any], Any], reader: RecordReader) -> None:
        self._uid, self._fn, self._reader = uid, own_instance(fn, uid), reader

    def open(self, context: OperatorContext) -> None:
        context.open_function(self._fn)

    def __call__(self, records: Records) -> Records | None:
        results = call_each(self._uid, self._fn, read_records(self._uid, self._reader, records), records)
        mask: Mask = np.fromiter(map(bool, results), np.bool_, len(results))
        return records.filter(mask) if mask.any() else None


class FlatMapRecords:
    """Any number of records out for each record in: the function yields, or returns an iterable or None."""

    def __init__(
        self, uid: str, fn: Callable[[Any], Iterable[Any] | None], reader: RecordReader, writer: RecordWriter
    ) -> None:
        self._uid, self._fn = uid, own_instance(fn, uid)
        self._reader, self._writer = reader, writer

    def open(self, context: OperatorContext) -> None:
        context.open_function(self._fn)

    def __call__(self, records: Records) -> Records | None:
        results: list[Any] = []
        ends: list[int] = []
        fn = self._fn
        rows = read_records(self._uid, self._reader, records)
        try:
            for record in rows:
                made = fn(record)
                if made is not None:
                    results.extend(made)
                ends.append(len(results))
        except Exception as error:
            row = len(ends)
            raise user_function_error(self._uid, fn, error, records, row, rows[row]) from error
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


class MapBatches:
    """The user's function over whole batches, pyarrow or polars.

    Row i of what it returns belongs to row i of what it got, unless `event_time` names an output column
    (ms, or a timestamp) that says when each row happened: then it may return any number of rows, at most
    `behind_ms` earlier than those it got. The watermark is held back by that, so none of them is late
    unless what it was made of was.
    """

    def __init__(
        self,
        uid: str,
        fn: Callable[[Any], Any],
        schema: pa.Schema,
        is_polars: bool,
        event_time: str | None,
        behind_ms: int = 0,
    ) -> None:
        self._uid, self._fn, self._schema = uid, own_instance(fn, uid), schema
        self._is_polars, self._event_time, self._behind_ms = is_polars, event_time, behind_ms

    def open(self, context: OperatorContext) -> None:
        context.open_function(self._fn)

    def __call__(self, records: Records) -> Records | None:
        given = pl.from_arrow(records.batch) if self._is_polars else records.batch
        try:
            returned = self._fn(given)
        except Exception as error:
            shown = f"... a batch of {len(records)}"
            raise user_function_error(self._uid, self._fn, error, None, 0, shown) from error
        batch = self._as_batch(returned)
        if not len(batch):
            return None
        if self._event_time is not None:
            at = batch.column(self._event_time)
            if pa.types.is_timestamp(at.type):
                at = at.cast(pa.timestamp("ms", at.type.tz), safe=False)
            if at.null_count:
                raise self._refusal(f"column {self._event_time!r} has nulls, and is to be the event time")
            times = at.cast(pa.int64()).to_numpy(zero_copy_only=False)
            self._refuse_earlier(times, records)
            return Records(batch, times)
        if len(batch) == len(records):
            return Records(batch, records.event_time, None, records.origin)
        if records.event_time is None:
            return Records(batch)
        raise self._refusal(
            f"{len(batch)} rows were returned for {len(records)}, so it is open which event time they "
            "have: name an output column in map_batches(..., event_time=)"
        )

    def _refuse_earlier(self, times: Int64s, records: Records) -> None:
        """What is earlier than was said may lie behind the watermark, and would be late without a word."""
        assert records.event_time is not None, "refused when the graph was built"
        too_early_ms = int(records.event_time.min()) - self._behind_ms - int(times.min())
        if too_early_ms > 0:
            raise self._refusal(
                f"{self._event_time!r} is {int(times.min())}, which is {too_early_ms + self._behind_ms} ms "
                f"before the earliest of the rows that were given, and behind= allows {self._behind_ms} ms: "
                "make it longer, and the watermark waits for such rows"
            )

    def _as_batch(self, returned: Any) -> pa.RecordBatch:
        if isinstance(returned, pl.DataFrame):
            returned = returned.to_arrow()
        if not isinstance(returned, pa.Table | pa.RecordBatch):
            raise self._refusal(
                f"a {type(returned).__name__} was returned; expected a RecordBatch, Table or DataFrame"
            )
        columns = []
        for field in self._schema:
            if field.name not in returned.schema.names:
                raise self._refusal(
                    f"column {field.name!r} of the declared schema is not in what was returned; "
                    f"there are {', '.join(returned.schema.names)}"
                )
            column = returned.column(field.name)
            if isinstance(column, pa.ChunkedArray):
                column = column.combine_chunks()
            try:
                column = column.cast(field.type)
            except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
                raise self._refusal(
                    f"column {field.name!r} is declared {field.type} but is {column.type}: {error}"
                ) from error
            if column.null_count and not field.nullable:
                raise self._refusal(f"column {field.name!r} has nulls, but is declared without")
            columns.append(column)
        return pa.RecordBatch.from_arrays(columns, schema=self._schema)

    def _refusal(self, reason: str) -> UserFunctionError:
        return UserFunctionError(f"operator {self._uid!r}: {function_name(self._fn)}: {reason}")


def call_each(uid: str, fn: Callable[[Any], Any], rows: list[Any], records: Records) -> list[Any]:
    """The function's result for each row."""
    results: list[Any] = []
    try:
        results.extend(map(fn, rows))  # appends one by one: at an error its length is the row
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
