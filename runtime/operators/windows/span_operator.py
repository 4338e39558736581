"""SpanOperator: windows whose bounds change, or that fire more than once; a row of its table for each.

Sessions, and all windows with allowed lateness. Windows that fire once and never change have operators of
their own, which are faster: WindowOperator and PaneOperator.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa

from onceflow.runtime.contracts import Json
from onceflow.runtime.errors import Fatal
from onceflow.runtime.operators.aggregation.accumulator import SumOverflow
from onceflow.runtime.operators.assigners.by_clock import TimeWindow
from onceflow.runtime.operators.assigners.firings import Firings, Results
from onceflow.runtime.operators.assigners.session import Session
from onceflow.runtime.operators.operator import FrozenState, OperatorContext, Output, RestoredState
from onceflow.runtime.operators.windows.lateness import Lateness
from onceflow.runtime.operators.windows.new_spans import NewSpans, spans_of
from onceflow.runtime.operators.windows.spans import Grouped, join_equal, merge_touching
from onceflow.runtime.operators.windows.window_operator import EMIT_ROWS_MAX, LATE, WindowValues
from onceflow.runtime.records import WATERMARK_MAX_MS, Indices, Int64s, Kinds, Mask, Records, RowKind
from onceflow.runtime.state.number_columns import FlagColumn, NumberColumn
from onceflow.runtime.state.table import NOT_THERE, RowColumn
from onceflow.runtime.state.tables import Layout, grouped_table

TABLE = "spans"


class SpanOperator:
    """One subtask of event-time windows, each a span of time of one key that may still grow.

    A batch's rows arrive together: their windows, those that are there and those that they make are joined,
    and it is then judged for each window whether it is late: the watermark has reached its end and the
    lateness allowed. So a row that joins a session which goes on is never late. A window fires when the
    watermark reaches its last millisecond, and at once when a batch changes it after that.

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
        self._start, self._end, self._fired = NumberColumn(), NumberColumn(), FlagColumn()
        columns: dict[str, RowColumn] = {
            "window_start": self._start,
            "window_end": self._end,
            "fired": self._fired,
            "value": values,
        }
        self._table = grouped_table(Layout(key_columns, schema, columns))
        self._spans_of = spans_of(window, uid)
        self._group = merge_touching if isinstance(window, Session) else join_equal
        self._values = values
        self._firings = firings
        self._late = late
        self._earliest_end = WATERMARK_MAX_MS
        """No window that has not fired ends earlier."""
        self._earliest_fired = WATERMARK_MAX_MS
        """No window that has fired, and stays for late rows, ends earlier."""
        self._due: Indices | None = None
        """What is being fired, earliest end first. No row is renumbered meanwhile."""

    def open(self, context: OperatorContext, out: Output) -> None:
        self._context = context
        self._out = out
        self._lateness = Lateness(context.max_parallelism, context.key_groups)
        for function in self._values.functions:
            context.open_function(function)

    def restore(self, states: Sequence[RestoredState]) -> None:
        for state in states:
            for piece in state.batches(TABLE):
                rows = self._table.load(piece)
                fired, ends = self._fired.of(rows), self._end.of(rows)
                if self._firings.results is Results.DISCARDING:
                    self._table.reset(["value"], rows[fired])
                self._earliest_end = _lowest(self._earliest_end, ends[~fired])
                self._earliest_fired = _lowest(self._earliest_fired, ends[fired])
        self._lateness.restore(state.meta for state in states)

    def on_records(self, records: Records) -> None:
        assert records.key_hash is not None, "windows come after a key_by"
        if not len(records):
            return
        new = self._spans_of(records)
        by_row = self._table.find_keys(records.batch, records.key_hash)
        keys = by_row if new.place is None else by_row[new.place]
        there = self._open_rows(by_row)
        windows = self._group(
            np.append(keys, self._table.key_numbers(there)),
            np.append(new.starts, self._start.of(there)),
            np.append(new.ends, self._end.of(there)),
        )
        of_new, of_there = windows.number[: len(keys)], windows.number[len(keys) :]
        records, of_new = self._without_late(records, new, of_new, self._is_open(windows.key, windows.end))
        if len(records):
            self._take_in(records, of_new, there, of_there, windows)

    def on_watermark(self, time_ms: int) -> None:
        self._lateness.reached_ms = max(time_ms, self._lateness.reached_ms)

    def fire(self, rows_max: int) -> int:
        due = self._due = self._find_due() if self._due is None else self._due
        if due is None:
            self._let_go()
            return 0
        count = min(rows_max, EMIT_ROWS_MAX)
        piece, rest = due[:count], due[count:]
        self._due = rest if len(rest) else None
        # It may have fired since, with late rows, or have become a part of another.
        self._fire(piece[~self._fired.of(piece) & (self._end.of(piece) - 1 <= self._lateness.reached_ms)])
        return len(piece)

    def snapshot(self) -> FrozenState:
        rows = self._table.freeze(self._context.max_parallelism)
        meta: dict[str, Json] = dict(self._lateness.as_meta())
        return FrozenState(self._context.key_groups, {TABLE: rows}, meta)

    def close(self) -> None:
        pass

    @property
    def next_due_ms(self) -> int | None:
        """The watermark, plus one, at which something is due that is not yet. None: nothing is there."""
        if self._due is not None:
            return self._lateness.reached_ms
        return None if self._earliest_end == WATERMARK_MAX_MS else self._earliest_end

    # --- Records ---

    def _open_rows(self, keys: Indices) -> Indices:
        """The rows of these keys' windows in which a row may still count."""
        is_asked = np.zeros(self._table.key_count, np.bool_)
        is_asked[keys] = True
        rows = self._table.rows_of_keys(np.flatnonzero(is_asked))
        return rows[self._is_open(self._table.key_numbers(rows), self._end.of(rows))]

    def _is_open(self, keys: Indices, ends: Int64s) -> Mask:
        lateness_ms = self._firings.lateness_ms
        last_ms = np.minimum(ends - 1, WATERMARK_MAX_MS - lateness_ms) + lateness_ms
        return np.asarray(last_ms > self._late_until(keys))

    def _late_until(self, keys: Indices) -> int | Int64s:
        """The watermark for each of these keys, or for all of them."""
        if not self._lateness.has_floors:
            return self._lateness.reached_ms
        return self._lateness.late_until(self._table.key_hashes(keys))

    def _without_late(
        self, records: Records, new: NewSpans, of_new: Indices, is_open: Mask
    ) -> tuple[Records, Indices]:
        """The records, once for each window in which they count, and the windows. A record is late if it
        counts in none: counted, and sent to the tag LATE."""
        counts = is_open[of_new]
        if counts.all():
            return (records if new.place is None else records.take(new.place)), of_new
        place = np.arange(len(records)) if new.place is None else new.place
        on_time = np.zeros(len(records), np.bool_)
        on_time[place[counts]] = True
        if not on_time.all():
            self._context.count_late(len(records) - int(np.count_nonzero(on_time)))
            if self._late:
                self._out.emit(records.filter(~on_time), LATE)
        return records.take(place[counts]), of_new[counts]

    def _take_in(
        self, records: Records, of_new: Indices, there: Indices, of_there: Indices, windows: Grouped
    ) -> None:
        """Let these records count in their windows, of which each has those of `there` in it that are
        `of_there`; and fire the ones whose end the watermark has passed."""
        is_changed = np.zeros(len(windows), np.bool_)
        is_changed[of_new] = True
        number = np.cumsum(is_changed) - 1
        is_joined = is_changed[of_there]
        joined, into = there[is_joined], number[of_there[is_joined]]
        by_start = np.argsort(self._start.of(joined), kind="stable")
        joined, into = joined[by_start], into[by_start]
        keys, starts, ends = windows.key[is_changed], windows.start[is_changed], windows.end[is_changed]
        was_sent = self._take_back(joined, into, starts, ends)
        rows = self._join(joined, into, keys)
        self._start.put(rows, starts)
        self._end.put(rows, ends)
        try:
            self._values.update(records, rows[number[of_new]])
        except SumOverflow as error:
            raise self._overflow(error) from error
        has_passed = ends - 1 <= self._late_until(keys)
        self._fired.put(rows, False)
        self._earliest_end = _lowest(self._earliest_end, ends[~has_passed])
        if has_passed.any():
            self._fire(rows[has_passed], was_sent[has_passed])
        if self._due is None:
            self._table.compact()

    def _join(self, joined: Indices, into: Indices, keys: Indices) -> Indices:
        """One row for each window, with what is in all those that it is joined of."""
        rows = np.full(len(keys), NOT_THERE, np.int64)
        rows[into[::-1]] = joined[::-1]  # the first of each
        is_part = rows[into] != joined
        parts = joined[is_part]
        if len(parts):
            try:
                self._values.merge(rows[into[is_part]], parts)
            except SumOverflow as error:
                raise self._overflow(error) from error
            self._fired.put(parts, True)  # they are not due any more
            self._table.remove(parts)
        is_new = rows == NOT_THERE
        rows[is_new] = self._table.add(keys[is_new])
        return rows

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
        reached_ms = self._lateness.reached_ms
        if self._earliest_end - 1 > reached_ms:
            return None
        rows = self._table.rows()
        rows = rows[~self._fired.of(rows)]
        ends = self._end.of(rows)
        is_due = ends - 1 <= reached_ms
        self._earliest_end = _lowest(WATERMARK_MAX_MS, ends[~is_due])
        due = rows[is_due]
        return due[np.argsort(ends[is_due], kind="stable")] if len(due) else None

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
        self._earliest_fired = _lowest(self._earliest_fired, self._end.of(rows))
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
            self._earliest_fired = _lowest(WATERMARK_MAX_MS, ends[~is_gone])
        self._table.compact()

    def _overflow(self, error: SumOverflow) -> Fatal:
        """A Fatal that says `for user='u1' in the window [0, 10000)`."""
        row = np.array([error.row])
        [key], [start], [end] = self._table.keys(row).to_pylist(), self._start.of(row), self._end.of(row)
        named = ", ".join(f"{name}={value!r}" for name, value in key.items())
        where = f"operator {self._context.uid!r}, column {error.column!r}"
        return Fatal(f"{where}: {error} for {named} in the window [{start}, {end})")


def _lowest(earliest: int, ends: Int64s) -> int:
    return min(earliest, int(ends.min())) if len(ends) else earliest
