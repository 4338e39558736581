"""AskedKeys: the keys of a live question, and how their rows are found where no index goes by key alone."""

from __future__ import annotations

from functools import cached_property

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from onceflow.runtime.errors import UsageError
from onceflow.runtime.records import Indices, Mask, UInt64s
from onceflow.runtime.state.hashing import CHECK_SEED, hash_keys

ROWS_MAX = 1 << 16
"""How many rows a slot looks up for one question at most: a barrier waits meanwhile."""
_MARK_BITS = np.uint64(16)
_MARK_SHIFT = np.uint64(64) - _MARK_BITS


class AskedKeys:
    """Keys that somebody asks for, by both their hashes, which are the identity that a table goes by."""

    def __init__(self, batch: pa.RecordBatch, rows_max: int = ROWS_MAX) -> None:
        """`batch`: the key columns alone. `rows_max`: how many rows may be found."""
        self.batch = batch
        self.rows_max = rows_max
        self.hashes = hash_keys(batch, batch.schema.names)
        self.checks = hash_keys(batch, batch.schema.names, CHECK_SEED)

    def __len__(self) -> int:
        return len(self.hashes)

    @property
    def identities(self) -> npt.NDArray[np.uint64]:
        """Both hashes of each key, side by side."""
        return np.stack((self.hashes, self.checks), axis=1)

    def near(self, hashes: UInt64s) -> Indices:
        """Where among these first hashes of keys those of asked ones are. Which of them have the second hash,
        too, `are` says."""
        found = np.flatnonzero(self._marks[hashes >> _MARK_SHIFT])
        if not len(found):
            return found
        their, mine = hashes[found], self._sorted
        places = np.minimum(np.searchsorted(mine, their), len(mine) - 1)
        return np.asarray(found[mine[places] == their])

    def are(self, hashes: UInt64s, checks: UInt64s) -> Mask:
        """Which of the keys with these two hashes are asked for."""
        pairs = zip(hashes.tolist(), checks.tolist(), strict=True)
        return np.array([pair in self._pairs for pair in pairs], np.bool_)

    def check_count(self, rows: int) -> None:
        """Raises UsageError if so many rows were found that they are more than may be."""
        if rows > self.rows_max:
            raise UsageError(
                f"these keys have {rows:,} rows or more, and a live answer has {self.rows_max:,} at most "
                "from each slot: ask for fewer keys, or without --live for the last completed checkpoint"
            )

    @cached_property
    def _marks(self) -> npt.NDArray[np.bool_]:
        marks = np.zeros(1 << int(_MARK_BITS), np.bool_)
        marks[self.hashes >> _MARK_SHIFT] = True
        return marks

    @cached_property
    def _sorted(self) -> UInt64s:
        return np.sort(self.hashes)

    @cached_property
    def _pairs(self) -> frozenset[tuple[int, int]]:
        return frozenset(zip(self.hashes.tolist(), self.checks.tolist(), strict=True))
