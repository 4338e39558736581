"""Lateness: how far event time is for each key group, across restores too."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import pairwise
from typing import Any

import numpy as np

from onceflow.runtime.contracts import Json
from onceflow.runtime.records import WATERMARK_MIN_MS, Int64s, UInt64s
from onceflow.runtime.state.key_groups import key_groups_of


class Lateness:
    """The watermark of one subtask, and after a restore the floors: how far event time was, by key group,
    for the subtask whose state it was. Rows are held against both, until the watermark, which starts again
    from the minimum, has passed every floor."""

    def __init__(self, max_parallelism: int, key_groups: range) -> None:
        self._max_parallelism = max_parallelism
        self._key_groups = key_groups
        self.watermark_ms = WATERMARK_MIN_MS
        """Everything up to here has fired: set after firing, since a snapshot records it as fired."""
        self._floors: Int64s | None = None
        """None once the watermark is past all."""

    def restore(self, watermarks: Iterable[Any]) -> None:
        """From what `as_json` gave, of all states."""
        floors = np.full(self._max_parallelism, WATERMARK_MIN_MS, np.int64)
        for start, end, watermark_ms in watermarks:
            floors[start:end] = np.maximum(floors[start:end], watermark_ms)
        mine = self._key_groups
        floors[: mine.start] = floors[mine.stop :] = WATERMARK_MIN_MS
        self._floors = floors
        self.forget_passed()

    @property
    def has_floors(self) -> bool:
        return self._floors is not None

    def floors(self, key_hash: UInt64s) -> Int64s:
        """The floor of each of these keys."""
        if self._floors is None:
            return np.full(len(key_hash), WATERMARK_MIN_MS, np.int64)
        return self._floors[key_groups_of(key_hash, self._max_parallelism)]

    def fired_ms(self, key_hash: UInt64s) -> int | Int64s:
        """What ends at this time or before has fired, for each of these keys or for all."""
        if self._floors is None:
            return self.watermark_ms
        return np.maximum(self.floors(key_hash), self.watermark_ms)

    def forget_passed(self) -> None:
        """Let the floors go once the watermark is past them all."""
        if self._floors is not None and int(self._floors.max()) <= self.watermark_ms:
            self._floors = None

    def as_json(self) -> list[Json]:
        """[first key group, end, ms] in runs: how far event time is for each key group of this subtask."""
        mine = self._key_groups
        if self._floors is None:
            return [[mine.start, mine.stop, self.watermark_ms]]
        levels = np.maximum(self._floors[mine.start : mine.stop], self.watermark_ms)
        cuts = [0, *(np.flatnonzero(np.diff(levels)) + 1).tolist(), len(levels)]
        return [[mine.start + a, mine.start + b, int(levels[a])] for a, b in pairwise(cuts)]
