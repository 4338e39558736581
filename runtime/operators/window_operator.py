"""WindowOperator: rows into (key, window) slots, results out when the watermark passes a window's end.

What is computed per window is its WindowValues: built-in and user aggregates, or a reduce function.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from itertools import pairwise
from typing import Protocol

import numpy as np
import pyarrow as pa

from onceflow.runtime.contracts import Json
from onceflow.runtime.errors import Fatal
from onceflow.runtime.operators.accumulators import SumOverflow
from onceflow.runtime.operators.operator import OperatorContext, OperatorState, Output
from onceflow.runtime.operators.tumbling import Tumbling
from onceflow.runtime.records import WATERMARK_MIN_MS, Indices, Int64s, Records
from onceflow.runtime.state.hashing import hash_keys
from onceflow.runtime.state.key_groups import key_groups_of
from onceflow.runtime.state.keyed_slots import FrozenSlots, KeyedSlots
from onceflow.runtime.state.lazy_tables import LazyTables

LATE = "late"
"""The tag of the side output for rows that came after their window had fired."""

TABLE = "windows"
_EMIT_ROWS_MAX = 1 << 14

FrozenValues = Callable[[Indices], pa.StructArray]


class WindowValues(Protocol):
    """What a window operator keeps per slot, and what it makes of it when the window fires."""

    def update(self, records: Records, slots: Indices, size: int) -> None:
        """Take in a batch; `size` slots are in use, new ones included."""
        ...

    def results(self, keys: pa.RecordBatch, start: Int64s, end: Int64s, slots: Indices) -> pa.RecordBatch:
        """The output rows of these slots, of the output's schema."""
        ...

    def keep(self, slots: Indices) -> None:
        """Renumber: keep these slots only, in this order."""
        ...

    def freeze(self, live: Indices) -> FrozenValues:
        """Short. What it gives is called on another thread, with the same slots."""
        ...

    def load(self, slots: Indices, size: int, state: pa.StructArray) -> None: ...


