"""KeyedSlots: the keys of a keyed operator, each in a dense slot, by key alone or by key and window."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from onceflow.runtime.records import Indices, Int64s, UInt64s
from onceflow.runtime.state import cells, rows
from onceflow.runtime.state.columns import GrowableColumn
from onceflow.runtime.state.hashing import CHECK_SEED, hash_keys
from onceflow.runtime.state.key_groups import key_groups_of
from onceflow.runtime.state.key_index import KeyIndex, LiveSlots
from onceflow.runtime.state.key_rows import FrozenKeyRows, key_rows
from onceflow.runtime.state.slot_runs import run_of

_ODD = np.uint64(0x9E3779B97F4A7C15)
"""Odd, so that one key's windows all have different hashes; a key group's hashes stay uniform."""


@dataclass(frozen=True, slots=True)
class FrozenSlots:
    """Keys and windows as they were at a barrier. Nothing in it changes; any thread."""

    live: LiveSlots
    """The slots in use. The other columns are by slot."""
    window_start: Int64s
    _hashes: UInt64s
    _keys: FrozenKeyRows

    def keys(self, slots: Indices) -> pa.RecordBatch:
        """The key columns of these slots, in this order."""
        return self._keys.take(slots)

    def key_groups(self, slots: Indices, max_parallelism: int) -> npt.NDArray[np.uint16]:
        run = run_of(slots)
        hashes = self._hashes[slots if run is None else run]
        starts = self.window_start[slots if run is None else run]
        return key_groups_of(_key_hash(hashes, starts), max_parallelism)


class KeyedSlots:
    """Finds and adds slots for a batch; keeps each slot's key columns and window. One thread.

    Without windows every row has window 0. A (key, window) that was removed must not come back before
    `compact`. Columns of the caller go by slot: see KeyIndex.
    """

    def __init__(self, key_columns: Sequence[str], schema: pa.Schema, kernels: bool | None = None) -> None:
        """`kernels`: whether to use them; None: if they are enabled."""
        self._columns = list(key_columns)
        self._index = KeyIndex(kernels)
        self._keys = key_rows(pa.schema([schema.field(name) for name in key_columns]), kernels)
        self._window_start = GrowableColumn(np.int64)
        compile_kernels(key_columns, schema)

    def __len__(self) -> int:
        """How many live slots there are."""
        return len(self._index)

    @property
    def size(self) -> int:
        """How many slots the caller's columns need."""
        return self._index.size

    @property
    def window_start(self) -> Int64s:
        """The start of each slot's window in ms, by slot."""
        return self._window_start.used()

    def find_or_add(self, batch: pa.RecordBatch, key_hash: UInt64s, window_start: Int64s | None) -> Indices:
        """The slot of each row. `key_hash` is `hash_keys` of the key columns."""
        hashes = key_hash if window_start is None else with_window(key_hash, window_start)
        found = self._index.find_or_add(hashes, hash_keys(batch, self._columns, CHECK_SEED))
        if len(found.new_rows):
            self._keys.append(batch, found.new_rows)
            self._window_start.grow(self.size)
            if window_start is not None:
                self._window_start.values[found.first_new_slot : self.size] = window_start.take(
                    found.new_rows
                )
        return found.slots

    def due(self, last_start: int) -> tuple[Indices, int | None]:
        """The slots of windows that start at this time or before, and the earliest start of the others."""
        return self._index.split(self.window_start, last_start)

    def keys(self, slots: Indices) -> pa.RecordBatch:
        """The key columns of these slots, in this order."""
        return self._keys.take(slots)

    def remove(self, slots: Indices) -> None:
        """Forget these slots, each live and given once."""
        self._index.remove(slots)

    @property
    def is_sparse(self) -> bool:
        """Whether compacting pays: at least half of the slots are dead."""
        return self._index.is_sparse

    def compact(self) -> Indices:
        """Renumber the live slots without gaps; returns their old numbers, for the caller's columns."""
        kept = self._index.compact()
        self._keys.keep(kept)
        self._window_start.keep(kept)
        return kept

    def freeze(self) -> FrozenSlots:
        """Short: hashes, windows and keys only grow or are replaced, so views of them stay true."""
        live = self._index.live_slots()
        return FrozenSlots(live, self.window_start, self._index.hashes, self._keys.frozen())


def compile_kernels(key_columns: Sequence[str], schema: pa.Schema) -> None:
    """Have the kernels for such keys and for their cells ready, so that no record waits for the compiler."""
    rows.compile_kernels()
    cells.compile_kernels()
    keys = pa.schema([schema.field(name).with_nullable(True) for name in key_columns])
    nothing = pa.RecordBatch.from_arrays([pa.nulls(1, field.type) for field in keys], schema=keys)
    hash_keys(nothing, list(key_columns), CHECK_SEED)


def with_window(key_hash: UInt64s, window_start: Int64s) -> UInt64s:
    """The hash of (key, window)."""
    return key_hash + window_start.view(np.uint64) * _ODD


def _key_hash(hashes: UInt64s, window_start: Int64s) -> UInt64s:
    """A key's own hash from that of (key, window): the inverse of how they are put together."""
    return hashes - window_start.view(np.uint64) * _ODD
