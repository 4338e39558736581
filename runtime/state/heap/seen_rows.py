"""SeenRows: which rows of a table, by both hashes of their keys (and starts), were seen."""

from __future__ import annotations

import numpy as np

from onceflow.runtime.records import Mask, UInt64s
from onceflow.runtime.state.heap.key_index import KeyIndex


class SeenRows:
    """It takes some 16 bytes of memory and more for each. One thread."""

    def __init__(self) -> None:
        self._index = KeyIndex()

    def __len__(self) -> int:
        return len(self._index)

    def add(self, hashes: UInt64s, checks: UInt64s) -> None:
        self._index.find_or_add(hashes, checks)

    def have(self, hashes: UInt64s, checks: UInt64s) -> Mask:
        """Whether each was seen."""
        return np.asarray(self._index.find(hashes, checks) >= 0)
