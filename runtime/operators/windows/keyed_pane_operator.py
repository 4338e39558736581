"""KeyedPaneOperator: sliding windows whose panes may lie on disk, all those of a key together."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeVar

import numpy as np
import pyarrow as pa

from onceflow.runtime.contracts import Json
from onceflow.runtime.errors import Fatal
from onceflow.runtime.operators.aggregation.accumulator import SumOverflow
from onceflow.runtime.operators.assigners.sliding import Sliding
from onceflow.runtime.operators.operator import FrozenState, OperatorContext, Output, RestoredState
from onceflow.runtime.operators.windows.lateness import Lateness
from onceflow.runtime.operators.windows.pane_operator import FIRED, TABLE, MergeableValues
from onceflow.runtime.operators.windows.window_operator import (
    EMIT_ROWS_MAX,
    check_window,
    window_as_json,
    without_late,
)
from onceflow.runtime.records import WATERMARK_MAX_MS, WATERMARK_MIN_MS, Indices, Int64s, Records
from onceflow.runtime.state.asked_keys import AskedKeys
from onceflow.runtime.state.number_columns import NumberColumn
from onceflow.runtime.state.overflow import NO_ROWS, NO_WAKE_MS, GroupedOverflow, GroupsInMemory
from onceflow.runtime.state.table import NOT_THERE
from onceflow.runtime.state.tables import Layout, grouped_table

_BY_TIME = 0
"""The only kind of time at which a key comes back: its next window fires."""
_WOKEN_MAX = 1 << 12
_Brought = TypeVar("_Brought")


class KeyedPaneOperator:
    """One subtask of sliding event-time windows, as PaneOperator, with the same snapshots.

    Windows of one key fire in the order of their ends; keys that are in memory fire before those that have to
    come back. Records that come while windows fire find their key as it is behind all of that: what is due of
    it fires first. So it does not matter in how many pieces windows fire, nor where a key is.
    """

    def __init__(
        self,
        key_columns: Sequence[str],
        schema: pa.Schema,
        window: Sliding,
        values: MergeableValues,
        late: bool,
    ) -> None:
        self._start, self._fired = NumberColumn(), NumberColumn()
        """`fired`: the highest of a key says up to where windows have fired for it, if that is further than
        for all keys."""
        self._layout = Layout(
            key_columns, schema, {"pane_start": self._start, "value": values, FIRED: self._fired}
        )
        self._table = grouped_table(self._layout)
        self._overflow: GroupedOverflow = GroupsInMemory(self._table)
        self._window = window
        self._values = values
        self._late = late
        self._next_ms = WATERMARK_MAX_MS
        """Nothing in memory fires earlier."""
        self._due: Indices = NO_ROWS
        """The numbers of the keys in memory that fire. No key is renumbered meanwhile."""

    def open(self, context: OperatorContext, out: Output) -> None:
        self._context = context
        self._out = out
        self._lateness = Lateness(context.max_parallelism, context.key_groups)
        context.begin(self._table)
        self._overflow = context.state.grouped_overflow(self._table, list(self._layout.columns))
        for function in self._values.functions:
            context.open_function(function)

    def restore(self, states: Sequence[RestoredState]) -> None:
        self._lateness.restore(state.meta for state in states)
        for state in states:
            check_window(state, self._window, self._context.uid)
            for piece in state.batches(TABLE):
                whole = _with_fired(piece)
                self._bringing(lambda whole=whole: self._overflow.load(whole))  # type: ignore[misc]
                self._make_room()

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
        key_hash = records.key_hash
        assert key_hash is not None
        numbers = self._bringing(lambda: self._overflow.find_keys(records.batch, key_hash))
        keys, key = np.unique(numbers, return_inverse=True)
        is_between = self._lateness.has_floors or self._lateness.fired_ms < self._lateness.reached_ms
        if is_between:
            self._fire_all(keys)
        self._update(records, self._rows(keys, key, panes))
        if is_between:
            rows = self._table.rows_of_keys(keys)
            passed = np.zeros(len(keys), np.int64) + self._passed(keys)
            self._note_fired(rows, passed[np.searchsorted(keys, self._table.key_numbers(rows))])
        self._make_room()

    def on_watermark(self, time_ms: int) -> None:
        self._lateness.reached_ms = max(time_ms, self._lateness.reached_ms)

    def fire(self, rows_max: int) -> int:
        if not len(self._due) and not self._find_due():
            self._lateness.note_all_fired()
            self._make_room()
            return 0
        piece, rest = np.split(self._due, [min(rows_max, EMIT_ROWS_MAX)])
        self._due = np.append(rest, self._fire_next(piece, self._lateness.reached_ms))
        if not len(self._due):
            self._overflow.compact()
        return len(piece)

    def snapshot(self) -> FrozenState:
        rows = self._overflow.freeze(self._context.max_parallelism)
        meta: dict[str, Json] = {**self._lateness.as_meta(), "window": window_as_json(self._window)}
        return FrozenState(self._context.key_groups, {TABLE: rows}, meta)

    def peek(self, asked: AskedKeys) -> list[pa.RecordBatch]:
        return self._overflow.peek(asked, self._context.max_parallelism)

    def close(self) -> None:
        self._overflow.close()

    # --- Panes ---

    def _rows(self, keys: Indices, key: Indices, panes: Int64s) -> Indices:
        """The row of each record's pane, made if it is not there; `key`: the place of its key in `keys`."""
        starts, start = np.unique(panes, return_inverse=True)
        codes, code = np.unique(key * len(starts) + start, return_inverse=True)
        there = self._table.rows_of_keys(keys)
        at = np.minimum(np.searchsorted(starts, self._start.of(there)), len(starts) - 1)
        is_hit = starts[at] == self._start.of(there)
        there, at = there[is_hit], at[is_hit]
        found = np.searchsorted(keys, self._table.key_numbers(there)) * len(starts) + at
        place = np.minimum(np.searchsorted(codes, found), len(codes) - 1)
        is_hit = codes[place] == found
        rows = np.full(len(codes), NOT_THERE, np.int64)
        rows[place[is_hit]] = there[is_hit]
        is_new = rows == NOT_THERE
        if is_new.any():
            new = codes[is_new]
            rows[is_new] = self._table.add(keys[new // len(starts)])
            self._start.put(rows[is_new], starts[new % len(starts)])
            self._fired.put(rows[is_new], WATERMARK_MIN_MS)
            self._note_next(rows[is_new])
        return np.asarray(rows[code])

    def _update(self, records: Records, rows: Indices) -> None:
        try:
            self._values.update(records, rows)
        except SumOverflow as error:
            [pane] = self._start.of(np.array([error.row])).tolist()
            raise self._too_large(error, error.row, f"between {pane} and the next window") from error

    def _times(self, rows: Indices, fired_ms: Int64s | int) -> Int64s:
        """When each of these panes is to be here, if so much has fired for its key: the last millisecond of
        its next window; of its last one, if all of them have fired."""
        starts = self._start.of(rows)
        last = self._window.last_ends(starts)
        ends = self._window.first_ends(np.maximum(starts, np.minimum(fired_ms, last - 1) + 1))
        return np.asarray(np.minimum(ends, last) - 1)

    def _fired_ms(self, keys: Indices, rows: Indices, place: Indices) -> Int64s:
        """Up to where windows have fired for each of these keys; `rows`: all that they have, and the place of
        the key of each."""
        fired_ms = np.zeros(len(keys), np.int64) + self._lateness.fired_until(self._table.key_hashes(keys))
        np.maximum.at(fired_ms, place, self._fired.of(rows))
        return fired_ms

    def _passed(self, keys: Indices) -> Int64s | int:
        """How far event time is for each of these keys, or for all."""
        return self._lateness.late_until(self._table.key_hashes(keys))

    def _note_fired(self, rows: Indices, fired_ms: Int64s) -> None:
        self._table.note_changed(rows)
        self._fired.put(rows, np.maximum(self._fired.of(rows), fired_ms))

    def _note_next(self, rows: Indices) -> None:
        times = self._times(rows, self._lateness.fired_ms)
        self._next_ms = min(self._next_ms, int(times.min(initial=WATERMARK_MAX_MS)))

    # --- Firing ---

    def _find_due(self) -> bool:
        """Have some keys that fire in memory, if there are any."""
        reached_ms = self._lateness.reached_ms
        while True:
            self._due = self._due_here()
            if len(self._due):
                return True
            first_ms = self._overflow.first_wake(_BY_TIME)
            if first_ms is None or first_ms > reached_ms:
                return False
            self._overflow.compact()
            self._make_room()  # what came back before has fired
            self._bringing(lambda: self._overflow.wake(_BY_TIME, reached_ms, _WOKEN_MAX))

    def _due_here(self) -> Indices:
        """The keys in memory that fire."""
        reached_ms = self._lateness.reached_ms
        if self._next_ms > reached_ms:
            return NO_ROWS
        rows = self._table.rows()
        keys, all_keys = self._table.key_numbers(rows), np.arange(self._table.key_count)
        times = self._times(rows, self._fired_ms(all_keys, rows, keys)[keys])
        is_due = times <= reached_ms
        self._next_ms = int(times[~is_due].min(initial=WATERMARK_MAX_MS))
        return np.unique(keys[is_due])

    def _fire_all(self, keys: Indices) -> None:
        """Fire all that event time has passed of these keys."""
        while len(keys):
            keys = self._fire_next(keys, self._passed(keys))

    def _fire_next(self, keys: Indices, until_ms: Int64s | int) -> Indices:
        """Fire the next window of each of these keys if it is due until this time, and let go of
        the panes that are in no later one. Returns the keys of which more may be due."""
        order = np.argsort(keys)
        rows = self._table.rows_of_keys(keys)
        place = order[np.searchsorted(keys, self._table.key_numbers(rows), sorter=order)]
        fired_ms, starts = self._fired_ms(keys, rows, place), self._start.of(rows)
        last_ms = self._window.last_ends(starts) - 1
        times = self._times(rows, fired_ms[place])
        next_ms = np.full(len(keys), WATERMARK_MAX_MS)
        is_open = last_ms > fired_ms[place]
        np.minimum.at(next_ms, place[is_open], times[is_open])
        fires, ends = (next_ms <= until_ms) & (next_ms < WATERMARK_MAX_MS), next_ms[place] + 1
        is_in_it = fires[place] & (starts < ends) & (starts >= ends - self._window.size_ms)
        self._emit(rows[is_in_it], place[is_in_it], starts[is_in_it], next_ms)
        fired_ms[fires] = next_ms[fires]
        is_done = last_ms <= fired_ms[place]
        stays = ~is_done & fires[place]
        self._note_fired(rows[stays], fired_ms[place[stays]])
        later = self._times(rows[stays], fired_ms[place[stays]])
        self._next_ms = min(self._next_ms, int(later.min(initial=WATERMARK_MAX_MS)))
        self._table.remove(rows[is_done])
        return keys[fires]

    def _emit(self, rows: Indices, place: Indices, starts: Int64s, last_ms: Int64s) -> None:
        """One row for each place, merged of its rows; in the order of the ends of their windows."""
        if not len(rows):
            return
        in_order = np.lexsort((starts, place, last_ms[place]))
        rows, place = rows[in_order], place[in_order]
        begins = np.append(True, place[1:] != place[:-1])
        first, groups = np.flatnonzero(begins), np.cumsum(begins) - 1
        ends = last_ms[place[first]] + 1
        try:
            merged = self._values.merged(rows, groups, len(first))
        except SumOverflow as error:
            end = int(ends[error.row])
            where = f"in the window [{end - self._window.size_ms}, {end})"
            raise self._too_large(error, int(rows[first[error.row]]), where) from error
        keys, numbers = self._table.keys(rows[first]), np.arange(len(first))
        batch = merged.results(keys, ends - self._window.size_ms, ends, numbers)
        self._out.emit(Records(batch, ends - 1))

    # --- Where keys are ---

    def _make_room(self) -> None:
        while not len(self._due) and self._overflow.needs_room():
            going = self._overflow.going()
            rows = self._table.rows_of_keys(going)
            place = np.searchsorted(going, self._table.key_numbers(rows))
            wakes = np.full(len(going), NO_WAKE_MS)
            np.minimum.at(wakes, place, self._times(rows, self._fired_ms(going, rows, place)[place]))
            self._overflow.make_room(going, {_BY_TIME: wakes})

    def _bringing(self, bring: Callable[[], _Brought]) -> _Brought:
        """Rows may come back with this call."""
        before = self._table.size
        found = bring()
        self._note_next(np.arange(before, self._table.size))
        return found

    def _too_large(self, error: SumOverflow, row: int, when: str) -> Fatal:
        """A Fatal that says `for user='u1' in the window [0, 10000)`."""
        [key] = self._table.keys(np.array([row])).to_pylist()
        named = ", ".join(f"{name}={value!r}" for name, value in key.items())
        where = f"operator {self._context.uid!r}, column {error.column!r}"
        return Fatal(f"{where}: {error} for {named} {when}")


def _with_fired(piece: pa.RecordBatch) -> pa.RecordBatch:
    """The rows with the column FIRED, which older snapshots and those of PaneOperator may leave out."""
    if FIRED in piece.schema.names:
        return piece
    return piece.append_column(FIRED, pa.array(np.full(piece.num_rows, WATERMARK_MIN_MS, np.int64)))
