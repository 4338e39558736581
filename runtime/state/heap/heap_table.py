"""HeapTable: a KeyedTable in memory, a dense row for each key, or for each key and start."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from onceflow.runtime.records import Indices, Int64s, UInt64s
from onceflow.runtime.state import cells
from onceflow.runtime.state import rows as row_taking
from onceflow.runtime.state.asked_keys import AskedKeys
from onceflow.runtime.state.columns import GrowableColumn
from onceflow.runtime.state.hashing import CHECK_SEED, hash_keys, with_start, without_start
from onceflow.runtime.state.heap.frozen import FrozenTable, frozen_columns
from onceflow.runtime.state.heap.key_index import KeyIndex
from onceflow.runtime.state.heap.key_rows import FrozenKeyRows, key_rows
from onceflow.runtime.state.heap.row_runs import run_of
from onceflow.runtime.state.increments import FrozenIncrement, Increments
from onceflow.runtime.state.key_groups import key_groups_of
from onceflow.runtime.state.operator_state import FrozenRows
from onceflow.runtime.state.snapshot_options import SnapshotOptions
from onceflow.runtime.state.table import NOT_THERE, Layout, LiveRows, RowColumn


class HeapTable:
    """KeyedTable, and TrackedTable if it is to track changes."""

    def __init__(self, layout: Layout, tracks_changes: bool = False) -> None:
        self._layout = layout
        self._key_columns = list(layout.key_columns)
        self._columns = layout.columns
        self._index = KeyIndex()
        self._keys = key_rows(layout.key_schema)
        self._start = GrowableColumn(np.int64)
        self._earliest: int | None = None
        """No row that was not given as due starts earlier; None: there is none."""
        self._changed = GrowableColumn(np.bool_) if tracks_changes else None
        self.increments: Increments | None = None
        """Which rows have changed since which snapshot, if these build on each other."""
        compile_kernels(self._key_columns, layout.schema)

    def __len__(self) -> int:
        return len(self._index)

    @property
    def size(self) -> int:
        return self._index.size

    def find(self, batch: pa.RecordBatch, key_hash: UInt64s, starts: Int64s | None = None) -> Indices:
        return self._index.find(*self._hashes(batch, key_hash, starts))

    def find_or_add(self, batch: pa.RecordBatch, key_hash: UInt64s, starts: Int64s | None = None) -> Indices:
        found = self._index.find_or_add(*self._hashes(batch, key_hash, starts))
        if len(found.new):
            self._keys.append(batch, found.new)
            self._start.grow(self.size)
            if starts is not None:
                new = starts.take(found.new)
                self._start.values[found.first_new : self.size] = new
                earliest = int(new.min())
                self._earliest = earliest if self._earliest is None else min(self._earliest, earliest)
            for column in self._columns.values():
                column.grow(self.size)
            if self._changed is not None:
                self._changed.grow(self.size)
            if self.increments is not None:
                self.increments.grow(self.size)
        self.note_changed(found.rows)
        return found.rows

    @property
    def columns(self) -> Mapping[str, RowColumn]:
        """The columns of the layout."""
        return self._columns

    def live_rows(self) -> LiveRows:
        """The rows in use."""
        return self._index.live_rows()

    @property
    def identities(self) -> npt.NDArray[np.uint64]:
        """Both hashes of each row's key (and start), side by side, by row. Never changed in place."""
        return self._index.identities

    def identities_of(
        self, batch: pa.RecordBatch, key_hash: UInt64s, starts: Int64s | None = None
    ) -> npt.NDArray[np.uint64]:
        """Both hashes of each key (and start) of a batch."""
        return np.stack(self._hashes(batch, key_hash, starts), axis=1)

    def find_identities(self, identities: npt.NDArray[np.uint64]) -> Indices:
        """The row of each, or NOT_THERE."""
        hashes, checks = np.ascontiguousarray(identities[:, 0]), np.ascontiguousarray(identities[:, 1])
        return self._index.find(hashes, checks)

    def keys(self, rows: Indices) -> pa.RecordBatch:
        return self._keys.take(rows)

    def starts(self, rows: Indices) -> Int64s:
        return self._start.used().take(rows)

    def reset(self, rows: Indices) -> None:
        for column in self._columns.values():
            column.clear(rows)
        self.note_changed(rows)

    def remove(self, rows: Indices) -> None:
        if self.increments is not None and len(gone := self.increments.stored(rows)):
            identities = self._index.identities.take(gone, axis=0)
            self.increments.remove(identities, without_start(identities[:, 0], self._start.used().take(gone)))
        self._index.remove(rows)

    def let_go(self, rows: Indices) -> None:
        """Do what `remove` does, for rows that are kept elsewhere."""
        self._index.remove(rows)

    def due(self, limit: int) -> Due | None:
        first = self._earliest
        if first is None or first > limit:
            return None
        rows, self._earliest = self._index.split(self._start.used(), limit)
        if not len(rows):
            return None
        step = self._layout.step_ms
        if first + step > limit:
            return Due(rows, first)
        starts = self._start.used().take(rows)
        number = (starts - first) // step
        if int(number.max()) < 1 << 16:
            number = number.astype(np.uint16)  # which NumPy sorts by radix
        by_start = np.argsort(number, kind="stable")
        return Due(rows.take(by_start), starts.take(by_start))

    def compact(self) -> Indices | None:
        return self.renumber() if self._index.is_sparse else None

    def renumber(self) -> Indices:
        """Do what `compact` does, whether or not it pays."""
        kept = self._index.compact()
        self._keys.keep(kept)
        self._start.keep(kept)
        for column in self._columns.values():
            column.keep(kept)
        if self._changed is not None:
            self._changed.keep(kept)
        if self.increments is not None:
            self.increments.keep(kept)
        return kept

    def build_on_snapshots(self, key_groups: range, max_parallelism: int, options: SnapshotOptions) -> None:
        assert not self.size, "called before the first row"
        self.increments = Increments(key_groups, max_parallelism, self._layout.start_column, options)

    def freeze(self, max_parallelism: int, beside: Mapping[str, Int64s] | None = None) -> FrozenRows:
        if self.increments is None:
            return self.freeze_rows(self.live_rows(), max_parallelism, beside)
        rows, increment = self.increments.next(self.live_rows(), self._index.hashes)
        return FrozenIncrement(self.freeze_rows(rows, max_parallelism, beside), increment)

    def freeze_rows(
        self, live: LiveRows, max_parallelism: int, beside: Mapping[str, Int64s] | None = None
    ) -> FrozenTable:
        """Do what `freeze` does, for some of the rows in use."""
        # Hashes, starts and keys only grow or are replaced, so views of them stay true.
        starts = self._start.used()
        frozen = FrozenKeysAndStarts(live, starts, self._index.hashes, self._keys.frozen())
        name = self._layout.start_column
        numbers = {**({} if name is None else {name: starts}), **(beside or {})}
        return FrozenTable(frozen, max_parallelism, numbers, frozen_columns(self._columns, live))

    def peek(self, asked: AskedKeys, max_parallelism: int) -> pa.RecordBatch:
        if self._layout.start_column is None:
            found = self._index.find(asked.hashes, asked.checks)
            rows = np.unique(found[found != NOT_THERE])
        else:
            rows = self._index.rows_of_keys(asked, self._start.used())
        asked.check_count(len(rows))
        return self.freeze_rows(LiveRows(self.size, rows), max_parallelism).piece(0, len(rows))

    def load(self, batch: pa.RecordBatch) -> Indices:
        keys, before = pa.RecordBatch.from_struct_array(batch.column("key")), self.size
        name = self._layout.start_column
        starts = None if name is None else batch.column(name).to_numpy()
        rows = self.find_or_add(keys, hash_keys(keys, self._key_columns), starts)
        assert self.size == before + len(rows), "a key (and start) is in one restored state only"
        load_columns(self._columns, rows, batch)
        return rows

    def note_changed(self, rows: Indices) -> None:
        if self._changed is not None:
            cells.mark_at(self._changed.values, rows)
        if self.increments is not None:
            self.increments.note(rows)

    def take_changed(self) -> Indices:
        assert self._changed is not None, "this table was not asked to know"
        changed = self._changed.used()
        found = np.flatnonzero(changed & self._index.is_live)
        changed[:] = False
        return found

    def _hashes(
        self, batch: pa.RecordBatch, key_hash: UInt64s, starts: Int64s | None
    ) -> tuple[UInt64s, UInt64s]:
        hashes = key_hash if starts is None else with_start(key_hash, starts)
        return hashes, hash_keys(batch, self._key_columns, CHECK_SEED)


