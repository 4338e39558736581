"""TriggeredOperator: windows that a trigger tells when to send their result."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa

from onceflow.runtime.operators.aggregation.accumulator import SumOverflow
from onceflow.runtime.operators.assigners.firings import Firings, Results
from onceflow.runtime.operators.assigners.global_window import GlobalWindow
from onceflow.runtime.operators.operator import FrozenState, OperatorContext, Output, RestoredState
from onceflow.runtime.operators.windows.due_windows import DueWindows
from onceflow.runtime.operators.windows.new_spans import SpanWindow
from onceflow.runtime.operators.windows.ranks import places_by_number, sum_before
from onceflow.runtime.operators.windows.row_trigger import Acted, Acts, RowTrigger
from onceflow.runtime.operators.windows.sent_results import SentResults
from onceflow.runtime.operators.windows.span_rows import TABLE, Changed, SpanRows, lowest
from onceflow.runtime.operators.windows.spans_away import BY_CLOCK, FIRING, GONE, gone_ms
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
from onceflow.runtime.state.number_columns import FlagColumn, NumberColumn
from onceflow.runtime.state.table import RowColumn

_FIRE, _PURGE = 1, 2
_EMPTY_MIN = 1 << 10


@dataclass(frozen=True, slots=True)
class TriggeredWindows:
    """What a TriggeredOperator is of. `schema`: of what comes; `output`: of results."""

    uid: str
    key_columns: Sequence[str]
    schema: pa.Schema
    window: SpanWindow
    firings: Firings
    late: bool
    has_event_time: bool
    output: pa.Schema


class TriggeredOperator:
    """One subtask of windows with a trigger: which window a row counts in, and what is late, SpanRows says;
    when a window sends its result, or forgets its rows, the trigger.

    A batch is taken in in rounds, each of which ends with at most one decision of the trigger for a window:
    so a result has exactly the rows that had come by then, however rows are cut into batches. A window whose
    lateness is over is forgotten, sent or not.

    What is due by the watermark is fired in pieces (FiringOperator). A row for a window of which something is
    still due has that fired first. What an earlier result was is kept where it has to be taken back.
    """

    def __init__(self, config: TriggeredWindows, values: WindowValues, trigger: RowTrigger) -> None:
        firings = config.firings
        self._count, self._is_changed = NumberColumn(), FlagColumn()
        self._sent = SentResults(config.output) if firings.has_kinds else None
        columns: dict[str, RowColumn] = {"rows": self._count, "changed": self._is_changed}
        columns |= {"value": values, **trigger.columns}
        columns |= {} if self._sent is None else {"sent": self._sent}
        layout = config.key_columns, config.schema
        self._spans = SpanRows(config.uid, layout, config.window, columns, firings.lateness_ms, config.late)
        self._table, self._away = self._spans.table, self._spans.away
        self._is_global = isinstance(config.window, GlobalWindow)
        self._values = values
        self._trigger = trigger
        self._firings = firings
        self._has_event_time = config.has_event_time
        self._earliest_end = WATERMARK_MAX_MS
        """No window ends earlier."""

    def open(self, context: OperatorContext, out: Output) -> None:
        self._context = context
        self._out = out
        self._spans.open(context, out, self)
        self._lateness = self._spans.lateness
        self._trigger.open(context, self._spans)
        self._due = DueWindows(self._trigger, self._spans)
        for function in [*self._values.functions, *self._trigger.functions]:
            context.open_function(function)

    def restore(self, states: Sequence[RestoredState]) -> None:
        self._away.restore(states, TABLE)
        self._lateness.restore(state.meta for state in states)

    def on_records(self, records: Records) -> None:
        if not len(records):
            return
        if records.event_time is None:  # aggregates that go by time go by arrival
            records = replace(records, event_time=np.zeros(len(records), np.int64))
        changed = self._spans.change(records)
        if changed is None:
            return
        if self._trigger.is_firing or self._lateness.has_floors:
            passed_ms = np.broadcast_to(self._spans.late_until(changed.keys), len(changed.keys))
            acted = self._trigger.due_of(changed.joined, passed_ms[changed.into])
            if acted is not None:
                self._act_in_order(acted)
        self._take_in(changed)
        if not self._trigger.is_firing:
            self._away.compact()

    def on_watermark(self, time_ms: int) -> None:
        self._lateness.reached_ms = max(time_ms, self._lateness.reached_ms)
        self._trigger.on_watermark(time_ms)

    def fire(self, rows_max: int) -> int:
        count = min(rows_max, EMIT_ROWS_MAX)
        acted = self._due.by_event_time(count)
        if acted is None and self._lateness.reached_ms == WATERMARK_MAX_MS:
            acted = self._due.by_clock(WATERMARK_MAX_MS, count)
        if acted is None:
            self._let_go()
            return int(self._away.bring_gone())
        self._act_in_order(acted)
        return acted.looked

    @property
    def next_due_ms(self) -> int | None:
        """The watermark, plus one, at which something is due that is not yet, or a window is forgotten. None:
        nothing is there."""
        end_ms = self._earliest_end
        gone_ms = end_ms if end_ms == WATERMARK_MAX_MS else end_ms + self._firings.lateness_ms
        first_ms = min(gone_ms, self._due.next_event_ms)
        return None if first_ms == WATERMARK_MAX_MS else first_ms

    @property
    def wake_at_ms(self) -> int | None:
        return self._due.next_clock_ms

    def on_clock(self, now_ms: int, rows_max: int) -> int:
        acted = self._due.by_clock(now_ms, min(rows_max, EMIT_ROWS_MAX))
        if acted is None:
            return 0
        fired_ms = self._lateness.fired_ms
        if fired_ms not in (WATERMARK_MIN_MS, WATERMARK_MAX_MS):  # the first time that is not late downstream
            acted = replace(acted, times=np.full(len(acted.rows), fired_ms + 1, np.int64))
        self._act_in_order(acted)
        return acted.looked

    def snapshot(self) -> FrozenState:
        if self._is_global:
            self._forget_empty()
        return FrozenState(self._context.key_groups, {TABLE: self._away.freeze()}, self._lateness.as_meta())

    def peek(self, asked: AskedKeys) -> list[pa.RecordBatch]:
        return self._away.peek(asked)

    def close(self) -> None:
        self._away.close()

    # --- Windows that are away ---

    @property
    def holds_rows(self) -> bool:
        return self._trigger.holds_rows

    def came_back(self, rows: Indices) -> None:
        self._trigger.restored(rows)
        self._earliest_end = lowest(self._earliest_end, self._spans.end.of(rows))

    def wakes_of(self, rows: Indices) -> Mapping[int, Int64s]:
        return {
            FIRING: self._trigger.event_ms(rows),
            GONE: gone_ms(self._spans.end.of(rows), self._firings.lateness_ms),
            BY_CLOCK: self._trigger.clock_ms(rows),
        }

    # --- Records ---

    def _take_in(self, changed: Changed) -> None:
        is_grown = self._is_grown(changed)
        self._trigger.gather(changed, is_grown)
        windows, is_new = self._spans.join(changed, self._merge)
        self._earliest_end = lowest(self._earliest_end, changed.ends)
        self._trigger.begin(windows, is_new, is_grown)
        records, rows = changed.records, windows[changed.number]
        passed_ms = self._spans.late_until(changed.keys)
        acts = self._trigger.on_records(
            records, rows, passed_ms if isinstance(passed_ms, int) else passed_ms[changed.number]
        )
        acting = acts != 0
        if not acting.any():
            self._update(records, rows)
            return
        number = sum_before(rows, acting.astype(np.int64))
        for places in places_by_number(number):
            self._update(records.take(places), rows[places])
            places = places[acting[places]]
            assert records.event_time is not None
            self._act(rows[places], acts[places], records.event_time[places])

    def _is_grown(self, changed: Changed) -> Mask:
        """Which windows have other bounds than one of those that they are joined of."""
        starts, ends = self._spans.start.of(changed.joined), self._spans.end.of(changed.joined)
        is_other = (starts != changed.starts[changed.into]) | (ends != changed.ends[changed.into])
        is_grown = np.zeros(len(changed.keys), np.bool_)
        is_grown[changed.into[is_other]] = True
        return is_grown

    def _merge(self, into: Indices, parts: Indices) -> None:
        if self._sent is not None:
            gone = parts[self._sent.has(parts)]
            if len(gone):
                self._emit_sent(gone, np.full(len(gone), RowKind.DELETE, np.int8))
        self._values.merge(into, parts)
        self._count.add_each(into, self._count.of(parts))
        self._is_changed.put(into[self._is_changed.of(parts)], True)
        self._trigger.merge(into, parts)

    def _update(self, records: Records, rows: Indices) -> None:
        try:
            self._values.update(records, rows)
        except SumOverflow as error:
            raise self._spans.overflow(error) from error
        self._count.add_each(rows, 1)
        self._is_changed.put(rows, True)

    # --- Results ---

    def _act_in_order(self, acted: Acted) -> None:
        """Do what the trigger has decided; of several decisions for one window, one after the other."""
        number = sum_before(acted.rows, np.ones(len(acted.rows), np.int64))
        for places in places_by_number(number):
            self._act(acted.rows[places], acted.acts[places], acted.times[places])

    def _act(self, rows: Indices, acts: Acts, times: Int64s) -> None:
        """Send, then forget what is to be purged; none of the windows is given twice."""
        self._table.note_changed(rows)
        fires, purges = (acts & _FIRE) != 0, (acts & _PURGE) != 0
        self._send(rows[fires], times[fires])
        if self._firings.results is Results.DISCARDING:
            purges = purges | fires
        purged = rows[purges]
        if len(purged):
            self._table.reset(["rows", "changed", "value", *([] if self._sent is None else ["sent"])], purged)

    def _send(self, rows: Indices, times: Int64s) -> None:
        has_some = self._count.of(rows) > 0
        if self._sent is not None:
            has_some &= self._is_changed.of(rows) | ~self._sent.has(rows)
        rows, times = rows[has_some], times[has_some]
        if not len(rows):
            return
        starts, ends = self._spans.start.of(rows), self._spans.end.of(rows)
        if not self._is_global:
            times = ends - 1
        batch = self._values.results(self._table.keys(rows), starts, ends, rows)
        kinds = None
        if self._sent is not None:
            was_sent = self._sent.has(rows)
            is_same = was_sent & self._sent.has_bounds(rows, starts, ends)
            if was_sent.any():
                kind = np.where(is_same[was_sent], RowKind.UPDATE_BEFORE, RowKind.DELETE)
                self._emit_sent(rows[was_sent], kind.astype(np.int8))
                kinds = np.where(is_same, RowKind.UPDATE_AFTER, RowKind.INSERT).astype(np.int8)
            self._sent.put(rows, batch, starts, ends, times)
        self._is_changed.put(rows, False)
        self._out.emit(Records(batch, times if self._has_event_time else None, kind=kinds))

    def _emit_sent(self, rows: Indices, kinds: Kinds) -> None:
        assert self._sent is not None
        batch, times = self._sent.take(rows)
        self._out.emit(Records(batch, times if self._has_event_time else None, kind=kinds))

    # --- Windows that are over ---

    def _let_go(self) -> None:
        """All that is due has fired: forget windows for which no late row counts any more."""
        self._lateness.note_all_fired()
        reached_ms = self._lateness.reached_ms
        gone_ms = reached_ms if reached_ms == WATERMARK_MAX_MS else reached_ms - self._firings.lateness_ms
        if self._earliest_end - 1 <= gone_ms:  # at the end of the input also those that have no end
            rows = self._table.rows()
            ends = self._spans.end.of(rows)
            is_gone = ends - 1 <= gone_ms
            self._trigger.forget(rows[is_gone])
            self._table.remove(rows[is_gone])
            self._earliest_end = lowest(WATERMARK_MAX_MS, ends[~is_gone])
        self._away.compact()

    def _forget_empty(self) -> None:
        """Let go of global windows that hold nothing, when they are at least half."""
        empty = (rows := self._table.rows())[self._count.of(rows) == 0]
        if len(empty) >= _EMPTY_MIN and 2 * len(empty) >= len(rows) and not self._trigger.is_firing:
            self._table.remove(empty[self._trigger.is_blank(empty)])
            self._away.compact()
