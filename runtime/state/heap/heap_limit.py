"""HeapLimit: overflows of tables whose rows can go nowhere: they say in time that the memory is full."""

from __future__ import annotations

from collections.abc import Sequence

from onceflow.runtime.state.grouped_table import KeyedGroups
from onceflow.runtime.state.heap.heap_table import HeapTable
from onceflow.runtime.state.heap.memory_share import MemoryShare
from onceflow.runtime.state.heap.row_sizes import RowSizes
from onceflow.runtime.state.overflow import (
    GroupedOverflow,
    GroupsInMemory,
    InMemory,
    Overflow,
    StateFullError,
)
from onceflow.runtime.state.snapshot_options import WHOLE, SnapshotOptions
from onceflow.runtime.state.table import IncrementalTable, Layout


class LimitedHeap:
    """StateBackend: all in memory, and no more than so many bytes."""

    is_unlimited = False

    def __init__(self, memory_bytes: int, snapshots: SnapshotOptions = WHOLE) -> None:
        self._share = MemoryShare(memory_bytes)
        self.snapshots = snapshots

    def overflow(self, table: IncrementalTable, layout: Layout) -> Overflow:
        assert isinstance(table, HeapTable), "tables are made in tables.py"
        return HeapLimit(table, self._share)

    def grouped_overflow(self, table: KeyedGroups, columns: Sequence[str]) -> GroupedOverflow:
        return GroupsLimit(table, self._share)


class HeapLimit(InMemory):
    """Overflow."""

    def __init__(self, table: HeapTable, share: MemoryShare) -> None:
        super().__init__(table)
        self._limit = _Limit(table, share)

    def needs_room(self) -> bool:
        self._limit.check("keys")
        return False


class GroupsLimit(GroupsInMemory):
    """GroupedOverflow."""

    def __init__(self, table: KeyedGroups, share: MemoryShare) -> None:
        super().__init__(table)
        self._limit = _Limit(table, share)

    def needs_room(self) -> bool:
        self._limit.check("rows")
        return False


class _Limit:
    """What one table may take of the memory that all have together."""

    def __init__(self, table: HeapTable | KeyedGroups, share: MemoryShare) -> None:
        self._table = table
        self._share = share
        self._sizes = RowSizes(table)
        share.join()

    def check(self, what: str) -> None:
        """Raises StateFullError; `what` the rows are of."""
        taken, limit = self._sizes.memory_bytes(), self._share.of_a_table
        if taken > limit:
            raise StateFullError(
                f"{len(self._table):,} {what} take {taken >> 20} MB of the slot's memory, of which "
                f"--state-memory gives them {limit >> 20} MB: run with --state-backend rocksdb, which keeps "
                "on disk what does not fit, or with a larger --state-memory, or with more slots "
                "(--parallelism)"
            )
