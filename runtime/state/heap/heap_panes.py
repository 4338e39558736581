"""HeapPanes: a PaneTable in memory; the keys themselves are kept once, not once for each pane."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from onceflow.runtime.records import Indices, Int64s, UInt64s
from onceflow.runtime.state.asked_keys import AskedKeys
from onceflow.runtime.state.columns import GrowableColumn
from onceflow.runtime.state.hashing import CHECK_SEED, hash_keys, with_start
from onceflow.runtime.state.heap.frozen import FrozenTable, frozen_columns
from onceflow.runtime.state.heap.heap_table import Due, compile_kernels, load_columns
from onceflow.runtime.state.heap.key_index import Found, KeyIndex
from onceflow.runtime.state.heap.key_rows import FrozenKeyRows, key_rows
from onceflow.runtime.state.key_groups import key_groups_of
from onceflow.runtime.state.operator_state import FrozenRows
from onceflow.runtime.state.table import NOT_THERE, Layout, LiveRows


class HeapPanes:
    """PaneTable."""

    def __init__(self, layout: Layout) -> None:
        assert layout.start_column is not None
        self._start_column = layout.start_column
        self._key_columns = list(layout.key_columns)
        self._columns = layout.columns
        self._index = KeyIndex()
        self._start = GrowableColumn(np.int64)
        self._key = GrowableColumn(np.int64)
        self._keys = KeyIndex()
        self._key_rows = key_rows(layout.key_schema)
        self._rows_by_pane: dict[int, list[Indices]] = {}
        """The live rows of each pane, in their order, in pieces."""
        compile_kernels(self._key_columns, layout.schema)

    def __len__(self) -> int:
        return len(self._index)

    @property
    def size(self) -> int:
        return self._index.size

    @property
    def key_count(self) -> int:
        return self._keys.size

    def find(self, batch: pa.RecordBatch, key_hash: UInt64s, starts: Int64s | None = None) -> Indices:
        assert starts is not None
        checks = hash_keys(batch, self._key_columns, CHECK_SEED)
        return self._index.find(with_start(key_hash, starts), checks)

    def find_or_add(self, batch: pa.RecordBatch, key_hash: UInt64s, starts: Int64s | None = None) -> Indices:
        assert starts is not None
        checks = hash_keys(batch, self._key_columns, CHECK_SEED)
        found = self._index.find_or_add(with_start(key_hash, starts), checks)
        if len(found.new):
            self._add(found, batch, key_hash, checks, starts)
        return found.rows

    def keys(self, rows: Indices) -> pa.RecordBatch:
        return self._key_rows.take(self.key_numbers(rows))

    def starts(self, rows: Indices) -> Int64s:
        return self._start.used().take(rows)

    def key_numbers(self, rows: Indices) -> Indices:
        return self._key.used().take(rows)

    def keys_by_number(self, numbers: Indices) -> pa.RecordBatch:
        return self._key_rows.take(numbers)

    def key_hashes(self, numbers: Indices) -> UInt64s:
        return self._keys.hashes[numbers]

    def panes(self) -> Int64s:
        return np.array(sorted(self._rows_by_pane), np.int64)

    def rows_of(self, panes: Int64s) -> Indices:
        pieces = [self._rows_of(pane) for pane in panes.tolist()]
        return np.concatenate(pieces) if pieces else np.zeros(0, np.int64)

    def reset(self, rows: Indices) -> None:
        for column in self._columns.values():
            column.clear(rows)

    def remove(self, rows: Indices) -> None:
        self._index.remove(rows)
        for pane in np.unique(self.starts(rows)).tolist():
            there = self._rows_of(pane)
            left = there[self._index.is_live[there]]
            if len(left):
                self._rows_by_pane[pane] = [left]
            else:
                del self._rows_by_pane[pane]

    def due(self, limit: int) -> Due | None:
        panes = self.panes()
        rows = self.rows_of(panes[panes <= limit])
        return Due(rows, self.starts(rows)) if len(rows) else None

    def compact(self) -> Indices | None:
        if not self._index.is_sparse:
            return None
        kept = self._index.compact()
        self._start.keep(kept)
        self._key.keep(kept)
        for column in self._columns.values():
            column.keep(kept)
        moved = np.zeros(int(kept[-1]) + 1 if len(kept) else 0, np.int64)
        moved[kept] = np.arange(len(kept))
        for pane in self._rows_by_pane:
            self._rows_by_pane[pane] = [moved[self._rows_of(pane)]]
        self._compact_keys()
        return kept

    def freeze(self, max_parallelism: int, beside: Mapping[str, Int64s] | None = None) -> FrozenRows:
        return self._freeze_rows(self._index.live_rows(), max_parallelism, beside)

    def peek(
        self, asked: AskedKeys, max_parallelism: int, beside: Mapping[str, Int64s] | None = None
    ) -> pa.RecordBatch:
        found, is_asked = self._keys.find(asked.hashes, asked.checks), np.zeros(self.key_count, np.bool_)
        is_asked[found[found != NOT_THERE]] = True
        rows = np.flatnonzero(is_asked[self._key.used()])
        rows = rows[self._index.is_live[rows]]
        asked.check_count(len(rows))
        return self._freeze_rows(LiveRows(self.size, rows), max_parallelism, beside).piece(0, len(rows))

    def _freeze_rows(
        self, live: LiveRows, max_parallelism: int, beside: Mapping[str, Int64s] | None
    ) -> FrozenTable:
        # Columns only grow or are replaced, so views of them stay true.
        frozen = FrozenPaneKeys(live, self._key.used(), self._keys.hashes, self._key_rows.frozen())
        numbers = {self._start_column: self._start.used(), **(beside or {})}
        return FrozenTable(frozen, max_parallelism, numbers, frozen_columns(self._columns, live))

    def load(self, batch: pa.RecordBatch) -> Indices:
        keys, before = pa.RecordBatch.from_struct_array(batch.column("key")), self.size
        starts = batch.column(self._start_column).to_numpy()
        rows = self.find_or_add(keys, hash_keys(keys, self._key_columns), starts)
        assert self.size == before + len(rows), "a key and start is in one restored state only"
        load_columns(self._columns, rows, batch)
        return rows

    def _add(
        self, found: Found, batch: pa.RecordBatch, key_hash: UInt64s, checks: UInt64s, starts: Int64s
    ) -> None:
        new = found.new
        keys = self._keys.find_or_add(key_hash[new], checks[new])
        if len(keys.new):
            self._key_rows.append(batch, new[keys.new])
        for column, values in ((self._start, starts[new]), (self._key, keys.rows)):
            column.grow(self.size)
            column.values[found.first_new : self.size] = values
        for row_column in self._columns.values():
            row_column.grow(self.size)
        self._note(starts[new], found.first_new)

    def _note(self, starts: Int64s, first_new: int) -> None:
        """New rows, from this one on, are in these panes."""
        number = starts - starts.min()
        if int(number.max()) < 1 << 16:
            number = number.astype(np.uint16)  # which NumPy sorts by radix
        order = np.argsort(number, kind="stable")
        in_order = starts[order]
        cuts = np.flatnonzero(np.diff(in_order)) + 1
        for pane, rows in zip(
            in_order[[0, *cuts.tolist()]].tolist(), np.split(order + first_new, cuts), strict=True
        ):
            self._rows_by_pane.setdefault(pane, []).append(rows)

    def _rows_of(self, pane: int) -> Indices:
        pieces = self._rows_by_pane[pane]
        if len(pieces) > 1:
            pieces[:] = [np.concatenate(pieces)]
        return pieces[0]

    def _compact_keys(self) -> None:
        """Renumber the keys if few are left."""
        is_used = np.zeros(self.key_count, np.bool_)
        is_used[self._key.used()] = True
        if 2 * int(np.count_nonzero(is_used)) <= self.key_count:
            self._keys.remove(np.flatnonzero(~is_used))
            kept_keys = self._keys.compact()
            self._key_rows.keep(kept_keys)
            number = np.zeros(len(is_used), np.int64)
            number[kept_keys] = np.arange(len(kept_keys))
            self._key.values[: self.size] = number[self._key.used()]  # in place: nobody has it since `keep`


@dataclass(frozen=True, slots=True)
class FrozenPaneKeys:
    """FrozenKeys by key and pane."""

    live: LiveRows
    _key: Indices
    _hashes: UInt64s
    _keys: FrozenKeyRows

    def keys(self, rows: Indices) -> pa.RecordBatch:
        return self._keys.take(self._key[rows])

    def key_groups(self, rows: Indices, max_parallelism: int) -> npt.NDArray[np.uint16]:
        return key_groups_of(self._hashes[self._key[rows]], max_parallelism)
