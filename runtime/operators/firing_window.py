"""FiringWindow: a sliding window that fires piece by piece, and the slots that each piece takes."""

from __future__ import annotations

import numpy as np

from onceflow.runtime.records import Indices

BLOCK_BITS = 10
"""Slots are sorted by blocks of 1,024 keys, so that within one they stay in the order in which they lie."""


class FiringWindow:
    """One window that fires, in the order of its keys' numbers: its slots, and how far that has come."""

    def __init__(self, end: int, slots: Indices, keys: Indices, slots_size: int) -> None:
        """`keys`: of each slot. Slots from `slots_size` on came later and are not among these."""
        self.end = end
        self.slots_size = slots_size
        self.first_key = 0
        """The window has fired for the keys below."""
        self.is_through = False
        self._slots = slots
        self._keys = keys
        self._block_ends: Indices | None = None
        """Where the slots of each block of keys end, once they are sorted by block."""
        self._new: list[tuple[Indices, Indices]] = []
        is_in_it = np.zeros(int(keys.max()) + 1, np.bool_)
        is_in_it[keys] = True
        self._distinct = np.flatnonzero(is_in_it)
        self._next = 0

    def take(self, count: int, key_count: int) -> tuple[Indices, Indices, int]:
        """The slots of about the next so many keys; those keys, counted from the lowest number that they can
        have; and how many numbers that are. There are `key_count` keys in all."""
        first, self._next = self.first_key, self._next + count
        self.is_through = self._next >= len(self._distinct)
        self.first_key = key_count if self.is_through else int(self._distinct[self._next])
        span = self.first_key - first
        slots, keys = self._slots, self._keys
        if not (self.is_through and first == 0):
            slots, keys = self._blocks(first, self.first_key)
        for new_slots, new_keys in self._new:
            slots, keys = np.append(slots, new_slots), np.append(keys, new_keys)
        place = keys - first
        at = np.flatnonzero(place.view(np.uint64) < span)
        return (slots, place, span) if len(at) == len(slots) else (slots.take(at), place.take(at), span)

    def add(self, slots: Indices, keys: Indices) -> None:
        self._new.append((slots, keys))

    def _blocks(self, first_key: int, end_key: int) -> tuple[Indices, Indices]:
        """The slots of all blocks of keys that have some from `first_key` to `end_key`, and their keys: so a
        piece looks at few slots that are not its own, however many the window has."""
        if self._block_ends is None:
            blocks = self._keys >> BLOCK_BITS
            self._block_ends = np.cumsum(np.bincount(blocks))
            if len(self._block_ends) <= 1 << 16:
                blocks = blocks.astype(np.uint16)  # which NumPy sorts by radix
            order = np.argsort(blocks, kind="stable")
            self._slots, self._keys = self._slots.take(order), self._keys.take(order)
        ends, block = self._block_ends, first_key >> BLOCK_BITS
        last = min((end_key - 1) >> BLOCK_BITS, len(ends) - 1)
        rows = slice(int(ends[block - 1]) if block else 0, int(ends[last]))
        return self._slots[rows], self._keys[rows]
