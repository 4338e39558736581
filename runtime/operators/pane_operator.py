"""PaneOperator: sliding windows; rows into (key, pane) slots, a window's panes merged when it fires."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Protocol

import numpy as np
import pyarrow as pa

from onceflow.runtime.contracts import Json
from onceflow.runtime.errors import Fatal
from onceflow.runtime.operators.accumulator import SumOverflow
from onceflow.runtime.operators.lateness import Lateness
from onceflow.runtime.operators.operator import FrozenState, OperatorContext, Output, RestoredState
from onceflow.runtime.operators.sliding import Sliding
from onceflow.runtime.operators.window_operator import (
    EMIT_ROWS_MAX,
    WindowResults,
    WindowValues,
    check_window,
    window_as_json,
    without_late,
)
from onceflow.runtime.records import Indices, Int64s, Records
from onceflow.runtime.state.frozen_rows import KeyedRows
from onceflow.runtime.state.hashing import hash_keys
from onceflow.runtime.state.pane_slots import PaneSlots

TABLE = "panes"


class MergeableValues(WindowValues, Protocol):
    """WindowValues whose slots can be merged."""

    def merged(self, slots: Indices, groups: Indices, size: int) -> WindowResults:
        """`size` merged slots, each of those of `slots` with its number in `groups`, in their order. The
        slots stay as they are."""
        ...


class PaneOperator:
    """One subtask of sliding event-time windows over values that can be merged.

    Each window fires once, when the watermark reaches its last millisecond, with the keys that have rows in
    one of its panes. A row counts in the windows that have not fired when it comes; it is late if none
    is left: as for WindowOperator, which it is twin to. A pane goes when its last window has fired.
    """

    def __init__(
        self,
        key_columns: Sequence[str],
        schema: pa.Schema,
        window: Sliding,
        values: MergeableValues,
        late: bool,
        kernels: bool | None = None,
    ) -> None:
        self._key_columns = list(key_columns)
        self._slots = PaneSlots(key_columns, schema, kernels)
        self._window = window
        self._values = values
        self._late = late
        self._earliest_pane: int | None = None
        """The start of the earliest pane there is."""

    def open(self, context: OperatorContext, out: Output) -> None:
        self._context = context
        self._out = out
        self._lateness = Lateness(context.max_parallelism, context.key_groups)

    def restore(self, states: Sequence[RestoredState]) -> None:
        for state in states:
            check_window(state, self._window, self._context.uid)
            for piece in state.batches(TABLE):
                self._load(piece)
        self._lateness.restore([run for state in states for run in state.meta["watermarks"]])

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
        slots = self._slots.find_or_add(records.batch, records.key_hash, panes)
        try:
            self._values.update(records, slots, self._slots.size)
        except SumOverflow as error:
            key, pane = self._slots.key[[error.slot]], int(self._slots.pane_start[error.slot])
            raise self._overflow(error, key, f"between {pane} and the next window") from error
        self._note_pane(int(panes.min()))

    def on_watermark(self, time_ms: int) -> None:
        before_ms = self._lateness.watermark_ms
        if time_ms <= before_ms:
            return
        if self._earliest_pane is not None:
            end = self._window.first_end(max(self._earliest_pane, before_ms + 1))
            if end - 1 <= time_ms:
                self._fire_until(time_ms, end)
        # After firing: what is recorded as fired must have been sent, wherever a snapshot falls; and what
        # a floor says has fired must not fire again.
        self._lateness.watermark_ms = time_ms
        self._lateness.forget_passed()

    def snapshot(self) -> FrozenState:
        frozen = self._slots.freeze()
        values, starts = self._values.freeze(frozen.live), {"pane_start": frozen.pane_start}
        rows = KeyedRows(frozen, values, self._context.max_parallelism, starts)
        meta: dict[str, Json] = {
            "watermarks": self._lateness.as_json(),
            "window": window_as_json(self._window),
        }
        return FrozenState(self._context.key_groups, {TABLE: rows}, meta)

    def close(self) -> None:
        pass

    def _fire_until(self, time_ms: int, end: int) -> None:
        """Fire the windows from the one that ends at `end` to those that the watermark has reached, and
        let go of the panes that no later window has."""
        panes = self._slots.panes()
        for first, last, window_end in self._due(panes, time_ms, end):
            self._fire(self._slots.slots_of(panes[first:last]), window_end)
            self._lateness.watermark_ms = window_end - 1  # windows fire in the order of their ends
        done = int(np.count_nonzero(self._window.last_ends(panes) - 1 <= time_ms))  # they end in their order
        for pane in panes[:done].tolist():
            self._slots.remove(pane)
        self._earliest_pane = int(panes[done]) if done < len(panes) else None
        if self._slots.is_sparse:
            self._values.keep(self._slots.compact())

    def _due(self, panes: Int64s, time_ms: int, end: int) -> Iterator[tuple[int, int, int]]:
        """(first, last, end) of each window that is due and not empty: which panes it has, and its end."""
        while end - 1 <= time_ms:
            first, last = np.searchsorted(panes, [end - self._window.size_ms, end])
            if first < last:
                yield int(first), int(last), end
                end += self._window.slide_ms
            elif first < len(panes):
                end = self._window.first_end(int(panes[first]))  # nothing until then
            else:
                return

    def _fire(self, slots: Indices, end: int) -> None:
        """Emit one window, in the order in which the keys came."""
        keys = self._slots.key[slots]
        if self._lateness.has_floors:
            has_not_fired = self._lateness.floors(self._slots.key_hash(keys)) < end - 1
            slots, keys = slots[has_not_fired], keys[has_not_fired]
        number = np.zeros(self._slots.key_count, np.int64)
        number[keys] = 1
        present = np.flatnonzero(number)
        number[present] = np.arange(len(present))
        try:
            merged = self._values.merged(slots, number[keys], len(present))
        except SumOverflow as error:
            where = f"in the window [{end - self._window.size_ms}, {end})"
            raise self._overflow(error, present[[error.slot]], where) from error
        for first in range(0, len(present), EMIT_ROWS_MAX):
            rows = np.arange(first, min(first + EMIT_ROWS_MAX, len(present)))
            ends = np.full(len(rows), end, np.int64)
            key_rows = self._slots.keys(present[rows])
            batch = merged.results(key_rows, ends - self._window.size_ms, ends, rows)
            self._out.emit(Records(batch, ends - 1))

    def _load(self, piece: pa.RecordBatch) -> None:
        keys = pa.RecordBatch.from_struct_array(piece.column("key"))
        panes = piece.column("pane_start").to_numpy()
        before = self._slots.size
        slots = self._slots.find_or_add(keys, hash_keys(keys, self._key_columns), panes)
        assert self._slots.size == before + len(slots), "a key and pane is in one restored state only"
        self._values.load(slots, self._slots.size, piece.column("value"))
        self._note_pane(int(panes.min()))

    def _note_pane(self, start: int) -> None:
        self._earliest_pane = start if self._earliest_pane is None else min(self._earliest_pane, start)

    def _overflow(self, error: SumOverflow, key: Indices, when: str) -> Fatal:
        """A Fatal that says `for user='u1' in the window [0, 10000)`."""
        [values] = self._slots.keys(key).to_pylist()
        named = ", ".join(f"{name}={value!r}" for name, value in values.items())
        where = f"operator {self._context.uid!r}, column {error.column!r}"
        return Fatal(f"{where}: {error} for {named} {when}")
