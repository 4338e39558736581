"""Lateness: how far event time is for each key group, across restores too."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from itertools import pairwise
from typing import Any

import numpy as np

from onceflow.runtime.contracts import Json
from onceflow.runtime.records import WATERMARK_MAX_MS, WATERMARK_MIN_MS, Int64s, Mask, UInt64s
from onceflow.runtime.state.key_groups import key_groups_of


class Lateness:
    """How far event time has come for one subtask, and up to where its windows have fired.

    The two differ while windows fire in pieces. Both are in a snapshot. After a restore they are floors, by
    key group, for the subtask whose state it was; rows and windows are held against the floors too, until
    the watermark, which starts again from the minimum, has passed every one of them.
    """

    def __init__(self, max_parallelism: int, key_groups: range) -> None:
        self._max_parallelism = max_parallelism
        self._key_groups = key_groups
        self.reached_ms = WATERMARK_MIN_MS
        """The watermark. A row all of whose windows end here or before is late, whether or not they have
        fired yet: so it does not matter in how many pieces they do."""
        self.fired_ms = WATERMARK_MIN_MS
        """Every window that ends here or before has fired. Set after firing, since a snapshot records it."""
        self._reached_floors: Int64s | None = None
        self._fired_floors: Int64s | None = None
        """The restored watermark of each key group; None once the watermark is past all of them."""

    def restore(self, metas: Iterable[Mapping[str, Any]]) -> None:
        """Restore what `as_meta` gave, of all states. Older states say only what has fired."""
        metas = list(metas)
        self._fired_floors = self._floors_from([run for meta in metas for run in meta["watermarks"]])
        self._reached_floors = self._floors_from(
            [run for meta in metas for run in meta.get("reached", meta["watermarks"])]
        )
        # Where event time had ended and all has fired it begins anew (`restored_watermark`).
        has_ended = self._fired_floors == WATERMARK_MAX_MS
        self._fired_floors[has_ended] = self._reached_floors[has_ended] = WATERMARK_MIN_MS
        self._forget_passed()

    @property
    def has_floors(self) -> bool:
        return self._reached_floors is not None

    def has_fired(self, key_hash: UInt64s, last_ms: int) -> Mask | None:
        """For each of these keys, whether a window with this last millisecond fired before the restore.
        None: for none of them."""
        if self._fired_floors is None:
            return None
        return np.asarray(self._fired_floors[key_groups_of(key_hash, self._max_parallelism)] >= last_ms)

    def fired_until(self, key_hash: UInt64s) -> int | Int64s:
        """Up to where windows have fired for each of these keys or for all, before the restore too."""
        if self._fired_floors is None:
            return self.fired_ms
        floors = self._fired_floors[key_groups_of(key_hash, self._max_parallelism)]
        return np.maximum(floors, self.fired_ms)

    def late_until(self, key_hash: UInt64s) -> int | Int64s:
        """What ends at this time or before is late, for each of these keys or for all."""
        if self._reached_floors is None:
            return self.reached_ms
        floors = self._reached_floors[key_groups_of(key_hash, self._max_parallelism)]
        return np.maximum(floors, self.reached_ms)

    def note_all_fired(self) -> None:
        """Every window that ends up to the watermark has fired."""
        self.fired_ms = self.reached_ms
        self._forget_passed()

    def as_meta(self) -> dict[str, Json]:
        """For a snapshot: `watermarks`, up to where windows have fired, and `reached`, if event time has come
        further. Each is [first key group, end, ms] in runs over the key groups of this subtask."""
        fired = self._runs(self._fired_floors, self.fired_ms)
        reached = self._runs(self._reached_floors, self.reached_ms)
        return {"watermarks": fired} if reached == fired else {"watermarks": fired, "reached": reached}

    def _floors_from(self, runs: Iterable[Any]) -> Int64s:
        floors = np.full(self._max_parallelism, WATERMARK_MIN_MS, np.int64)
        for start, end, time_ms in runs:
            floors[start:end] = np.maximum(floors[start:end], time_ms)
        mine = self._key_groups
        floors[: mine.start] = floors[mine.stop :] = WATERMARK_MIN_MS
        return floors

    def _forget_passed(self) -> None:
        if self._reached_floors is not None and int(self._reached_floors.max()) <= self.fired_ms:
            self._reached_floors = self._fired_floors = None

    def _runs(self, floors: Int64s | None, time_ms: int) -> list[Json]:
        mine = self._key_groups
        if floors is None:
            return [[mine.start, mine.stop, time_ms]]
        levels = np.maximum(floors[mine.start : mine.stop], time_ms)
        cuts = [0, *(np.flatnonzero(np.diff(levels)) + 1).tolist(), len(levels)]
        return [[mine.start + a, mine.start + b, int(levels[a])] for a, b in pairwise(cuts)]
