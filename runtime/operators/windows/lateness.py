"""Lateness: how far event time is for each key group, across restores too."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np

from onceflow.runtime.contracts import Json
from onceflow.runtime.records import WATERMARK_MAX_MS, WATERMARK_MIN_MS, Int64s, Mask, UInt64s

_WORDS = 1 << 32
"""Key groups are ranges of the high 32 bits of hashes (`state/key_groups.py`)."""


class Lateness:
    """How far event time has come for one subtask, and up to where its windows have fired.

    The two differ while windows fire in pieces. Both are in a snapshot. After a restore they are floors, by
    key group, for the subtask whose state it was; rows and windows are held against the floors too, until
    the watermark, which starts again from the minimum, has passed every one of them.

    State of a savepoint may have been kept under another number of key groups, whose borders lie inside of
    the job's own: so floors are kept by ranges of hashes.
    """

    def __init__(self, max_parallelism: int, key_groups: range) -> None:
        self._max_parallelism = max_parallelism
        self._key_groups = key_groups
        self.reached_ms = WATERMARK_MIN_MS
        """The watermark. A row all of whose windows end here or before is late, whether or not they have
        fired yet: so it does not matter in how many pieces they do."""
        self.fired_ms = WATERMARK_MIN_MS
        """Every window that ends here or before has fired. Set after firing, since a snapshot records it."""
        self._floors: _Floors | None = None
        """The restored watermarks; None once the watermark is past all of them."""

    def restore(self, metas: Iterable[Mapping[str, Any]]) -> None:
        """Restore what `as_meta` gave, of all states. Older states say only what has fired."""
        fired: list[_Run] = []
        reached: list[_Run] = []
        for meta in metas:
            groups = meta.get("of_key_groups", self._max_parallelism)
            fired += _runs_of(meta["watermarks"], groups)
            reached += _runs_of(meta.get("reached", meta["watermarks"]), groups)
        groups = self._key_groups
        mine = range(*(_first_word(group, self._max_parallelism) for group in (groups.start, groups.stop)))
        cuts = [cut for start, end, _ in (*fired, *reached) for cut in (start, end) if cut in mine]
        words = np.unique(np.array([mine.start, *cuts], np.int64))
        floors = _Floors(words, mine.stop, _levels(words, reached), _levels(words, fired))
        # Where event time had ended and all has fired it begins anew (`restored_watermark`).
        has_ended = floors.fired == WATERMARK_MAX_MS
        floors.fired[has_ended] = floors.reached[has_ended] = WATERMARK_MIN_MS
        self._floors = floors
        self._forget_passed()

    @property
    def has_floors(self) -> bool:
        return self._floors is not None

    def has_fired(self, key_hash: UInt64s, last_ms: int) -> Mask | None:
        """For each of these keys, whether a window with this last millisecond fired before the restore.
        None: for none of them."""
        if self._floors is None:
            return None
        return np.asarray(self._floors.fired[self._floors.places(key_hash)] >= last_ms)

    def fired_until(self, key_hash: UInt64s) -> int | Int64s:
        """Up to where windows have fired for each of these keys or for all, before the restore too."""
        if self._floors is None:
            return self.fired_ms
        return np.maximum(self._floors.fired[self._floors.places(key_hash)], self.fired_ms)

    def late_until(self, key_hash: UInt64s) -> int | Int64s:
        """What ends at this time or before is late, for each of these keys or for all."""
        if self._floors is None:
            return self.reached_ms
        return np.maximum(self._floors.reached[self._floors.places(key_hash)], self.reached_ms)

    def note_all_fired(self) -> None:
        """Every window that ends up to the watermark has fired."""
        self.fired_ms = self.reached_ms
        self._forget_passed()

    def as_meta(self) -> dict[str, Json]:
        """For a snapshot: `watermarks`, up to where windows have fired, and `reached`, if event time has come
        further. Each is [first key group, end, ms] in runs over the key groups of this subtask; or over
        those of `of_key_groups` many, if floors change within a group of the job's."""
        mine, floors = self._key_groups, self._floors
        if floors is None:
            fired: list[Json] = [[mine.start, mine.stop, self.fired_ms]]
            reached: list[Json] = [[mine.start, mine.stop, self.reached_ms]]
            return {"watermarks": fired} if reached == fired else {"watermarks": fired, "reached": reached}
        runs_fired = floors.runs(floors.fired, self.fired_ms)
        runs_reached = floors.runs(floors.reached, self.reached_ms)
        cuts = {cut for start, end, _ in (*runs_fired, *runs_reached) for cut in (start, end)}
        groups = self._max_parallelism
        is_whole = all(_first_word(cut * groups // _WORDS, groups) == cut for cut in cuts)
        meta: dict[str, Json] = {"watermarks": _numbered(runs_fired, groups if is_whole else _WORDS)}
        if runs_fired != runs_reached:
            meta["reached"] = _numbered(runs_reached, groups if is_whole else _WORDS)
        return meta if is_whole else {**meta, "of_key_groups": _WORDS}

    def _forget_passed(self) -> None:
        if self._floors is not None and int(self._floors.reached.max()) <= self.fired_ms:
            self._floors = None


_Run = tuple[int, int, int]
"""The first of high words of hashes, the one behind the last, and a time in ms."""


@dataclass(frozen=True, slots=True)
class _Floors:
    """Times by ranges of hashes: each from its word on, the last one up to `end`."""

    words: Int64s
    end: int
    reached: Int64s
    fired: Int64s

    def places(self, key_hash: UInt64s) -> Int64s:
        """The range of each hash, which is that of a key of this subtask."""
        words = (key_hash >> np.uint64(32)).astype(np.int64)
        return np.maximum(np.searchsorted(self.words, words, "right") - 1, 0)

    def runs(self, floors: Int64s, time_ms: int) -> list[_Run]:
        """The later one of a floor and this time, in as few runs as there are."""
        levels = np.maximum(floors, time_ms)
        cuts = [0, *(np.flatnonzero(np.diff(levels)) + 1).tolist()]
        ends = [*self.words.tolist(), self.end]
        return [(ends[a], ends[b], int(levels[a])) for a, b in pairwise([*cuts, len(levels)])]


def _first_word(group: int, groups: int) -> int:
    """The lowest high word of the hashes in this one of so many key groups."""
    return -(-(group << 32) // groups)


def _runs_of(runs: Iterable[Any], groups: int) -> list[_Run]:
    return [(_first_word(start, groups), _first_word(end, groups), time_ms) for start, end, time_ms in runs]


def _numbered(runs: Iterable[_Run], groups: int) -> list[Json]:
    return [[start * groups // _WORDS, end * groups // _WORDS, time_ms] for start, end, time_ms in runs]


def _levels(words: Int64s, runs: Iterable[_Run]) -> Int64s:
    """The latest time of each range that begins at one of these words."""
    levels = np.full(len(words), WATERMARK_MIN_MS, np.int64)
    for start, end, time_ms in runs:
        first, behind = np.searchsorted(words, [start, end])
        levels[first:behind] = np.maximum(levels[first:behind], time_ms)
    return levels
