"""LateFirings: when windows that have ended fire for late rows, which wait for it."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from onceflow.runtime.operators.triggers.built_in import BuiltInTrigger
from onceflow.runtime.operators.windows.row_trigger import Acts, fires_each, next_multiple
from onceflow.runtime.operators.windows.spans_away import gone_ms
from onceflow.runtime.records import WATERMARK_MAX_MS, Indices, Int64s
from onceflow.runtime.state.number_columns import NumberColumn
from onceflow.runtime.state.table import RowColumn

_NEVER_MS = WATERMARK_MAX_MS


class LateFirings:
    """The part of BuiltInRows that `at_watermark(late=...)` asks for: what late rows each window has that it
    has not sent. It sends them when the trigger says so, and at the latest before it is forgotten. A session
    that goes on has no late rows any more: it fires with its new end."""

    def __init__(self, trigger: BuiltInTrigger, lateness_ms: int) -> None:
        self._trigger = trigger
        self._lateness_ms = lateness_ms
        self.is_by_clock = trigger.every_clock_ms is not None
        self._unsent = NumberColumn()
        self._at = NumberColumn()
        """When the window fires for them, by the watermark or by the clock; _NEVER_MS: nothing is unsent."""
        self._has_times = trigger.rows is None
        self.columns: Mapping[str, RowColumn] = {"late_rows": self._unsent}
        if self._has_times:
            self.columns = {**self.columns, "late_ms": self._at}

    def begin(self, new: Indices) -> None:
        if self._has_times:
            self._at.put(new, _NEVER_MS)

    def merge(self, into: Indices, parts: Indices) -> None:
        self._unsent.add_each(into, self._unsent.of(parts))
        if self._has_times:
            self._at.lower(into, self._at.of(parts))

    def on_rows(self, rows: Indices, passed_ms: int | Int64s, now_ms: int) -> Acts:
        """What each late row leads to, in the window that its row is, whose end `passed_ms` has passed."""
        if self._trigger.rows is not None:
            return fires_each(self._unsent, self._trigger.rows, rows)
        self._unsent.add_each(rows, 1)
        if self._trigger.every_ms is not None:
            reached_ms = np.minimum(np.broadcast_to(passed_ms, len(rows)), _NEVER_MS - 1) + 1
            self._at.lower(rows, next_multiple(reached_ms, self._trigger.every_ms) - 1)
        elif self._trigger.every_clock_ms is not None:
            clock_ms = np.full(len(rows), now_ms, np.int64)
            self._at.lower(rows, next_multiple(clock_ms, self._trigger.every_clock_ms))
        return np.zeros(len(rows), np.int8)

    def event_ms(self, rows: Indices, ends: Int64s) -> Int64s:
        """When each of these windows fires for late rows by the watermark; WATERMARK_MAX_MS: for none."""
        at_ms = gone_ms(ends, self._lateness_ms)
        if self._trigger.every_ms is not None:
            at_ms = np.minimum(at_ms, self._at.of(rows))
        return np.where(self._unsent.of(rows) > 0, at_ms, _NEVER_MS)

    def clock_ms(self, rows: Indices) -> Int64s:
        """The same by the clock."""
        return self._at.of(rows) if self.is_by_clock else np.full(len(rows), _NEVER_MS, np.int64)

    def forget(self, rows: Indices) -> None:
        """All of these windows has been sent, or will be at their end."""
        self._unsent.put(rows, 0)
        self.begin(rows)
