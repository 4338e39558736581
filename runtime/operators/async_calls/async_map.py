"""AsyncMap: one record out for each record in, made by a function that answers later."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from onceflow.runtime.functions.lives import own_instance
from onceflow.runtime.functions.questions import Calls
from onceflow.runtime.operators.async_calls.calls_in_flight import Call
from onceflow.runtime.operators.operator import OperatorContext
from onceflow.runtime.operators.stateless import wrong_result
from onceflow.runtime.records import Int64s, Records
from onceflow.runtime.types.columns_of_records import RecordWriter, WrongFieldError


class AsyncMap:
    """The results of a function of one record, as an AsyncOperator sends them. `writer` is that of the
    function's return type."""

    def __init__(self, uid: str, fn: Callable[[Any], Any], writer: RecordWriter, capacity: int) -> None:
        self.function = own_instance(fn, uid)
        self._uid, self._writer, self._capacity = uid, writer, capacity

    def calls(self, context: OperatorContext) -> Calls:
        return context.calls(self.function, self._capacity)

    def rows(self, answered: Sequence[Call]) -> Records | None:
        try:
            batch = self._writer.write([call.result for call in answered])
        except WrongFieldError as error:
            call = answered[error.row]
            raise wrong_result(self._uid, self.function, error, call.records, call.row) from error
        return Records(batch, event_times_of(answered))


def event_times_of(calls: Sequence[Call]) -> Int64s | None:
    """The event time of each call's row; None: the stream has none."""
    if calls[0].records.event_time is None:
        return None
    return np.array([call.records.event_time[call.row] for call in calls], np.int64)  # type: ignore[index]
