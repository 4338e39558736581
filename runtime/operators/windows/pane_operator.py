"""PaneOperator: sliding windows; a table of (key, pane); a window's panes are merged when it fires."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Protocol

import numpy as np
import pyarrow as pa

from onceflow.runtime.contracts import Json
from onceflow.runtime.errors import Fatal
from onceflow.runtime.operators.aggregation.accumulator import SumOverflow
from onceflow.runtime.operators.assigners.sliding import Sliding
from onceflow.runtime.operators.operator import FrozenState, OperatorContext, Output, RestoredState
from onceflow.runtime.operators.windows.firing_window import FiringWindow
from onceflow.runtime.operators.windows.lateness import Lateness
from onceflow.runtime.operators.windows.window_operator import (
    EMIT_ROWS_MAX,
    WindowResults,
    WindowValues,
    check_window,
    window_as_json,
    without_late,
)
from onceflow.runtime.records import WATERMARK_MIN_MS, Indices, Int64s, Mask, Records
from onceflow.runtime.state.asked_keys import AskedKeys
from onceflow.runtime.state.tables import Layout, pane_table

TABLE = "panes"
FIRED = "fired_ms"
"""A column of the table, there only if the snapshot fell between two pieces of one window: its last
millisecond in the rows of keys for which it has fired, the lowest number in the others."""


class MergeableValues(WindowValues, Protocol):
    """WindowValues whose rows can be merged."""

    def merged(self, rows: Indices, groups: Indices, size: int) -> WindowResults:
        """`size` merged rows, each of those of `rows` with its number in `groups`, in their order. The
        rows stay as they are."""
        ...


class PaneOperator:
    """One subtask of sliding event-time windows over values that can be merged.

    Each window fires once, when the watermark reaches its last millisecond, with the keys that have rows in
    one of its panes. A row counts in the windows that have not fired for its key when it comes; it is late if
    the watermark has reached all of them: as for WindowOperator, which it is twin to. A pane goes when its
    last window has fired. A window fires piece by piece, in the order of the keys' numbers (FiringOperator).
    """

    def __init__(
        self,
        key_columns: Sequence[str],
        schema: pa.Schema,
        window: Sliding,
        values: MergeableValues,
        late: bool,
    ) -> None:
        layout = Layout(key_columns, schema, {"value": values}, "pane_start")
        self._table = pane_table(layout)
        self._window = window
        self._values = values
        self._late = late
        self._earliest_pane: int | None = None
        """The start of the earliest pane there is."""
        self._firing: FiringWindow | None = None
        """No row or key is renumbered meanwhile."""
        self._fired_before: Int64s | None = None
        """After a restore from the middle of a window, by row: as in the state's column `fired_ms`."""

    def open(self, context: OperatorContext, out: Output) -> None:
        self._context = context
        self._out = out
        self._lateness = Lateness(context.max_parallelism, context.key_groups)
        for function in self._values.functions:
            context.open_function(function)

    def restore(self, states: Sequence[RestoredState]) -> None:
        for state in states:
            check_window(state, self._window, self._context.uid)
            for piece in state.batches(TABLE):
                self._load(piece)
        self._lateness.restore(state.meta for state in states)

    def on_records(self, records: Records) -> None:
        assert records.event_time is not None, "windows need event time"
        assert records.key_hash is not None, "windows come after a key_by"
        if not len(records):
            return
        panes = self._window.pane_starts(records.event_time)
        last_ms, late_out = self._window.last_ends(panes) - 1, self._out if self._late else None
        records, panes = without_late(records, panes, last_ms, self._lateness, self._context, late_out)
        if not len(records):
            return
        assert records.key_hash is not None
        keys_before = self._table.key_count
        rows = self._table.find_or_add(records.batch, records.key_hash, panes)
        if self._lateness.has_floors:
            self._note_new_keys(keys_before)
        try:
            self._values.update(records, rows)
        except SumOverflow as error:
            row = np.array([error.row])
            [pane] = self._table.starts(row).tolist()
            key = self._table.key_numbers(row)
            raise self._overflow(error, key, f"between {pane} and the next window") from error
        self._note_pane(int(panes.min()))

    def on_watermark(self, time_ms: int) -> None:
        self._lateness.reached_ms = max(time_ms, self._lateness.reached_ms)

    def fire(self, rows_max: int) -> int:
        firing = self._firing = self._firing or self._find_due()
        if firing is None:
            self._let_go()
            return 0
        fired = self._fire_piece(firing, min(rows_max, EMIT_ROWS_MAX))
        if firing.is_through:
            self._lateness.fired_ms = firing.end - 1  # windows fire in the order of their ends
            self._firing = None
        return max(fired, 1)

    def snapshot(self) -> FrozenState:
        rows = self._table.freeze(self._context.max_parallelism, self._beside())
        meta: dict[str, Json] = {**self._lateness.as_meta(), "window": window_as_json(self._window)}
        return FrozenState(self._context.key_groups, {TABLE: rows}, meta)

    def peek(self, asked: AskedKeys) -> list[pa.RecordBatch]:
        return [self._table.peek(asked, self._context.max_parallelism, self._beside())]

    def close(self) -> None:
        pass

    def _find_due(self) -> FiringWindow | None:
        """The earliest window that has not fired, that the watermark has reached, and that is not empty."""
        if self._earliest_pane is None:
            return None
        end = self._window.first_end(max(self._earliest_pane, self._lateness.fired_ms + 1))
        if end - 1 > self._lateness.reached_ms:
            return None
        panes = self._table.panes()
        first, last = np.searchsorted(panes, [end - self._window.size_ms, end])
        if first == last:
            if first == len(panes):
                return None
            end = self._window.first_end(int(panes[first]))  # nothing until then
            if end - 1 > self._lateness.reached_ms:
                return None
            first, last = np.searchsorted(panes, [end - self._window.size_ms, end])
        rows = self._table.rows_of(panes[first:last])
        return FiringWindow(end, rows, self._table.key_numbers(rows), self._table.size)

    def _fire_piece(self, firing: FiringWindow, count: int) -> int:
        """Emit the window for the next so many keys, by the order in which the keys came."""
        self._take_in_new(firing)
        first_key, end = firing.first_key, firing.end
        rows, keys, span = firing.take(count, self._table.key_count)
        place = np.zeros(span, np.int64)
        place[keys] = 1
        for has_fired in self._has_fired(rows, keys + first_key, end - 1):
            place[keys[has_fired]] = 0
        present = np.flatnonzero(place)
        if len(present):
            is_present = place[keys] == 1
            place[present] = np.arange(len(present))
            self._emit(end, rows[is_present], place[keys[is_present]], present + first_key)
        return len(present)

    def _emit(self, end: int, rows: Indices, groups: Indices, keys: Indices) -> None:
        """One row for each of these keys, merged of the rows whose group is its place among them."""
        start = end - self._window.size_ms
        try:
            merged = self._values.merged(rows, groups, len(keys))
        except SumOverflow as error:
            raise self._overflow(error, keys[[error.row]], f"in the window [{start}, {end})") from error
        ends = np.full(len(keys), end, np.int64)
        batch = merged.results(
            self._table.keys_by_number(keys), ends - self._window.size_ms, ends, np.arange(len(keys))
        )
        self._out.emit(Records(batch, ends - 1))

    def _take_in_new(self, firing: FiringWindow) -> None:
        """A row behind the watermark may have come in one of the window's panes since it began to fire. It
        counts in the windows that have not fired for its key."""
        new = np.arange(firing.size, self._table.size)
        firing.size = self._table.size
        starts = self._table.starts(new)
        new = new[(starts >= firing.end - self._window.size_ms) & (starts < firing.end)]
        if len(new):
            firing.add(new, self._table.key_numbers(new))

    def _has_fired(self, rows: Indices, keys: Indices, last_ms: int) -> Iterator[Mask]:
        """Which of these rows are of keys for which this window fired before a restore."""
        by_group = self._lateness.has_fired(self._table.key_hashes(keys), last_ms) if len(keys) else None
        if by_group is not None:
            yield by_group
        if self._fired_before is not None:
            is_old = rows < len(self._fired_before)
            is_old[is_old] = self._fired_before[rows[is_old]] >= last_ms
            yield is_old

    def _beside(self) -> dict[str, Int64s]:
        """The columns of a snapshot beside those of the table."""
        fired_ms = self._fired_by_row()
        return {} if fired_ms is None else {FIRED: fired_ms}

    def _fired_by_row(self) -> Int64s | None:
        """The last millisecond of the latest window that has fired for the key of each row, as the column
        FIRED has it. None: the watermark says it for all of them."""
        firing = self._firing if self._firing is not None and self._firing.first_key else None
        if firing is None and self._fired_before is None:
            return None
        fired_ms = np.full(self._table.size, WATERMARK_MIN_MS, np.int64)
        if self._fired_before is not None:
            fired_ms[: len(self._fired_before)] = self._fired_before
        if firing is not None:
            has_fired = self._table.key_numbers(np.arange(self._table.size)) < firing.first_key
            fired_ms[has_fired] = np.maximum(fired_ms[has_fired], firing.end - 1)
        return fired_ms

    def _let_go(self) -> None:
        """All windows up to the watermark have fired: forget the panes that no later window has."""
        self._lateness.note_all_fired()
        reached_ms, earliest = self._lateness.reached_ms, self._earliest_pane
        if self._fired_before is not None and int(self._fired_before.max()) <= reached_ms:
            self._fired_before = None
        if earliest is None or self._window.last_ends(np.array([earliest]))[0] - 1 > reached_ms:
            return
        panes = self._table.panes()
        done = int(np.count_nonzero(self._window.last_ends(panes) - 1 <= reached_ms))  # they end in order
        self._table.remove(self._table.rows_of(panes[:done]))
        self._earliest_pane = int(panes[done]) if done < len(panes) else None
        kept = self._table.compact()
        if kept is not None and self._fired_before is not None:
            self._fired_before = self._fired_before[kept[kept < len(self._fired_before)]]

    def _load(self, piece: pa.RecordBatch) -> None:
        rows = self._table.load(piece)
        self._note_pane(int(piece.column("pane_start").to_numpy().min()))
        if FIRED in piece.schema.names or self._fired_before is not None:
            self._load_fired(rows, piece)

    def _load_fired(self, rows: Indices, piece: pa.RecordBatch) -> None:
        """Rows are restored one after the other, so all of them are there up to these."""
        fired_ms = np.full(self._table.size, WATERMARK_MIN_MS, np.int64)
        if self._fired_before is not None:
            fired_ms[: len(self._fired_before)] = self._fired_before
        if FIRED in piece.schema.names:
            fired_ms[rows] = piece.column(FIRED).to_numpy()
        self._fired_before = fired_ms

    def _note_new_keys(self, first: int) -> None:
        """After a restore it is not known of keys without panes which windows fired before: what comes of
        them counts in those only that event time had not passed."""
        rows = np.arange(self._table.size)
        rows = rows[self._table.key_numbers(rows) >= first]
        if not len(rows):
            return
        fired_ms = np.full(self._table.size, WATERMARK_MIN_MS, np.int64)
        if self._fired_before is not None:
            fired_ms[: len(self._fired_before)] = self._fired_before
        fired_ms[rows] = self._lateness.late_until(self._table.key_hashes(self._table.key_numbers(rows)))
        self._fired_before = fired_ms

    def _note_pane(self, start: int) -> None:
        self._earliest_pane = start if self._earliest_pane is None else min(self._earliest_pane, start)

    def _overflow(self, error: SumOverflow, key: Indices, when: str) -> Fatal:
        """A Fatal that says `for user='u1' in the window [0, 10000)`."""
        [values] = self._table.keys_by_number(key).to_pylist()
        named = ", ".join(f"{name}={value!r}" for name, value in values.items())
        where = f"operator {self._context.uid!r}, column {error.column!r}"
        return Fatal(f"{where}: {error} for {named} {when}")
