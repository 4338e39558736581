"""RocksBackend: the state of one slot, of which RocksDB has what has no room in memory."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

from onceflow.runtime.errors import Retryable
from onceflow.runtime.state.grouped_table import KeyedGroups
from onceflow.runtime.state.heap.heap_table import HeapTable
from onceflow.runtime.state.heap.memory_share import MemoryShare
from onceflow.runtime.state.overflow import GroupedOverflow, Overflow
from onceflow.runtime.state.rocks.database import Database, SharedMemory
from onceflow.runtime.state.rocks.rocks_groups import RocksGroups
from onceflow.runtime.state.rocks.rocks_overflow import RocksOverflow
from onceflow.runtime.state.rocks.scratch import ScratchFolder
from onceflow.runtime.state.snapshot_options import WHOLE, SnapshotOptions
from onceflow.runtime.state.table import IncrementalTable, Layout

_ROCKS_PART = 4
"""RocksDB's blocks and write buffers take one part of so many; rows in memory have the others."""
_BESIDE_BYTES = 24 << 20
"""What goes with it beside rows and RocksDB's share, whatever these are: what a batch is read into, pieces of
columns, and memory that the allocators keep (measured with benchmarks/columns_on_disk.py)."""
ROWS_MIN = 64


class RocksBackend:
    """StateBackend."""

    is_unlimited = False

    def __init__(
        self,
        memory_bytes: int,
        rows_min: int = ROWS_MIN,
        rows_bytes: int | None = None,
        folder: Path | None = None,
        snapshots: SnapshotOptions = WHOLE,
    ) -> None:
        """`memory_bytes`: what all of it may add to the process; `rows_min`: so many of each table are in
        memory in any case; `rows_bytes`: what all may take there, if it is not what RocksDB leaves of the
        memory; `folder`: where scratch folders are made, if it is not where temporary files are."""
        self.snapshots = snapshots
        usable = max(memory_bytes - _BESIDE_BYTES, memory_bytes // 2)
        of_rocks = usable // _ROCKS_PART
        self._share = MemoryShare(usable - of_rocks if rows_bytes is None else rows_bytes)
        self._memory = SharedMemory(of_rocks)
        self._rows_min = rows_min
        self._folder = folder

    def overflow(self, table: IncrementalTable, layout: Layout) -> Overflow:
        assert isinstance(table, HeapTable), "tables are made in tables.py"
        return RocksOverflow(table, layout, self._share, self._database(), self._rows_min)

    def grouped_overflow(self, table: KeyedGroups, columns: Sequence[str]) -> GroupedOverflow:
        return RocksGroups(table, columns, self._share, self._database(), self._rows_min)

    def queue_bytes(self) -> Callable[[], int] | None:
        self._share.join()
        return lambda: self._share.of_a_table

    def _database(self) -> Database:
        try:
            folder = ScratchFolder(self._folder)
        except OSError as error:
            raise Retryable(f"there is no place for RocksDB's files (TMPDIR says where): {error}") from error
        return Database(self._memory, folder)