class WindowOperator:
    """One subtask of a tumbling event-time window.

    A window fires once: when the watermark reaches its last millisecond. Rows of a window that has
    fired are late: counted, and sent to the tag "late" if asked for. That holds across restores too:
    the snapshot says how far event time was for each key group, and rows are held against that until
    the watermark, which starts again from the minimum, has passed it.
    """

    def __init__(
        self,
        key_columns: Sequence[str],
        schema: pa.Schema,
        window: Tumbling,
        values: WindowValues,
        late: bool,
    ) -> None:
        self._key_columns = list(key_columns)
        self._slots = KeyedSlots(key_columns, schema)
        self._window = window
        self._values = values
        self._late = late
        self._watermark_ms = WATERMARK_MIN_MS
        self._floors: Int64s | None = None
        """After a restore, by key group: how far event time was. None once the watermark is past all."""
        self._earliest_start: int | None = None
        """Of the windows that are open; None: there are none."""

    def open(self, context: OperatorContext, out: Output) -> None:
        self._context = context
        self._out = out

    def restore(self, states: Sequence[OperatorState]) -> None:
        floors = np.full(self._context.max_parallelism, WATERMARK_MIN_MS, np.int64)
        for state in states:
            for start, end, watermark_ms in state.meta["watermarks"]:
                floors[start:end] = np.maximum(floors[start:end], watermark_ms)
            if TABLE in state.tables:
                self._load(state.tables[TABLE])
        mine = self._context.key_groups
        floors[: mine.start] = floors[mine.stop :] = WATERMARK_MIN_MS
        self._floors = floors
        self._drop_passed_floors()

    def on_records(self, records: Records) -> None:
        assert records.event_time is not None, "windows need event time"
        assert records.key_hash is not None, "windows come after a key_by"
        if not len(records):
            return
        starts = self._window.starts(records.event_time)
        late = self._late_rows(records, starts)
        if late is not None:
            self._context.count_late(int(np.count_nonzero(late)))
            if self._late:
                self._out.emit(records.filter(late), LATE)
            records, starts = records.filter(~late), starts[~late]
            if not len(records):
                return
        assert records.key_hash is not None
        slots = self._slots.find_or_add(records.batch, records.key_hash, starts)
        try:
            self._values.update(records, slots, self._slots.size)
        except SumOverflow as error:
            where = f"operator {self._context.uid!r}, column {error.column!r}"
            raise Fatal(f"{where}: {error} {self._describe(error.slot)}") from error
        earliest = int(starts.min())
        self._earliest_start = (
            earliest if self._earliest_start is None else min(self._earliest_start, earliest)
        )

    def on_watermark(self, time_ms: int) -> None:
        if time_ms <= self._watermark_ms:
            return
        self._watermark_ms = time_ms
        self._drop_passed_floors()
        last_start = time_ms + 1 - self._window.size_ms
        if self._earliest_start is None or self._earliest_start > last_start:
            return
        live = self._slots.live_slots()
        is_due = self._slots.window_start[live] <= last_start
        due = live[is_due]
        self._fire(due)
        self._slots.remove(due)
        open_starts = self._slots.window_start[live[~is_due]]
        self._earliest_start = int(open_starts.min()) if len(open_starts) else None
        if self._slots.is_sparse:
            self._values.keep(self._slots.compact())

    def snapshot(self) -> OperatorState:
        frozen = self._slots.freeze()
        build = partial(_table, frozen, self._values.freeze(frozen.live), self._context.max_parallelism)
        key_groups = self._context.key_groups
        return OperatorState(key_groups, LazyTables(TABLE, build), {"watermarks": self._watermarks()})

    def close(self) -> None:
        pass

    def _late_rows(self, records: Records, starts: Int64s) -> np.typing.NDArray[np.bool_] | None:
        """Which rows belong to windows that have fired; None: none."""
        fired_ms: int | Int64s = self._watermark_ms
        if self._floors is not None:
            assert records.key_hash is not None
            groups = key_groups_of(records.key_hash, self._context.max_parallelism)
            fired_ms = np.maximum(self._floors[groups], fired_ms)
        elif int(starts.min()) + self._window.size_ms - 1 > self._watermark_ms:
            return None
        late = np.asarray(starts + (self._window.size_ms - 1) <= fired_ms)
        return late if late.any() else None

    def _fire(self, due: Indices) -> None:
        """Emit these slots: by window, within it by the hash of the key, which no restart changes."""
        starts = self._slots.window_start[due]
        order = np.argsort(self._slots.key_hash(due))
        order = order[np.argsort(starts[order], kind="stable")]
        due = due[order]
        for first in range(0, len(due), _EMIT_ROWS_MAX):
            slots = due[first : first + _EMIT_ROWS_MAX]
            start = self._slots.window_start[slots]
            end = start + self._window.size_ms
            batch = self._values.results(self._slots.keys(slots), start, end, slots)
            self._out.emit(Records(batch, end - 1))

    def _load(self, table: pa.Table) -> None:
        for piece in table.to_batches():
            if not piece.num_rows:
                continue
            keys = pa.RecordBatch.from_struct_array(piece.column("key"))
            starts = piece.column("window_start").to_numpy()
            before = self._slots.size
            slots = self._slots.find_or_add(keys, hash_keys(keys, self._key_columns), starts)
            assert self._slots.size == before + len(slots), "a key and window is in one restored state only"
            self._values.load(slots, self._slots.size, piece.column("value"))
            earliest = int(starts.min())
            mine = self._earliest_start
            self._earliest_start = earliest if mine is None else min(mine, earliest)

    def _drop_passed_floors(self) -> None:
        if self._floors is not None and int(self._floors.max()) <= self._watermark_ms:
            self._floors = None

    def _watermarks(self) -> list[Json]:
        """[first key group, end, ms] in runs: how far event time is for each key group of this subtask."""
        mine = self._context.key_groups
        if self._floors is None:
            return [[mine.start, mine.stop, self._watermark_ms]]
        levels = np.maximum(self._floors[mine.start : mine.stop], self._watermark_ms)
        cuts = [0, *(np.flatnonzero(np.diff(levels)) + 1).tolist(), len(levels)]
        return [[mine.start + a, mine.start + b, int(levels[a])] for a, b in pairwise(cuts)]

    def _describe(self, slot: int) -> str:
        """`for user='u1' in the window [0, 10000)`."""
        key = self._slots.keys(np.array([slot])).to_pylist()[0]
        start = int(self._slots.window_start[slot])
        named = ", ".join(f"{name}={value!r}" for name, value in key.items())
        return f"for {named} in the window [{start}, {start + self._window.size_ms})"


def _table(frozen: FrozenSlots, values: FrozenValues, max_parallelism: int) -> pa.Table:
    """Columns: key_group, key (struct), window_start, value (struct): names of users never meet ours."""
    columns = {
        "key_group": pa.array(frozen.key_groups(max_parallelism)),
        "key": frozen.keys().to_struct_array(),
        "window_start": pa.array(frozen.window_start[frozen.live]),
        "value": values(frozen.live),
    }
    return pa.table(columns)
