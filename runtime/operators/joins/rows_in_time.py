"""RowsInTime: what a join by time keeps of both sides, by key, until the watermark lets go of it."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import pyarrow as pa

from onceflow.runtime.operators.joins.frozen_sides import TABLE
from onceflow.runtime.operators.joins.joined_columns import JoinedColumns
from onceflow.runtime.operators.joins.joined_rows import JoinedRows, Kept, Side
from onceflow.runtime.operators.operator import OperatorContext, RestoredState
from onceflow.runtime.records import Indices, Int64s, Mask, Records
from onceflow.runtime.state.asked_keys import AskedKeys
from onceflow.runtime.state.operator_state import FrozenRows
from onceflow.runtime.state.overflow import GroupedOverflow, GroupsInMemory

_DUE = 0
"""The kind of time at which a key comes back: something of it is to be sent, or to be let go of."""
WOKEN_MAX = 1 << 12
"""How many keys come back at once."""

Add = Callable[[int, pa.RecordBatch, Indices, Int64s, Mask], None]
"""Keep rows of a snapshot: (side, its rows, the number of the key of each, event times, what is matched)."""


class RowsInTime:
    """The rows of the sides as a table by key. A key goes to disk and comes back with all its rows: for a
    record of either side, and when something of it is due."""

    def __init__(
        self,
        columns: JoinedColumns,
        schemas: tuple[pa.Schema, pa.Schema],
        sides: Sequence[Side],
        add: Add,
        due_ms: Callable[[Indices], Int64s],
    ) -> None:
        """`due_ms`: the watermark at which each of these keys, which have rows, has to be in memory, or
        NO_WAKE_MS."""
        self._add = add
        self._due_ms = due_ms
        self._kept = Kept(sides, self._load)
        self.table = JoinedRows(columns, schemas, self._kept)
        self._overflow: GroupedOverflow = GroupsInMemory(self.table)

    def open(self, context: OperatorContext) -> None:
        context.begin(self.table)
        self._overflow = context.state.grouped_overflow(self.table, self._kept.table_columns)

    def restore(self, states: Sequence[RestoredState]) -> None:
        for state in states:
            for piece in state.batches(TABLE):
                self._overflow.load(piece)
                self.make_room()

    def find_keys(self, side: int, records: Records) -> Indices:
        """The number of the key of each row; keys that are away come back."""
        assert records.key_hash is not None, "a join comes after a key_by"
        return self._overflow.find_keys(self.table.keys_of(side, records.batch), records.key_hash)

    def note_changed(self, keys: Indices) -> None:
        """The rows of these keys have changed, though no record came for them."""
        if self.table.increments is not None:
            self.table.increments.note(keys)

    def wake(self, watermark_ms: int) -> bool:
        """Bring back some of the keys of which something is due, if there are any that are away. Only when
        all has been sent that is due in memory: so each time there are fewer."""
        first_ms = self._overflow.first_wake(_DUE)
        if first_ms is None or first_ms > watermark_ms:
            return False
        self._overflow.wake(_DUE, watermark_ms, WOKEN_MAX)
        return True

    def forget_keys(self) -> None:
        """Let go of keys without rows, if it pays."""
        self._overflow.compact()

    def needs_room(self) -> bool:
        return self._overflow.needs_room()

    def make_room(self) -> None:
        """Let keys go to disk until the others fit. Called when nobody needs the number of a key, and no
        side has rows that have expired."""
        while self._overflow.needs_room():
            going = self._overflow.going()
            self._overflow.make_room(going, {_DUE: self._due_ms(going)})

    def freeze(self, max_parallelism: int) -> FrozenRows:
        return self._overflow.freeze(max_parallelism)

    def peek(self, asked: AskedKeys, max_parallelism: int) -> list[pa.RecordBatch]:
        return self._overflow.peek(asked, max_parallelism)

    def close(self) -> None:
        self._overflow.close()

    def _load(self, side: int, batch: pa.RecordBatch, row: Indices, its: pa.RecordBatch) -> None:
        is_matched = np.array(its.column("is_matched"))  # which will change
        self._add(side, batch, row, its.column("event_time").to_numpy(), is_matched)
