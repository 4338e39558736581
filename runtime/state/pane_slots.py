"""PaneSlots: a dense slot for each key and pane; the keys themselves are kept once, not once per pane."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from onceflow.runtime.records import Indices, Int64s, UInt64s
from onceflow.runtime.state.columns import GrowableColumn
from onceflow.runtime.state.hashing import CHECK_SEED, hash_keys
from onceflow.runtime.state.key_groups import key_groups_of
from onceflow.runtime.state.key_index import Found, KeyIndex, LiveSlots
from onceflow.runtime.state.key_rows import FrozenKeyRows, key_rows
from onceflow.runtime.state.keyed_slots import compile_kernels, with_window


@dataclass(frozen=True, slots=True)
class FrozenPanes:
    """Keys and panes as they were at a barrier. Nothing in it changes; any thread."""

    live: LiveSlots
    """The slots in use. The other columns are by slot."""
    pane_start: Int64s
    _key: Indices
    _hashes: UInt64s
    _keys: FrozenKeyRows

    def keys(self, slots: Indices) -> pa.RecordBatch:
        """The key columns of these slots, in this order."""
        return self._keys.take(self._key[slots])

    def key_groups(self, slots: Indices, max_parallelism: int) -> npt.NDArray[np.uint16]:
        return key_groups_of(self._hashes[self._key[slots]], max_parallelism)


class PaneSlots:
    """Finds and adds slots for a batch, as KeyedSlots does; numbers the keys too. One thread.

    A (key, pane) that was removed must not come back before `compact`. Columns of the caller go by slot.
    """

    def __init__(self, key_columns: Sequence[str], schema: pa.Schema, kernels: bool | None = None) -> None:
        self._columns = list(key_columns)
        self._slots = KeyIndex(kernels)
        self._pane_start = GrowableColumn(np.int64)
        self._key = GrowableColumn(np.int64)
        self._keys = KeyIndex(kernels)
        self._key_rows = key_rows(pa.schema([schema.field(name) for name in key_columns]), kernels)
        self._slots_by_pane: dict[int, list[Indices]] = {}
        """The live slots of each pane, in their order, in pieces."""
        compile_kernels(key_columns, schema)

    def __len__(self) -> int:
        """How many live slots there are."""
        return len(self._slots)

    @property
    def size(self) -> int:
        """How many slots the caller's columns need."""
        return self._slots.size

    @property
    def pane_start(self) -> Int64s:
        """The start of each slot's pane in ms, by slot."""
        return self._pane_start.used()

    @property
    def key(self) -> Indices:
        """The number of its key, by slot."""
        return self._key.used()

    @property
    def key_count(self) -> int:
        """Numbers of keys are below it."""
        return self._keys.size

    def key_hash(self, keys: Indices) -> UInt64s:
        """The hashes of these keys, by number."""
        return self._keys.hashes[keys]

    def keys(self, keys: Indices) -> pa.RecordBatch:
        """The key columns of these keys, by number."""
        return self._key_rows.take(keys)

    def find_or_add(self, batch: pa.RecordBatch, key_hash: UInt64s, pane_start: Int64s) -> Indices:
        """The slot of each row. `key_hash` is `hash_keys` of the key columns."""
        checks = hash_keys(batch, self._columns, CHECK_SEED)
        found = self._slots.find_or_add(with_window(key_hash, pane_start), checks)
        if len(found.new_rows):
            self._add(found, batch, key_hash, checks, pane_start)
        return found.slots

    def panes(self) -> Int64s:
        """The starts of the panes there are, earliest first."""
        return np.array(sorted(self._slots_by_pane), np.int64)

    def slots_of(self, panes: Int64s) -> Indices:
        """The slots of these panes, pane by pane, within one in their order."""
        return np.concatenate([self._slots_of(pane) for pane in panes.tolist()])

    def remove(self, pane: int) -> None:
        """Forget this pane and its slots."""
        self._slots.remove(self._slots_of(pane))
        del self._slots_by_pane[pane]

    @property
    def is_sparse(self) -> bool:
        """Whether compacting pays: at least half of the slots are dead."""
        return self._slots.is_sparse

    def compact(self) -> Indices:
        """Renumber the live slots without gaps, and the keys if few are left; returns the slots' old
        numbers, for the caller's columns."""
        kept = self._slots.compact()
        self._pane_start.keep(kept)
        self._key.keep(kept)
        moved = np.zeros(int(kept[-1]) + 1 if len(kept) else 0, np.int64)
        moved[kept] = np.arange(len(kept))
        for pane in self._slots_by_pane:
            self._slots_by_pane[pane] = [moved[self._slots_of(pane)]]
        is_used = np.zeros(self.key_count, np.bool_)
        is_used[self.key] = True
        if 2 * int(np.count_nonzero(is_used)) <= self.key_count:
            self._keys.remove(np.flatnonzero(~is_used))
            kept_keys = self._keys.compact()
            self._key_rows.keep(kept_keys)
            number = np.zeros(len(is_used), np.int64)
            number[kept_keys] = np.arange(len(kept_keys))
            self._key.values[: self.size] = number[self.key]  # in place: nobody has it since `keep`
        return kept

    def freeze(self) -> FrozenPanes:
        """Short: columns only grow or are replaced, so views of them stay true."""
        return FrozenPanes(
            self._slots.live_slots(), self.pane_start, self.key, self._keys.hashes, self._key_rows.frozen()
        )

    def _add(
        self, found: Found, batch: pa.RecordBatch, key_hash: UInt64s, checks: UInt64s, pane_start: Int64s
    ) -> None:
        new = found.new_rows
        keys = self._keys.find_or_add(key_hash[new], checks[new])
        if len(keys.new_rows):
            self._key_rows.append(batch, new[keys.new_rows])
        for column, values in ((self._pane_start, pane_start[new]), (self._key, keys.slots)):
            column.grow(self.size)
            column.values[found.first_new_slot : self.size] = values
        self._note(pane_start[new], found.first_new_slot)

    def _note(self, pane_start: Int64s, first_new_slot: int) -> None:
        """New slots, from this one on, are in these panes."""
        number = pane_start - pane_start.min()
        if int(number.max()) < 1 << 16:
            number = number.astype(np.uint16)  # which NumPy sorts by radix
        order = np.argsort(number, kind="stable")
        starts = pane_start[order]
        cuts = np.flatnonzero(np.diff(starts)) + 1
        for pane, slots in zip(
            starts[[0, *cuts.tolist()]].tolist(), np.split(order + first_new_slot, cuts), strict=True
        ):
            self._slots_by_pane.setdefault(pane, []).append(slots)

    def _slots_of(self, pane: int) -> Indices:
        pieces = self._slots_by_pane[pane]
        if len(pieces) > 1:
            pieces[:] = [np.concatenate(pieces)]
        return pieces[0]
