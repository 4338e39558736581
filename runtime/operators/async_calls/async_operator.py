"""AsyncOperator: an operator whose function answers later. Its records are in flight meanwhile.

Records and barriers don't wait for answers: a barrier finds what is in flight in the snapshot, and whoever
restores it asks again. Watermarks do wait, each for the records before it (AnsweringOperator), and so does
the end of the input. What is asked when is decided in calls_in_flight.py.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import pyarrow as pa

from onceflow.runtime.errors import Fatal, Retryable
from onceflow.runtime.functions.questions import Calls, Question
from onceflow.runtime.operators.async_calls.calls_in_flight import Call, CallsInFlight
from onceflow.runtime.operators.async_calls.frozen_calls import TABLE, FrozenCalls, restored_rows
from onceflow.runtime.operators.async_calls.retry_policy import RetryPolicy
from onceflow.runtime.operators.failed_records import ErrorPolicy, FailedRecords, read_or_set_aside
from onceflow.runtime.operators.operator import FrozenState, OperatorContext, Output, RestoredState
from onceflow.runtime.records import Records
from onceflow.runtime.types.user_functions import (
    Reads,
    function_name,
    read_records,
    shown_record,
    user_function_error,
)

_LONG_MS = 3_600_000
"""When to look again while something is in flight that has no deadline: an answer wakes before."""


@dataclass(frozen=True)
class AsyncConfig:
    """What is called how. `schema`: the columns of the input that are kept in flight."""

    uid: str
    reader: Reads
    """Makes the arguments of the calls, one for each row."""
    schema: pa.Schema
    has_event_time: bool
    is_ordered: bool = True
    capacity: int = 100
    timeout_ms: int | None = None
    retries: RetryPolicy | None = None
    on_error: ErrorPolicy | None = None


class Answered(Protocol):
    """What an operator asks, and what it makes of answers; see AsyncMap."""

    function: Any
    """The user's, this subtask's own, which is opened and closed."""

    def calls(self, context: OperatorContext) -> Calls:
        """Who makes the calls."""
        ...

    def rows(self, answered: Sequence[Call]) -> Records | None:
        """The rows to send on for calls, one at least, that have been answered without an error. Raises
        UserFunctionError for a result that is not of the declared type."""
        ...


class AsyncOperator:
    """One subtask."""

    def __init__(self, config: AsyncConfig, answered: Answered) -> None:
        self._config = config
        self._answered = answered
        self._book = CallsInFlight(config.capacity, config.is_ordered, config.timeout_ms)
        self._failed: FailedRecords | None = None
        self._calls: Calls | None = None

    def open(self, context: OperatorContext, out: Output) -> None:
        self._out = out
        self._clock = context.clock
        self._key_groups = context.key_groups
        self._calls = self._answered.calls(context)
        if self._config.on_error is not None:
            self._failed = FailedRecords(self._config.on_error, context, out)
        context.open_function(self._answered.function, self._calls.run)

    def restore(self, states: Sequence[RestoredState]) -> None:
        for state in states:
            for records in restored_rows(state.batches(TABLE), self._config.schema):
                if self._config.has_event_time and records.event_time is None:
                    raise Fatal(
                        f"operator {self._config.uid!r}: the records in flight of this checkpoint are of a "
                        "stream without event time: start from one in which none is in flight, or give the "
                        "operator a new uid"
                    )
                self._add(read_records(self._config.uid, self._config.reader, records), records)
        self._ask()

    def on_records(self, records: Records) -> None:
        config = self._config
        if self._failed is None:
            self._add(read_records(config.uid, config.reader, records), records)
        else:
            self._add(*read_or_set_aside(config.uid, config.reader, records, self._failed))
            self._failed.send()
        self._ask()

    def on_watermark(self, time_ms: int) -> None:
        pass

    @property
    def is_full(self) -> bool:
        return self._book.is_full

    @property
    def rows_at_once(self) -> int:
        return self._config.capacity

    def begin_hold(self) -> None:
        self._book.begin_hold()

    @property
    def holds(self) -> bool:
        return self._book.holds

    def end_hold(self) -> None:
        self._book.end_hold()

    @property
    def wake_at_ms(self) -> int | None:
        """Now, if answers have come or what has been answered may go; else when a pause or a deadline is
        over. Never None while something is in flight: it is to be sent at some time."""
        if not len(self._book):
            return None
        now_ms = self._clock.now_ms()
        if self._book.has_ready or (self._calls is not None and self._calls.has_answers):
            return now_ms
        at_ms = self._book.wake_at_ms
        left_ms = _LONG_MS if at_ms is None else at_ms - self._clock.monotonic_ms()
        return now_ms + max(0, int(-(-left_ms // 1)))

    def on_clock(self, now_ms: int, rows_max: int) -> int:
        """Take the answers that have come, send what may go, and ask what there is room for."""
        assert self._calls is not None, "open comes first"
        for answer in self._calls.take():
            call = self._book.find(answer.number, answer.attempt)
            if call is not None:
                self._on_answer(call, answer.result, answer.error)
        for call in self._book.expired(self._clock.monotonic_ms()):
            self._calls.give_up(call.number)
            seconds = (self._config.timeout_ms or 0) / 1_000
            times = "" if call.attempt == 1 else f", in {call.attempt} attempts"
            self._book.answer(call, None, TimeoutError(f"no answer within {seconds:g} s{times}"))
        sent = self._send(self._book.ready(rows_max))
        self._ask()
        return sent

    def snapshot(self) -> FrozenState:
        config = self._config
        calls = self._book.in_order()
        frozen = FrozenCalls(calls, config.schema, config.has_event_time, self._key_groups)
        return FrozenState(self._key_groups, {TABLE: frozen})

    def close(self) -> None:
        if self._calls is not None:
            self._calls.close()

    # --- The way of a record

    def _add(self, typed: Sequence[Any], records: Records) -> None:
        """Rows that came, or that were in flight at the checkpoint, and what is asked for each."""
        self._book.add(Call(records, row, argument) for row, argument in enumerate(typed))

    def _ask(self) -> None:
        assert self._calls is not None, "open comes first"
        asked = self._book.to_ask(self._clock.monotonic_ms())
        if asked:
            self._calls.ask([Question(call.number, call.attempt, call.argument) for call in asked])

    def _on_answer(self, call: Call, result: Any, error: Exception | None) -> None:
        retries = self._config.retries
        if retries is not None:
            now_ms = self._clock.monotonic_ms()
            pause_ms = retries.pause_ms(call.attempt, call.began_ms, now_ms, result, error)
            if pause_ms is not None:
                self._book.ask_again(call, now_ms + pause_ms)
                return
        self._book.answer(call, result, error)

    def _send(self, calls: Sequence[Call]) -> int:
        good = calls
        if any(call.error is not None for call in calls):
            good = [call for call in calls if call.error is None or self._set_aside(call)]
        rows = self._answered.rows(good) if good else None
        if rows is not None:
            self._out.emit(rows)
        if self._failed is not None:
            self._failed.send()
        return len(calls)

    def _set_aside(self, call: Call) -> bool:
        """A call that has failed: raises, or puts its row aside. Never true."""
        error, function = call.error, self._answered.function
        assert error is not None, "only such calls"
        if self._failed is None:
            uid = self._config.uid
            if isinstance(error, TimeoutError) and error.__traceback__ is None:  # ours: nobody's mistake
                place = shown_record(call.records, call.row, call.argument)
                raise Retryable(f"operator {uid!r}: {function_name(function)} gave {error} for {place}")
            raise user_function_error(uid, function, error, call.records, call.row, call.argument) from error
        self._failed.add(function, error, call.records, call.row, call.argument)
        return False
