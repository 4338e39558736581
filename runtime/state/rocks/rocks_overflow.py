"""RocksOverflow: rows of a KeyedTable in RocksDB, each by itself."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import pyarrow as pa

from onceflow.runtime.records import Indices, Int64s, UInt64s
from onceflow.runtime.state.asked_keys import AskedKeys
from onceflow.runtime.state.heap.heap_table import HeapTable
from onceflow.runtime.state.heap.memory_share import MemoryShare
from onceflow.runtime.state.overflow import Wakes
from onceflow.runtime.state.rocks.database import Database
from onceflow.runtime.state.rocks.rocks_units import RocksUnits
from onceflow.runtime.state.table import Layout, LiveRows


class RocksOverflow(RocksUnits):
    """Overflow; a unit is a row."""

    def __init__(
        self, table: HeapTable, layout: Layout, share: MemoryShare, database: Database, rows_min: int
    ) -> None:
        super().__init__(table, [*layout.columns], share, database, rows_min, layout.start_column)
        self._table = table

    def find_or_add(self, batch: pa.RecordBatch, key_hash: UInt64s, starts: Int64s | None = None) -> Indices:
        if self._units:
            self._bring(self._table.identities_of(batch, key_hash, starts))
        rows = self._table.find_or_add(batch, key_hash, starts)
        self._use(rows)
        return rows

    def load(self, batch: pa.RecordBatch) -> Indices:
        self._codec.learn(batch.schema)
        rows = self._table.load(batch)
        self._use(rows)
        return rows

    def remove(self, rows: Indices) -> None:
        self._forget(rows)
        self._table.remove(rows)

    def compact(self) -> Indices | None:
        kept = self._table.compact()
        if kept is not None:
            self._keep(kept)
        return kept

    def make_room(self, going: Indices, wakes: Wakes, empty: Indices) -> Indices:
        self._write(going, 1)
        for kind, times in wakes.items():
            self._put_wakes(kind, going, times)
        self._forget(empty)
        self._table.remove(empty)
        self._table.let_go(going)
        kept = self._table.renumber()
        self._keep(kept)
        return kept

    def wake(self, kind: int, until_ms: int, rows_max: int) -> tuple[Indices, int]:
        return self._wake(kind, until_ms, rows_max)

    # --- A unit is a row ---

    @property
    def _size(self) -> int:
        return self._table.size

    def _live_units(self) -> LiveRows:
        return self._table.live_rows()

    def _rows_of(self, units: LiveRows) -> LiveRows:
        return units

    def _peek(self, asked: AskedKeys, max_parallelism: int) -> pa.RecordBatch:
        return self._table.peek(asked, max_parallelism)

    def _note_gone(self) -> None:
        """Each row is noted when it goes."""

    def _load(self, contents: Sequence[bytes]) -> tuple[Indices, int]:
        return self._table.load(pa.RecordBatch.from_pydict(self._codec.decode(contents))), 1

    def _contents(self, units: Indices) -> Iterator[list[bytes]]:
        return self._encoded(units)