class Due:
    """Rows that are due, and how many of them were taken."""

    def __init__(self, rows: Indices, starts: Int64s | int) -> None:
        """`starts`: of each row, or of all of them."""
        self._rows = rows
        self._starts = starts
        self._next = 0

    @property
    def is_through(self) -> bool:
        return self._next == len(self._rows)

    def take(self, count: int) -> tuple[Indices, Int64s]:
        piece = slice(self._next, min(self._next + count, len(self._rows)))
        self._next = piece.stop
        rows, starts = self._rows[piece], self._starts
        return rows, np.full(len(rows), starts, np.int64) if isinstance(starts, int) else starts[piece]


@dataclass(frozen=True, slots=True)
class FrozenKeysAndStarts:
    """FrozenKeys by key and start."""

    live: LiveRows
    _starts: Int64s
    _hashes: UInt64s
    _keys: FrozenKeyRows

    def keys(self, rows: Indices) -> pa.RecordBatch:
        return self._keys.take(rows)

    def key_groups(self, rows: Indices, max_parallelism: int) -> npt.NDArray[np.uint16]:
        run = run_of(rows)
        hashes = self._hashes[rows if run is None else run]
        starts = self._starts[rows if run is None else run]
        return key_groups_of(without_start(hashes, starts), max_parallelism)


def load_columns(columns: Mapping[str, RowColumn], rows: Indices, batch: pa.RecordBatch) -> None:
    """Restore these rows of the columns that the snapshot has; in the others they stay empty."""
    for name, column in columns.items():
        if name in batch.schema.names:
            column.load(rows, batch.column(name))


def compile_kernels(key_columns: Sequence[str], schema: pa.Schema) -> None:
    """Have the kernels for such keys and for their cells ready, so that no record waits for the compiler."""
    row_taking.compile_kernels()
    cells.compile_kernels()
    keys = pa.schema([schema.field(name).with_nullable(True) for name in key_columns])
    nothing = pa.RecordBatch.from_arrays([pa.nulls(1, field.type) for field in keys], schema=keys)
    hash_keys(nothing, list(key_columns), CHECK_SEED)
