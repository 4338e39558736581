"""FiringWindow: a sliding window that fires piece by piece, and the rows that each piece takes."""

from __future__ import annotations

import numpy as np

from onceflow.runtime.records import Indices

BLOCK_BITS = 10
"""Rows are sorted by blocks of 1,024 keys, so that within one they stay in the order in which they lie."""


class FiringWindow:
    """One window that fires, in the order of its keys' numbers: its rows, and how far that has come."""

    def __init__(self, end: int, rows: Indices, keys: Indices, size: int) -> None:
        """`keys`: of each row. Rows from `size` on came later and are not among these."""
        self.end = end
        self.size = size
        self.first_key = 0
        """The window has fired for the keys below."""
        self.is_through = False
        self._rows = rows
        self._keys = keys
        self._block_ends: Indices | None = None
        """Where the rows of each block of keys end, once they are sorted by block."""
        self._new: list[tuple[Indices, Indices]] = []
        is_in_it = np.zeros(int(keys.max()) + 1, np.bool_)
        is_in_it[keys] = True
        self._distinct = np.flatnonzero(is_in_it)
        self._next = 0

    def take(self, count: int, key_count: int) -> tuple[Indices, Indices, int]:
        """The rows of about the next so many keys; those keys, counted from the lowest number that they can
        have; and how many numbers that are. There are `key_count` keys in all."""
        first, self._next = self.first_key, self._next + count
        self.is_through = self._next >= len(self._distinct)
        self.first_key = key_count if self.is_through else int(self._distinct[self._next])
        span = self.first_key - first
        rows, keys = self._rows, self._keys
        if not (self.is_through and first == 0):
            rows, keys = self._blocks(first, self.first_key)
        for new_rows, new_keys in self._new:
            rows, keys = np.append(rows, new_rows), np.append(keys, new_keys)
        place = keys - first
        at = np.flatnonzero(place.view(np.uint64) < span)
        return (rows, place, span) if len(at) == len(rows) else (rows.take(at), place.take(at), span)

    def add(self, rows: Indices, keys: Indices) -> None:
        self._new.append((rows, keys))

    def _blocks(self, first_key: int, end_key: int) -> tuple[Indices, Indices]:
        """The rows of all blocks of keys that have some from `first_key` to `end_key`, and their keys: so a
        piece looks at few rows that are not its own, however many the window has."""
        if self._block_ends is None:
            blocks = self._keys >> BLOCK_BITS
            self._block_ends = np.cumsum(np.bincount(blocks))
            if len(self._block_ends) <= 1 << 16:
                blocks = blocks.astype(np.uint16)  # which NumPy sorts by radix
            order = np.argsort(blocks, kind="stable")
            self._rows, self._keys = self._rows.take(order), self._keys.take(order)
        ends, block = self._block_ends, first_key >> BLOCK_BITS
        last = min((end_key - 1) >> BLOCK_BITS, len(ends) - 1)
        part = slice(int(ends[block - 1]) if block else 0, int(ends[last]))
        return self._rows[part], self._keys[part]
