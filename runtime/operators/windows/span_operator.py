"""SpanOperator: windows whose bounds change, or that fire more than once; a row of its table for each.

Sessions, and all windows with allowed lateness. Windows that fire once and never change have operators of
their own, which are faster: WindowOperator and PaneOperator.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import pyarrow as pa

from onceflow.runtime.arrays.sorting import stable_order
from onceflow.runtime.operators.aggregation.accumulator import SumOverflow
from onceflow.runtime.operators.assigners.by_clock import TimeWindow
from onceflow.runtime.operators.assigners.firings import Firings, Results
from onceflow.runtime.operators.operator import FrozenState, OperatorContext, Output, RestoredState
from onceflow.runtime.operators.windows.span_rows import TABLE, Changed, SpanRows, lowest
from onceflow.runtime.operators.windows.spans_away import FIRING, GONE, gone_ms
from onceflow.runtime.operators.windows.window_operator import EMIT_ROWS_MAX, WindowValues
from onceflow.runtime.records import (
    WATERMARK_MAX_MS,
    WATERMARK_MIN_MS,
    Indices,
    Int64s,
    Kinds,
    Mask,
    Records,
    RowKind,
)
from onceflow.runtime.state.asked_keys import AskedKeys
from onceflow.runtime.state.number_columns import FlagColumn
from onceflow.runtime.state.overflow import NO_WAKE_MS
from onceflow.runtime.state.table import RowColumn


class SpanOperator:
    """One subtask of event-time windows, each a span of time of one key that may still grow.

    Which window a row counts in, and what is late: SpanRows. A window fires when the watermark reaches its
    last millisecond, and at once when a batch changes it after that.

    Windows that are due fire piece by piece (FiringOperator). What comes between two pieces finds what it
    would have found behind all of them: windows that are late are not joined, whether they have fired or not.
    """

    def __init__(
        self,
        uid: str,
        key_columns: Sequence[str],
        schema: pa.Schema,
        window: TimeWindow,
        values: WindowValues,
        firings: Firings,
        late: bool,
    ) -> None:
        self._fired = FlagColumn()
        columns: dict[str, RowColumn] = {"fired": self._fired, "value": values}
        self._spans = SpanRows(uid, (key_columns, schema), window, columns, firings.lateness_ms, late)
        self._table, self._start, self._end = self._spans.table, self._spans.start, self._spans.end
        self._away = self._spans.away
        self._values = values
        self._firings = firings
        self._earliest_end = WATERMARK_MAX_MS
        """No window that has not fired ends earlier."""
        self._earliest_fired = WATERMARK_MAX_MS
        """No window that has fired, and stays for late rows, ends earlier."""
        self._due: Indices | None = None
        """What is being fired, earliest end first. No row is renumbered meanwhile."""

    def open(self, context: OperatorContext, out: Output) -> None:
        self._context = context
        self._out = out
        self._spans.open(context, out, self)
        self._lateness = self._spans.lateness
        for function in self._values.functions:
            context.open_function(function)

    def restore(self, states: Sequence[RestoredState]) -> None:
        self._away.restore(states, TABLE)
        self._lateness.restore(state.meta for state in states)

    def on_records(self, records: Records) -> None:
        changed = self._spans.change(records) if len(records) else None
        if changed is not None:
            self._take_in(changed)

    def on_watermark(self, time_ms: int) -> None:
        self._lateness.reached_ms = max(time_ms, self._lateness.reached_ms)

    def fire(self, rows_max: int) -> int:
        due = self._due = self._find_due() if self._due is None else self._due
        if due is None:
            self._let_go()
            return int(self._away.bring_gone())
        count = min(rows_max, EMIT_ROWS_MAX)
        piece, rest = due[:count], due[count:]
        self._due = rest if len(rest) else None
        # It may have fired since, with late rows, or have become a part of another.
        self._fire(piece[~self._fired.of(piece) & (self._end.of(piece) - 1 <= self._lateness.reached_ms)])
        return len(piece)

    def snapshot(self) -> FrozenState:
        return FrozenState(self._context.key_groups, {TABLE: self._away.freeze()}, self._lateness.as_meta())

    def peek(self, asked: AskedKeys) -> list[pa.RecordBatch]:
        return self._away.peek(asked)

    def close(self) -> None:
        self._away.close()

    @property
    def next_due_ms(self) -> int | None:
        """The watermark, plus one, at which something is due that is not yet, or comes back. None: nothing is
        there."""
        if self._due is not None:
            return self._lateness.reached_ms
        away_ms = self._away.next_ms
        first_ms = self._earliest_end if away_ms is None else min(self._earliest_end, away_ms + 1)
        return None if first_ms == WATERMARK_MAX_MS else first_ms

    # --- Windows that are away ---

    @property
    def holds_rows(self) -> bool:
        return self._due is not None

    def came_back(self, rows: Indices) -> None:
        fired, ends = self._fired.of(rows), self._end.of(rows)
        if self._firings.results is Results.DISCARDING:
            self._table.reset(["value"], rows[fired])
        self._earliest_end = lowest(self._earliest_end, ends[~fired])
        self._earliest_fired = lowest(self._earliest_fired, ends[fired])

    def wakes_of(self, rows: Indices) -> Mapping[int, Int64s]:
        fired, ends = self._fired.of(rows), self._end.of(rows)
        return {
            FIRING: np.where(fired, NO_WAKE_MS, ends - 1),
            GONE: np.where(fired, gone_ms(ends, self._firings.lateness_ms), NO_WAKE_MS),
        }

    # --- Records ---

    def _take_in(self, changed: Changed) -> None:
        """Let these records count in their windows; and fire the ones whose end the watermark has passed."""
        was_sent = self._take_back(changed.joined, changed.into, changed.starts, changed.ends)
        rows, _ = self._spans.join(changed, self._merge)
        try:
            self._values.update(changed.records, rows[changed.number])
        except SumOverflow as error:
            raise self._spans.overflow(error) from error
        has_passed = changed.ends - 1 <= self._spans.late_until(changed.keys)
        self._fired.put(rows, False)
        self._earliest_end = lowest(self._earliest_end, changed.ends[~has_passed])
        if has_passed.any():
            self._fire(rows[has_passed], was_sent[has_passed])
        self._away.compact()

    def _merge(self, into: Indices, parts: Indices) -> None:
        self._values.merge(into, parts)
        self._fired.put(parts, True)  # they are not due any more

    def _take_back(self, joined: Indices, into: Indices, starts: Int64s, ends: Int64s) -> Mask:
        """Send what those of the joined windows had sent, as updates if the window stays the same, and else
        as deletes. Returns which windows have been sent with the same bounds."""
        was_sent = np.zeros(len(starts), np.bool_)
        has_fired = self._fired.of(joined)
        if not self._firings.has_kinds or not has_fired.any():
            return was_sent
        rows, into = joined[has_fired], into[has_fired]
        is_same = (self._start.of(rows) == starts[into]) & (self._end.of(rows) == ends[into])
        was_sent[into[is_same]] = True
        self._emit(rows, np.where(is_same, RowKind.UPDATE_BEFORE, RowKind.DELETE).astype(np.int8))
        return was_sent

    # --- Firing ---

    def _find_due(self) -> Indices | None:
        due, until_ms = None, WATERMARK_MIN_MS
        while due is None and until_ms < self._lateness.reached_ms:
            until_ms = self._away.due_until(self._earliest_end - 1)
            due = self._find_due_until(until_ms)
        return due

    def _find_due_until(self, until_ms: int) -> Indices | None:
        """The windows that are here and end then or before, and have not fired."""
        if self._earliest_end - 1 > until_ms:
            return None
        rows = self._table.rows()
        rows = rows[~self._fired.of(rows)]
        ends = self._end.of(rows)
        is_due = ends - 1 <= until_ms
        self._earliest_end = lowest(WATERMARK_MAX_MS, ends[~is_due])
        due = rows[is_due]
        return due[stable_order(ends[is_due])] if len(due) else None

    def _fire(self, rows: Indices, was_sent: Mask | None = None) -> None:
        """Send the results of these windows; those that were sent before are updated."""
        if not len(rows):
            return
        kinds = None
        if was_sent is not None and was_sent.any():
            kinds = np.where(was_sent, RowKind.UPDATE_AFTER, RowKind.INSERT).astype(np.int8)
        self._emit(rows, kinds)
        if not self._firings.lateness_ms:
            self._table.remove(rows)
            return
        self._fired.put(rows, True)
        self._table.note_changed(rows)
        self._earliest_fired = lowest(self._earliest_fired, self._end.of(rows))
        if self._firings.results is Results.DISCARDING:
            self._table.reset(["value"], rows)

    def _emit(self, rows: Indices, kinds: Kinds | None) -> None:
        ends = self._end.of(rows)
        batch = self._values.results(self._table.keys(rows), self._start.of(rows), ends, rows)
        self._out.emit(Records(batch, ends - 1, kind=kinds))

    def _let_go(self) -> None:
        """All windows up to the watermark have fired: forget those for which no late row counts any more."""
        self._lateness.note_all_fired()
        gone_ms = self._lateness.reached_ms - self._firings.lateness_ms
        if self._earliest_fired - 1 <= gone_ms or self._lateness.reached_ms == WATERMARK_MAX_MS:
            rows = self._table.rows()
            rows = rows[self._fired.of(rows)]
            ends = self._end.of(rows)
            is_gone = (ends - 1 <= gone_ms) | (self._lateness.reached_ms == WATERMARK_MAX_MS)
            self._table.remove(rows[is_gone])
            self._earliest_fired = lowest(WATERMARK_MAX_MS, ends[~is_gone])
        self._away.compact()
