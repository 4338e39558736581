"""ClockWindowOperator: windows in processing time, on top of those in event time."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pyarrow as pa

from onceflow.runtime.operators.operator import MAIN, FrozenState, OperatorContext, Output, RestoredState
from onceflow.runtime.operators.windows.span_operator import SpanOperator
from onceflow.runtime.operators.windows.triggered_operator import TriggeredOperator
from onceflow.runtime.records import WATERMARK_MAX_MS, WATERMARK_MIN_MS, Records
from onceflow.runtime.state.asked_keys import AskedKeys


class ClockWindowOperator:
    """One subtask of windows by the clock: a row belongs to the time at which it comes, and the clock, not
    the watermark, says when a window fires. So nothing is late. The end of the input fires what is there.

    A restored window fires when the clock of this machine has come to its end, wherever it was before.
    """

    def __init__(self, spans: SpanOperator | TriggeredOperator, has_event_time: bool) -> None:
        """`has_event_time`: whether the stream has, and results need one."""
        self._spans = spans
        self._has_event_time = has_event_time
        self._time_ms = WATERMARK_MIN_MS
        """How far the clock has come; it never goes back here."""
        self._watermark_ms = WATERMARK_MIN_MS

    def open(self, context: OperatorContext, out: Output) -> None:
        self._clock = context.clock
        self._out = out
        self._spans.open(context, self)

    def restore(self, states: Sequence[RestoredState]) -> None:
        # How far another machine's clock was says nothing for this one.
        self._spans.restore([replace(state, meta={"watermarks": []}) for state in states])

    def on_records(self, records: Records) -> None:
        self._look()
        times = np.full(len(records), self._time_ms, np.int64)
        self._spans.on_records(replace(records, event_time=times))

    def on_watermark(self, time_ms: int) -> None:
        self._watermark_ms = max(self._watermark_ms, time_ms)
        if time_ms == WATERMARK_MAX_MS:
            self._spans.on_watermark(WATERMARK_MAX_MS)

    def fire(self, rows_max: int) -> int:
        return self._spans.fire(rows_max)

    @property
    def wake_at_ms(self) -> int | None:
        times = [self._spans.next_due_ms]
        if isinstance(self._spans, TriggeredOperator):
            times.append(self._spans.wake_at_ms)
        return min((at_ms for at_ms in times if at_ms is not None), default=None)

    def on_clock(self, now_ms: int, rows_max: int) -> int:
        self._look()
        fired = self._spans.fire(rows_max)
        if isinstance(self._spans, TriggeredOperator) and fired < rows_max:
            fired += self._spans.on_clock(now_ms, rows_max - fired)
        return fired

    def snapshot(self) -> FrozenState:
        return self._spans.snapshot()

    def peek(self, asked: AskedKeys) -> list[pa.RecordBatch]:
        return self._spans.peek(asked)

    def close(self) -> None:
        self._spans.close()

    def emit(self, records: Records, tag: str = MAIN) -> None:
        """Send results on; called by the windows beneath. Their event time is the first one that is not late
        downstream."""
        times = None
        if self._has_event_time:
            ahead = 0 if self._watermark_ms in (WATERMARK_MIN_MS, WATERMARK_MAX_MS) else 1
            assert records.event_time is not None
            times = np.full(len(records), self._watermark_ms + 1, np.int64) if ahead else records.event_time
        self._out.emit(replace(records, event_time=times), tag)

    def _look(self) -> None:
        """Let the windows know what time it is: all before this ms is over."""
        self._time_ms = max(self._time_ms, self._clock.now_ms())
        self._spans.on_watermark(self._time_ms - 1)
