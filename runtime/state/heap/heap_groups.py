"""HeapGroups: a GroupedTable in memory; the rows of a key are a linked list, many followed at once.

Where its snapshots build on each other, the unit of what has changed is the key: an increment has all rows
of a key, and takes the place of all that earlier ones have of it. Rows have no identity of their own then,
and may change in anything.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from onceflow.runtime.arrays.sorting import stable_order
from onceflow.runtime.records import Indices, UInt64s
from onceflow.runtime.state.columns import GrowableColumn
from onceflow.runtime.state.hashing import CHECK_SEED, hash_keys
from onceflow.runtime.state.heap.frozen import FrozenTable, frozen_columns
from onceflow.runtime.state.heap.heap_panes import FrozenPaneKeys
from onceflow.runtime.state.heap.heap_table import compile_kernels, load_columns
from onceflow.runtime.state.heap.key_index import KeyIndex
from onceflow.runtime.state.heap.key_rows import key_rows
from onceflow.runtime.state.increments import FrozenIncrement, Increments
from onceflow.runtime.state.operator_state import FrozenRows
from onceflow.runtime.state.snapshot_options import SnapshotOptions
from onceflow.runtime.state.table import NOT_THERE, Layout, LiveRows, RowColumn

_KEYS_MIN = 1 << 10
"""How many keys are kept even if they have no rows."""


class HeapGroups:
    """GroupedTable."""

    def __init__(self, layout: Layout) -> None:
        assert layout.start_column is None, "starts are among the columns"
        self._key_columns = list(layout.key_columns)
        self._columns = layout.columns
        self._keys = KeyIndex()
        self._key_rows = key_rows(layout.key_schema)
        self._first = GrowableColumn(np.int64, NOT_THERE)
        """The first row of each key, by its number."""
        self._next = GrowableColumn(np.int64, NOT_THERE)
        """The next row of the same key, by row."""
        self._key = GrowableColumn(np.int64)
        """The number of the key, by row; only appended to, so a view of it stays true."""
        self._is_live = GrowableColumn(np.bool_)
        self._removed = 0
        self.kept_keys: Indices | None = None
        """The old numbers of the keys that were kept when rows were renumbered last; None: all were."""
        self.increments: Increments | None = None
        """Which keys have changed since which snapshot, if these build on each other."""
        compile_kernels(self._key_columns, layout.schema)

    @property
    def columns(self) -> Mapping[str, RowColumn]:
        return self._columns

    def __len__(self) -> int:
        return self.size - self._removed

    @property
    def size(self) -> int:
        return len(self._key)

    @property
    def key_count(self) -> int:
        return self._keys.size

    def find_keys(self, batch: pa.RecordBatch, key_hash: UInt64s) -> Indices:
        found = self._keys.find_or_add(key_hash, hash_keys(batch, self._key_columns, CHECK_SEED))
        if len(found.new):
            self._key_rows.append(batch, found.new)
            self._first.grow(self.key_count)
        if self.increments is not None:
            self.increments.grow(self.key_count)
            self.increments.note(found.rows)
        return found.rows

    @property
    def identities(self) -> npt.NDArray[np.uint64]:
        """Both hashes of each key, side by side, by its number. Never changed in place."""
        return self._keys.identities

    def identities_of(self, batch: pa.RecordBatch, key_hash: UInt64s) -> npt.NDArray[np.uint64]:
        """Both hashes of each key of a batch."""
        return np.stack((key_hash, hash_keys(batch, self._key_columns, CHECK_SEED)), axis=1)

    def identities_in(self, batch: pa.RecordBatch) -> npt.NDArray[np.uint64]:
        """Both hashes of the keys of rows of a snapshot."""
        keys = pa.RecordBatch.from_struct_array(batch.column("key"))
        return self.identities_of(keys, hash_keys(keys, self._key_columns))

    def find_identities(self, identities: npt.NDArray[np.uint64]) -> Indices:
        """The number of each key, or NOT_THERE."""
        hashes, checks = np.ascontiguousarray(identities[:, 0]), np.ascontiguousarray(identities[:, 1])
        return self._keys.find(hashes, checks)

    def row_counts(self) -> Indices:
        """How many rows each key has, by its number."""
        return np.bincount(self.key_numbers(self.rows()), minlength=self.key_count)

    def live_rows(self) -> LiveRows:
        """The rows in use."""
        return LiveRows(self.size, self.rows() if self._removed else None)

    def live_keys(self) -> LiveRows:
        """The numbers of the keys that have rows."""
        has_some = self._first.used() != NOT_THERE
        return LiveRows(self.key_count, None if has_some.all() else np.flatnonzero(has_some))

    def rows_of_keys(self, numbers: Indices) -> Indices:
        pieces = []
        rows = self._first.used().take(numbers)
        while len(rows := rows[rows >= 0]):
            pieces.append(rows)
            rows = self._next.used().take(rows)
        return np.concatenate(pieces) if pieces else np.zeros(0, np.int64)

    def rows(self) -> Indices:
        return np.flatnonzero(self._is_live.used()) if self._removed else np.arange(self.size)

    def add(self, numbers: Indices) -> Indices:
        rows = np.arange(self.size, self.size + len(numbers))
        if len(rows):
            for column, values in ((self._key, numbers), (self._is_live, True)):
                column.grow(int(rows[-1]) + 1)
                column.values[rows] = values
            self._next.grow(self.size)
            self._link(rows, numbers, self._first.used().take(numbers))
            for row_column in self._columns.values():
                row_column.grow(self.size)
        return rows

    def key_numbers(self, rows: Indices) -> Indices:
        return self._key.used().take(rows)

    def key_hashes(self, numbers: Indices) -> UInt64s:
        return self._keys.hashes[numbers]

    def keys(self, rows: Indices) -> pa.RecordBatch:
        return self._key_rows.take(self.key_numbers(rows))

    def reset(self, names: Sequence[str], rows: Indices) -> None:
        for name in names:
            self._columns[name].clear(rows)
        self.note_changed(rows)

    def note_changed(self, rows: Indices) -> None:
        if self.increments is not None:
            self.increments.note(self.key_numbers(rows))

    def remove(self, rows: Indices) -> None:
        if not len(rows):
            return
        is_touched = np.zeros(self.key_count, np.bool_)
        is_touched[self.key_numbers(rows)] = True
        touched = np.flatnonzero(is_touched)
        there = self.rows_of_keys(touched)
        self._is_live.values[rows] = False
        self._removed += len(rows)
        left = there[self._is_live.used().take(there)]
        self._first.values[touched] = NOT_THERE
        keys = self.key_numbers(left)
        order = stable_order(keys)
        self._link(left[order], keys[order], NOT_THERE)
        if self.increments is not None:
            self.increments.note(touched)
            without = touched[self._first.used().take(touched) == NOT_THERE]
            if len(gone := self.increments.stored(without)):
                identities = self.identities.take(gone, axis=0)
                self.increments.remove(identities, identities[:, 0])

    def let_go(self, keys: Indices) -> None:
        """Do what `remove` does, with all rows of these keys, which are kept elsewhere."""
        rows = self.rows_of_keys(keys)
        self._is_live.values[rows] = False
        self._removed += len(rows)
        self._first.values[keys] = NOT_THERE

    def compact(self) -> Indices | None:
        has_few_rows = self._removed > 0 and 2 * self._removed >= self.size
        if not has_few_rows and self.key_count <= 2 * max(self.size, _KEYS_MIN):
            return None
        return self._renumber(self.key_count >= 2 * len(self))

    def renumber(self) -> Indices:
        """Do what `compact` does, whether or not it pays; keys without rows are forgotten."""
        return self._renumber(forgets_keys=True)

    def _renumber(self, forgets_keys: bool) -> Indices:
        kept = self.rows()
        keys = self.key_numbers(kept)
        for column in (self._next, self._key, self._is_live):
            column.keep(kept)
        for row_column in self._columns.values():
            row_column.keep(kept)
        self._removed = 0
        self._first.values[: self.key_count] = NOT_THERE
        self.kept_keys = None
        if forgets_keys:
            keys = self._compact_keys(keys)
            self._key.values[: self.size] = keys  # in place: nobody has it since `keep`
        order = stable_order(keys)
        self._link(order, keys[order], NOT_THERE)
        return kept

    def build_on_snapshots(self, key_groups: range, max_parallelism: int, options: SnapshotOptions) -> None:
        assert not self.key_count, "called before the first key"
        self.increments = Increments(key_groups, max_parallelism, None, options)

    def freeze(self, max_parallelism: int) -> FrozenRows:
        if self.increments is None:
            return self.freeze_rows(self.live_rows(), max_parallelism)
        keys, increment = self.increments.next(self.live_keys(), self._keys.hashes)
        rows = self.freeze_rows(self.rows_of_live(keys), max_parallelism)
        return FrozenIncrement(rows, replace(increment, table_rows=len(self)))

    def rows_of_live(self, keys: LiveRows) -> LiveRows:
        """The rows of these keys."""
        is_chosen = np.zeros(self.key_count, np.bool_)
        is_chosen[keys.all()] = True
        rows = self.rows()
        return LiveRows(self.size, rows[is_chosen[self.key_numbers(rows)]])

    def freeze_rows(self, live: LiveRows, max_parallelism: int) -> FrozenTable:
        """Do what `freeze` does, for some of the rows in use."""
        # Keys and their hashes are only appended or replaced, so views of them stay true.
        frozen = FrozenPaneKeys(live, self._key.used(), self._keys.hashes, self._key_rows.frozen())
        return FrozenTable(frozen, max_parallelism, {}, frozen_columns(self._columns, live))

    def load(self, batch: pa.RecordBatch) -> Indices:
        keys = pa.RecordBatch.from_struct_array(batch.column("key"))
        numbers = self.find_keys(keys, hash_keys(keys, self._key_columns))
        order = stable_order(numbers)
        rows = np.empty(len(numbers), np.int64)
        rows[order] = self.add(numbers[order])
        load_columns(self._columns, rows, batch)
        return rows

    def load_keys(self, batch: pa.RecordBatch) -> Indices:
        """Do what `load` does; the number of the key of each row."""
        return self.key_numbers(self.load(batch))

    def note_gone(self) -> None:
        """They are noted when they go."""

    def _link(self, rows: Indices, numbers: Indices, behind: Indices | int) -> None:
        """Let these rows, in which those of one key are neighbours, be the first of their keys; `behind` the
        last of each comes the row that is given with it."""
        if not len(rows):
            return
        is_first = np.ones(len(rows), np.bool_)
        is_first[1:] = numbers[1:] != numbers[:-1]
        following = np.append(rows[1:], NOT_THERE)
        is_last = np.append(is_first[1:], True)
        self._next.values[rows] = np.where(is_last, behind, following)
        self._first.values[numbers[is_first]] = rows[is_first]

    def _compact_keys(self, keys: Indices) -> Indices:
        """Forget the keys that have no row; the numbers that these have now."""
        is_used = np.zeros(self.key_count, np.bool_)
        is_used[keys] = True
        self._keys.remove(np.flatnonzero(~is_used))
        kept = self._keys.compact()
        self._key_rows.keep(kept)
        self._first.keep(kept)
        if self.increments is not None:
            self.increments.keep(kept)
        self.kept_keys = kept
        number = np.zeros(len(is_used), np.int64)
        number[kept] = np.arange(len(kept))
        return np.asarray(number[keys])
