"""KeyIndex: from the 128-bit hash of a key to a dense slot, for a whole batch at a time.

Open addressing with linear probing in one table of 64-bit entries: the slot + 1, or 0 where it is empty.
The hashes themselves lie densely by slot. Two keys are the same if both their 64-bit hashes are: the first
places them, the second, independent one tells apart keys that share the first. With a billion keys two
share both once in 10^20 jobs.

With kernels the loops are those of index_kernels.py, and an entry has the high half of the first hash above
the slot, as a tag: only where it is the same are the hashes looked at. Slots are numbered the same.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from onceflow.runtime.kernels.compiled import kernels_enabled
from onceflow.runtime.records import Indices, Int64s, Mask, UInt64s
from onceflow.runtime.state.cells import mark_at
from onceflow.runtime.state.columns import GrowableColumn

_EMPTY = -1
"""The slot that an empty place holds."""
_ONE = np.uint64(1)
_TABLE_MIN = 1 << 11
_PLACES_PER_SLOT, _PLACES_PER_SLOT_BY_ARRAYS = 2, 4
"""At least. Without kernels each step to the next place costs a look at whole arrays, however few rows
still take it, so there are more free places."""
_SLOTS_MAX = 1 << 30


@dataclass(frozen=True, slots=True)
class Found:
    """What `KeyIndex.find_or_add` did."""

    slots: Indices
    """One per row."""
    new_rows: Indices
    """Rows whose keys were added: the i-th got slot `first_new_slot + i`."""
    first_new_slot: int


class LiveSlots:
    """The slots of the keys there are at some time, lowest first; made for those that are asked for only."""

    __slots__ = ("_size", "_some")

    def __init__(self, size: int, some: Indices | None = None) -> None:
        """`some` of `size` slots; None: all."""
        self._size = size if some is None else len(some)
        self._some = some

    def __len__(self) -> int:
        return self._size

    def piece(self, first: int, end: int) -> Indices:
        """The slots from the `first` of them to the one before `end`."""
        return np.arange(first, min(end, self._size)) if self._some is None else self._some[first:end]

    def all(self) -> Indices:
        return self.piece(0, self._size)


class KeyIndex:
    """Dense slots for keys, numbered in the order in which keys came. One thread.

    A key that was removed keeps its slot number until `compact`; it must not come back before that
    (a window that has fired can't). The caller keeps its columns by slot in step: it grows them after
    `find_or_add` and keeps the slots that `compact` returns.
    """

    def __init__(self, kernels: bool | None = None) -> None:
        """`kernels`: whether to use them; None: if they are enabled."""
        self._table = np.zeros(_TABLE_MIN, np.uint64)
        self._mask = np.uint64(_TABLE_MIN - 1)
        self._keys = GrowableColumn(np.dtype((np.uint64, 2)), is_overwritten=True)
        """First and second hash by slot; side by side, since both are looked at together."""
        self._is_removed = GrowableColumn(np.bool_)
        self._removed = 0
        self._with_kernels = kernels_enabled() if kernels is None else kernels
        if self._with_kernels:
            self.find_or_add(np.zeros(0, np.uint64), np.zeros(0, np.uint64))
            self._build(_TABLE_MIN)
            self.split(np.zeros(0, np.int64), 0)

    def __len__(self) -> int:
        """How many keys there are, without those removed."""
        return len(self._keys) - self._removed

    @property
    def size(self) -> int:
        """How many slots are in use, removed ones included."""
        return len(self._keys)

    @property
    def hashes(self) -> UInt64s:
        """The first hash by slot; never changed in place, so a view of it stays true."""
        return self._keys.used()[:, 0]

    @property
    def checks(self) -> UInt64s:
        """The second hash by slot; as `hashes`."""
        return self._keys.used()[:, 1]

    @property
    def is_live(self) -> Mask:
        """Whether each slot has a key, by slot."""
        return ~self._is_removed.used()

    def live_slots(self) -> LiveSlots:
        """The slots of the keys there are."""
        return LiveSlots(self.size, np.flatnonzero(self.is_live) if self._removed else None)

    def split(self, numbers: Int64s, limit: int) -> tuple[Indices, int | None]:
        """The slots of the keys whose number is at most `limit`, lowest first, and the lowest number of the
        others; None: there are none. `numbers`: by slot, less than 2^63 - 1."""
        if self._with_kernels:
            from onceflow.runtime.state import index_kernels

            within = np.empty(len(self), np.int64)
            count, lowest = index_kernels.split(self._is_removed.used(), numbers, limit, within)
            return within[:count], None if lowest == index_kernels.NO_NUMBER else int(lowest)
        is_live, is_within = self.is_live, numbers <= limit
        others = numbers[is_live & ~is_within]
        return np.flatnonzero(is_live & is_within), int(others.min()) if len(others) else None

    def find_or_add(self, hashes: UInt64s, checks: UInt64s) -> Found:
        """The slot of each row's key; a key that is not there is added, at its first row."""
        self._reserve(len(hashes))
        first_new = self.size
        if not self._with_kernels:
            slots, new_rows = self._find_or_add(hashes, checks)
            return Found(slots, new_rows, first_new)
        from onceflow.runtime.state import index_kernels

        slots, new_rows = np.empty(len(hashes), np.int64), np.empty(len(hashes), np.int64)
        places = np.empty(index_kernels.BLOCK_ROWS, np.uint64)
        self._keys.reserve(first_new + len(hashes))
        added = index_kernels.find_or_add(
            self._table, self._keys.values, first_new, hashes, checks, slots, new_rows, places
        )
        self._keys.grow(first_new + added)
        self._is_removed.grow(first_new + added)
        return Found(slots, new_rows[:added], first_new)

    def remove(self, slots: Indices) -> None:
        """Forget these keys, each there and given once."""
        mark_at(self._is_removed.values, slots, self._with_kernels)
        self._removed += len(slots)

    @property
    def is_sparse(self) -> bool:
        """Whether compacting pays: at least half of the slots are of removed keys."""
        return self._removed > 0 and 2 * self._removed >= self.size

    def compact(self) -> Indices:
        """Renumber the keys without gaps, in their order; returns their old slots."""
        live = self.live_slots().all()
        self._keys.keep(live)
        self._is_removed.keep(live)
        self._removed = 0
        needed = max(_TABLE_MIN, _power_of_two(4 * self.size))
        self._build(needed if 4 * needed < len(self._table) else len(self._table))
        return live

    def _find_or_add(self, hashes: UInt64s, checks: UInt64s) -> tuple[Indices, Indices]:
        """Slots and new rows. What `find_or_add` of the kernels does, by whole arrays."""
        keys = np.stack((hashes, checks), axis=1)
        slots, rows, positions = self._probe(keys, (hashes & self._mask).view(np.int64))
        first_new = self.size
        added: list[Indices] = []
        places: list[Indices] = []
        while len(rows):
            # Every row here stands at an empty place. Of those at the same place the first one wins it;
            # the others look again: the same key finds it there, another goes on to the next place.
            marks = rows.view(np.uint64)
            self._table[positions[::-1]] = marks[::-1]
            won = self._table[positions] == marks
            winners = rows[won]
            taken = np.arange(self.size, self.size + len(winners))
            self._append(keys[winners])
            self._table[positions[won]] = _entries(taken)
            slots[winners] = taken
            added.append(winners)
            places.append(positions[won])
            lost = ~won
            rest = rows[lost]
            found, still, at = self._probe(keys[rest], positions[lost])
            slots[rest] = found
            rows, positions = rest[still], at
        new_rows = np.concatenate(added) if added else np.zeros(0, np.int64)
        if len(added) > 1:
            new_rows = self._in_order(keys, slots, new_rows, np.concatenate(places), first_new)
        return slots, new_rows

    def _in_order(
        self, keys: UInt64s, slots: Indices, new_rows: Indices, places: Indices, first_new: int
    ) -> Indices:
        """Number what several rounds added by row, as one pass would; returns the rows in that order."""
        order = np.argsort(new_rows)
        number = np.empty(len(order), np.int64)
        number[order] = np.arange(first_new, first_new + len(order))
        is_new = slots >= first_new
        slots[is_new] = number[slots[is_new] - first_new]
        self._table[places] = _entries(number)
        in_order = new_rows[order]
        self._keys.values[first_new : self.size] = keys[in_order]
        return in_order

    def _probe(self, keys: UInt64s, positions: Indices) -> tuple[Indices, Indices, Indices]:
        """Look from these places on: the slots (or _EMPTY), the rows not found, the empty places they met."""
        slots = _slots(self._table.take(positions))
        open_rows = np.flatnonzero(~self._is_match(slots, keys))
        rows_missing: list[Indices] = []
        places: list[Indices] = []
        at = positions[open_rows]
        while len(open_rows):
            is_empty = slots[open_rows] == _EMPTY
            rows_missing.append(open_rows[is_empty])
            places.append(at[is_empty])
            open_rows = open_rows[~is_empty]
            at = (at[~is_empty] + 1) & np.int64(self._mask)
            found = _slots(self._table.take(at))
            slots[open_rows] = found
            is_open = ~self._is_match(found, keys[open_rows])
            open_rows, at = open_rows[is_open], at[is_open]
        if not rows_missing:
            return slots, open_rows, at
        missing, place = np.concatenate(rows_missing), np.concatenate(places)
        if len(rows_missing) > 1:
            order = np.argsort(missing)
            missing, place = missing[order], place[order]
        return slots, missing, place

    def _is_match(self, slots: Indices, keys: UInt64s) -> Mask:
        """Where the slot holds this key. An empty place, -1, reads some slot and matches nothing."""
        there = self._keys.values.take(slots, axis=0)
        is_same = there == keys
        return np.asarray(is_same[:, 0] & is_same[:, 1] & (slots >= 0))

    def _append(self, keys: UInt64s) -> None:
        start, end = self.size, self.size + len(keys)
        self._keys.grow(end)
        self._keys.values[start:end] = keys
        self._is_removed.grow(end)

    def _reserve(self, rows: int) -> None:
        """Room for this many more keys; grows the table to the double."""
        needed = self.size + rows
        assert needed < _SLOTS_MAX, "too many keys in one subtask: raise the parallelism"
        places = needed * (_PLACES_PER_SLOT if self._with_kernels else _PLACES_PER_SLOT_BY_ARRAYS)
        if places > len(self._table):
            self._build(_power_of_two(places))

    def _build(self, length: int) -> None:
        """A table of this length with all slots in it, each at the next free place from its home on."""
        if length == len(self._table):
            self._table.fill(0)  # memory that is here already costs less than memory that comes
        else:
            self._table = np.zeros(length, np.uint64)
        self._mask = np.uint64(length - 1)
        if self._with_kernels:
            from onceflow.runtime.state import index_kernels

            index_kernels.build(self._table, self._keys.used())
            return
        slots = np.arange(self.size)
        places = (self.hashes & self._mask).view(np.int64)
        while len(slots):
            entries = _entries(slots)
            free = self._table[places] == 0
            self._table[places[free]] = entries[free]
            lost = self._table[places] != entries
            slots, places = slots[lost], (places[lost] + 1) & np.int64(self._mask)


def _entries(slots: Indices) -> UInt64s:
    """What the table holds for these slots, without kernels."""
    return slots.view(np.uint64) + _ONE


def _slots(entries: UInt64s) -> Indices:
    """The slots in entries; _EMPTY where there is none."""
    return entries.view(np.int64) - 1


def _power_of_two(at_least: int) -> int:
    return 1 << (at_least - 1).bit_length()
