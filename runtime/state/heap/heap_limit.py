"""HeapLimit: Overflow of a table whose rows can go nowhere: it says in time that the memory is full."""

from __future__ import annotations

import pyarrow as pa

from onceflow.runtime.records import Indices, Int64s, UInt64s
from onceflow.runtime.state.heap.heap_table import HeapTable
from onceflow.runtime.state.heap.memory_share import MemoryShare
from onceflow.runtime.state.heap.row_sizes import RowSizes
from onceflow.runtime.state.operator_state import FrozenRows
from onceflow.runtime.state.overflow import Overflow, StateFullError, Wakes
from onceflow.runtime.state.snapshot_options import WHOLE, SnapshotOptions
from onceflow.runtime.state.table import KeyedTable, Layout


class LimitedHeap:
    """StateBackend: all in memory, and no more than so many bytes."""

    def __init__(self, memory_bytes: int, snapshots: SnapshotOptions = WHOLE) -> None:
        self._share = MemoryShare(memory_bytes)
        self.snapshots = snapshots

    def overflow(self, table: KeyedTable, layout: Layout) -> Overflow:
        assert isinstance(table, HeapTable), "tables are made in tables.py"
        return HeapLimit(table, self._share)


class HeapLimit:
    """Overflow."""

    def __init__(self, table: HeapTable, share: MemoryShare) -> None:
        self._table = table
        self._share = share
        self._sizes = RowSizes(table)
        share.join()

    def find_or_add(self, batch: pa.RecordBatch, key_hash: UInt64s, starts: Int64s | None = None) -> Indices:
        return self._table.find_or_add(batch, key_hash, starts)

    def load(self, batch: pa.RecordBatch) -> Indices:
        return self._table.load(batch)

    def remove(self, rows: Indices) -> None:
        self._table.remove(rows)

    def compact(self) -> Indices | None:
        return self._table.compact()

    def freeze(self, max_parallelism: int) -> FrozenRows:
        return self._table.freeze(max_parallelism)

    def needs_room(self) -> bool:
        taken, limit = self._sizes.memory_bytes(), self._share.of_a_table
        if taken > limit:
            raise StateFullError(
                f"{len(self._table):,} keys take {taken >> 20} MB of the slot's memory, of which "
                f"--state-memory gives them {limit >> 20} MB: run with --state-backend rocksdb, which keeps "
                "on disk what does not fit, or with a larger --state-memory, or with more slots "
                "(--parallelism)"
            )
        return False

    def going(self) -> Indices:
        raise AssertionError("rows stay")

    def make_room(self, going: Indices, wakes: Wakes, empty: Indices) -> Indices:
        raise AssertionError("rows stay")

    def first_wake(self, kind: int) -> int | None:
        return None

    def wake(self, kind: int, until_ms: int, rows_max: int) -> tuple[Indices, int]:
        raise AssertionError("no row is away")

    def close(self) -> None:
        pass
