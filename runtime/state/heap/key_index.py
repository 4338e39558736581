"""KeyIndex: from the 128-bit hash of a key to a dense row number, for a whole batch at a time.

Two keys are the same if both their 64-bit hashes are: the first places them, the second, independent one
tells apart keys that share the first. With a billion keys two share both once in 10^20 jobs.

With kernels it is open addressing with linear probing in one table of 64-bit entries: the row + 1, or 0 where
it is empty, with the high half of the first hash above it, as a tag: only where that is the same are the
hashes looked at. The loops are in index_kernels.py. Without kernels it is a dictionary. Rows are numbered the
same.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import numpy as np
import numpy.typing as npt

from onceflow.runtime.kernels.ops import ops
from onceflow.runtime.records import Indices, Int64s, Mask, UInt64s
from onceflow.runtime.state.asked_keys import AskedKeys
from onceflow.runtime.state.cells import mark_at
from onceflow.runtime.state.columns import GrowableColumn
from onceflow.runtime.state.hashing import without_start
from onceflow.runtime.state.table import NOT_THERE, LiveRows

_TABLE_MIN = 1 << 11
_PLACES_PER_ROW = 2
"""How many places of the hash table there are for each row, at least."""
_ROWS_MAX = 1 << 30
_LOOKED_ROWS = 1 << 15
"""How many rows are looked at at once for those of some keys: what is computed of them stays in the cache."""


@dataclass(frozen=True, slots=True)
class Found:
    """What `KeyIndex.find_or_add` did."""

    rows: Indices
    """One for each place of the batch."""
    new: Indices
    """Places of the batch whose keys were added: the i-th got row `first_new + i`."""
    first_new: int


class _Places(Protocol):
    """Where the keys are. `keys`, both hashes by row, is of whoever asks."""

    def find(self, keys: UInt64s, hashes: UInt64s, checks: UInt64s) -> Indices:
        """The row of each key, or NOT_THERE."""
        ...

    def find_or_add(self, keys: GrowableColumn, hashes: UInt64s, checks: UInt64s) -> tuple[Indices, Indices]:
        """The row of each key, and the places of the batch whose keys were added at the end of `keys`."""
        ...

    def rebuild(self, keys: UInt64s) -> None:
        """All keys were renumbered."""
        ...

    def split(self, is_removed: Mask, numbers: Int64s, limit: int) -> tuple[Indices, int | None]:
        """See KeyIndex."""
        ...


class KeyIndex:
    """Dense rows for keys, numbered in the order in which keys came. One thread.

    A key that was removed keeps its row until `compact`, and must not be looked for before that. The caller
    keeps its columns by row in step: it grows them after `find_or_add` and keeps the rows that `compact`
    returns.
    """

    def __init__(self) -> None:
        self._keys = GrowableColumn(np.dtype((np.uint64, 2)), is_overwritten=True)
        """First and second hash by row; side by side, since both are looked at together."""
        self._is_removed = GrowableColumn(np.bool_)
        self._removed = 0
        self._places: _Places = _ByKernels() if ops().are_compiled else _ByDictionary()
        # What has to be compiled is compiled now.
        self.find_or_add(np.zeros(0, np.uint64), np.zeros(0, np.uint64))
        self.find(np.zeros(0, np.uint64), np.zeros(0, np.uint64))
        self._places.rebuild(self._keys.used())
        self.split(np.zeros(0, np.int64), 0)

    def __len__(self) -> int:
        """How many keys there are, without those removed."""
        return len(self._keys) - self._removed

    @property
    def size(self) -> int:
        """How many rows are in use, removed ones included."""
        return len(self._keys)

    @property
    def hashes(self) -> UInt64s:
        """The first hash by row; never changed in place, so a view of it stays true."""
        return self._keys.used()[:, 0]

    @property
    def checks(self) -> UInt64s:
        """The second hash by row; as `hashes`."""
        return self._keys.used()[:, 1]

    @property
    def identities(self) -> npt.NDArray[np.uint64]:
        """Both hashes by row, side by side; as `hashes`."""
        return self._keys.used()

    @property
    def is_live(self) -> Mask:
        """Whether each row has a key, by row."""
        return ~self._is_removed.used()

    def live_rows(self) -> LiveRows:
        """The rows of the keys there are."""
        return LiveRows(self.size, np.flatnonzero(self.is_live) if self._removed else None)

    def split(self, numbers: Int64s, limit: int) -> tuple[Indices, int | None]:
        """The rows of the keys whose number is at most `limit`, lowest first, and the lowest number of the
        others; None: there are none. `numbers`: by row, less than 2^63 - 1."""
        return self._places.split(self._is_removed.used(), numbers, limit)

    def rows_of_keys(self, asked: AskedKeys, starts: Int64s) -> Indices:
        """The rows of these keys, lowest first, where a row is of a key and a start; `starts`: by row. All
        rows are looked at."""
        found = []
        for first in range(0, self.size, _LOOKED_ROWS):
            piece = slice(first, min(first + _LOOKED_ROWS, self.size))
            hashes = without_start(self.hashes[piece], starts[piece])
            near = asked.near(hashes)
            found.append(first + near[asked.are(hashes[near], self.checks[piece][near])])
        rows = np.concatenate(found) if found else np.zeros(0, np.int64)
        return np.asarray(rows[~self._is_removed.used().take(rows)])

    def find(self, hashes: UInt64s, checks: UInt64s) -> Indices:
        """The row of each key, or NOT_THERE; also for one that was removed."""
        rows = self._places.find(self._keys.used(), hashes, checks)
        if self._removed:
            rows[(rows >= 0) & self._is_removed.used().take(rows)] = NOT_THERE
        return rows

    def find_or_add(self, hashes: UInt64s, checks: UInt64s) -> Found:
        """The row of each key; one that is not there is added, where it comes first."""
        first_new = self.size
        assert first_new + len(hashes) < _ROWS_MAX, "too many keys in one subtask: raise the parallelism"
        rows, new = self._places.find_or_add(self._keys, hashes, checks)
        self._is_removed.grow(self.size)
        return Found(rows, new, first_new)

    def remove(self, rows: Indices) -> None:
        """Forget these keys, each there and given once."""
        mark_at(self._is_removed.values, rows)
        self._removed += len(rows)

    @property
    def is_sparse(self) -> bool:
        """Whether compacting pays: at least half of the rows are of removed keys."""
        return self._removed > 0 and 2 * self._removed >= self.size

    def compact(self) -> Indices:
        """Renumber the keys without gaps, in their order; returns their old rows."""
        live = self.live_rows().all()
        self._keys.keep(live)
        self._is_removed.keep(live)
        self._removed = 0
        self._places.rebuild(self._keys.used())
        return live


class _ByKernels:
    """Places in a table of entries."""

    def __init__(self) -> None:
        self._table = np.zeros(_TABLE_MIN, np.uint64)

    def find(self, keys: UInt64s, hashes: UInt64s, checks: UInt64s) -> Indices:
        from onceflow.runtime.state.heap import index_kernels

        rows = np.empty(len(hashes), np.int64)
        index_kernels.find(self._table, keys, hashes, checks, rows)
        return rows

    def find_or_add(self, keys: GrowableColumn, hashes: UInt64s, checks: UInt64s) -> tuple[Indices, Indices]:
        from onceflow.runtime.state.heap import index_kernels

        size, needed = len(keys), _PLACES_PER_ROW * (len(keys) + len(hashes))
        if needed > len(self._table):
            self._build(_power_of_two(needed), keys.used())
        rows, new = np.empty(len(hashes), np.int64), np.empty(len(hashes), np.int64)
        places = np.empty(index_kernels.BLOCK_KEYS, np.uint64)
        keys.reserve(size + len(hashes))
        added = index_kernels.find_or_add(self._table, keys.values, size, hashes, checks, rows, new, places)
        keys.grow(size + added)
        return rows, new[:added]

    def rebuild(self, keys: UInt64s) -> None:
        needed = max(_TABLE_MIN, _power_of_two(4 * len(keys)))
        self._build(needed if 4 * needed < len(self._table) else len(self._table), keys)

    def split(self, is_removed: Mask, numbers: Int64s, limit: int) -> tuple[Indices, int | None]:
        from onceflow.runtime.state.heap import index_kernels

        within = np.empty(len(numbers), np.int64)
        count, lowest = index_kernels.split(is_removed, numbers, limit, within)
        return within[:count], None if lowest == index_kernels.NO_NUMBER else int(lowest)

    def _build(self, length: int, keys: UInt64s) -> None:
        """A table of this length with all rows in it, each at the next free place from its home on."""
        from onceflow.runtime.state.heap import index_kernels

        if length == len(self._table):
            self._table.fill(0)  # memory that is here already costs less than memory that comes
        else:
            self._table = np.zeros(length, np.uint64)
        index_kernels.build(self._table, keys)


class _ByDictionary:
    """The simple code: it says what is right."""

    def __init__(self) -> None:
        self._rows: dict[tuple[int, int], int] = {}

    def find(self, keys: UInt64s, hashes: UInt64s, checks: UInt64s) -> Indices:
        pairs = zip(hashes.tolist(), checks.tolist(), strict=True)
        return np.array([self._rows.get(pair, NOT_THERE) for pair in pairs], np.int64)

    def find_or_add(self, keys: GrowableColumn, hashes: UInt64s, checks: UInt64s) -> tuple[Indices, Indices]:
        first_new, new = len(keys), []
        rows = np.empty(len(hashes), np.int64)
        for place, pair in enumerate(zip(hashes.tolist(), checks.tolist(), strict=True)):
            if pair not in self._rows:
                self._rows[pair] = len(self._rows)
                new.append(place)
            rows[place] = self._rows[pair]
        added = np.array(new, np.int64)
        keys.grow(first_new + len(added))
        keys.values[first_new : len(keys)] = np.stack((hashes[added], checks[added]), axis=1)
        return rows, added

    def rebuild(self, keys: UInt64s) -> None:
        self._rows = {(key, check): row for row, (key, check) in enumerate(keys.tolist())}

    def split(self, is_removed: Mask, numbers: Int64s, limit: int) -> tuple[Indices, int | None]:
        is_live, is_within = ~is_removed, numbers <= limit
        others = numbers[is_live & ~is_within]
        return np.flatnonzero(is_live & is_within), int(others.min()) if len(others) else None


def _power_of_two(at_least: int) -> int:
    return 1 << (at_least - 1).bit_length()
