"""MapBatches: the user's function over whole batches, without state."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import polars as pl
import pyarrow as pa

from onceflow.runtime.errors import OnceflowError, UserFunctionError
from onceflow.runtime.functions.lives import own_instance
from onceflow.runtime.operators.failed_records import FailedRecords
from onceflow.runtime.operators.operator import OperatorContext
from onceflow.runtime.records import Int64s, Records, concatenated
from onceflow.runtime.types.user_functions import function_name, user_function_error


class MapBatches:
    """The user's function over whole batches, pyarrow or polars.

    Row i of what it returns belongs to row i of what it got, unless `event_time` names an output column
    (ms, or a timestamp) that says when each row happened: then it may return any number of rows, at most
    `behind_ms` earlier than those it got. The watermark is held back by that, so none of them is late
    unless what it was made of was.
    """

    _failed: FailedRecords | None = None

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

    @property
    def function(self) -> Any:
        return self._fn

    def open(self, context: OperatorContext, failed: FailedRecords | None) -> None:
        context.open_function(self._fn)
        self._failed = failed

    def __call__(self, records: Records) -> Records | None:
        if self._failed is not None:
            return self._call_or_set_aside(records, self._failed)
        try:
            returned = self._call(records)
        except Exception as error:
            shown = f"... a batch of {len(records)}"
            raise user_function_error(self._uid, self._fn, error, None, 0, shown) from error
        return self._made(returned, records)

    def _call(self, records: Records) -> Any:
        return self._fn(pl.from_arrow(records.batch) if self._is_polars else records.batch)

    def _call_or_set_aside(self, records: Records, failed: FailedRecords) -> Records | None:
        """A batch for which the function raises is called again in halves, down to the rows that fail: how
        rows are cut into batches must change no result, and so not which rows fail either."""
        left, made = [(0, len(records))], list[Records]()
        while left:
            start, count = left.pop()
            part = records.slice(start, count)
            try:
                returned = self._call(part)
            except Exception as error:
                if count == 1 or isinstance(error, OnceflowError):
                    failed.add(self._fn, error, records, start, f"... a batch of {count}")
                else:
                    half = count // 2
                    left += [(start + half, count - half), (start, half)]
                continue
            if (rows := self._made(returned, part)) is not None:
                made.append(rows)
        return concatenated(made) if made else None

    def _made(self, returned: Any, records: Records) -> Records | None:
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
