"""Versions: the right side of a temporal join, of which a row holds until the next one of its key."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa

from onceflow.runtime.arrays.sorting import stable_order
from onceflow.runtime.operators.joins.runs import EVER_MS, MERGE_RUNS, Run, limit_of
from onceflow.runtime.records import Indices, Int64s, Mask
from onceflow.runtime.state.columns import one_batch

_VERSIONS_MIN = 1 << 10


class Versions:
    """The versions of each key by their time: those to come, and the last one before the watermark. Where
    runs of a join say what was matched, these say of which versions the key is gone."""

    limit = -EVER_MS
    """No version expires by its own time."""

    def __init__(self, deletes_kept_ms: int) -> None:
        """`deletes_kept_ms`: how far the watermark is behind a delete when it is let go of."""
        self.runs: list[Run] = []
        """The older ones first; of two versions with the same time the later one counts."""
        self._deletes_kept_ms = deletes_kept_ms
        self._looked_from = _VERSIONS_MIN

    def __len__(self) -> int:
        return sum(map(len, self.runs))

    def add(self, batch: pa.RecordBatch, row: Int64s, time: Int64s, is_deleted: Mask) -> None:
        if len(row):
            self.runs.append(Run(batch, row, time, np.asarray(is_deleted).copy()))
            while len(self.runs) >= MERGE_RUNS and self.runs[-MERGE_RUNS].level <= self.runs[-1].level:
                merged = _merged(self.runs[-MERGE_RUNS:], self.runs[-1].level + 1)
                self.runs[-MERGE_RUNS:] = [merged]

    def at(self, row: Int64s, time: Int64s) -> tuple[Indices, Indices]:
        """The run, and the place in it, of the version of each of these keys at this time; run -1: there is
        none, or the key is gone."""
        which, place, _ = self._last(row, time)
        which[self._are_deletes(which, place)] = -1
        return which, place

    def deleted_ms(self, row: Int64s, until: int = EVER_MS) -> Int64s:
        """When each of these keys was deleted, if that is the last version of it until then; else EVER_MS."""
        which, place, times = self._last(row, np.full(len(row), until))
        return np.where(self._are_deletes(which, place), times, EVER_MS)

    def forget(self, watermark_ms: int, is_asked: bool = False) -> None:
        """Let go of versions that no later row can meet, when there may be many, or if it `is_asked`."""
        if not self.runs or (len(self) < self._looked_from and not is_asked):
            return
        run = _merged(self.runs)
        is_over = run.time <= watermark_ms
        is_last = np.ones(len(run), np.bool_)
        is_last[:-1] = (run.row[1:] != run.row[:-1]) | ~is_over[1:]
        assert run.is_matched is not None
        has_effect = ~run.is_matched | (run.time > limit_of(watermark_ms, self._deletes_kept_ms))
        kept = np.flatnonzero(~is_over | (is_last & has_effect))
        self.runs = [run.take(kept, 0)] if len(kept) else []
        self._looked_from = max(_VERSIONS_MIN, 2 * len(kept))

    def keep(self, keys: Mask) -> None:
        """Keep the versions of these keys only; `keys`: by number."""
        kept = [(run, np.flatnonzero(keys[run.row])) for run in self.runs]
        self.runs = [run.take(rows, run.level) for run, rows in kept if len(rows)]

    def renumber(self, kept: Indices) -> None:
        """Keys are numbered anew: the old numbers of those that are kept."""
        self.runs = [run.renumbered(kept) for run in self.runs]

    def _last(self, row: Int64s, time: Int64s) -> tuple[Indices, Indices, Int64s]:
        """The run, the place in it and the time of each key's last version until `time`; run -1: none."""
        which, place = np.full(len(row), -1), np.zeros(len(row), np.int64)
        best = np.zeros(len(row), np.int64)
        for number, run in enumerate(self.runs):
            begin, counts = run.find(row, np.full(len(row), -EVER_MS), time)
            last = begin + counts - 1
            found = run.time[np.maximum(last, 0)]
            is_newer = (counts > 0) & ((which < 0) | (found >= best))
            which[is_newer], place[is_newer], best[is_newer] = number, last[is_newer], found[is_newer]
        return which, place, best

    def _are_deletes(self, which: Indices, place: Indices) -> Mask:
        found = np.zeros(len(which), np.bool_)
        for number, run in enumerate(self.runs):
            assert run.is_matched is not None
            mine = which == number
            found[mine] = run.is_matched[place[mine]]
        return found


def turns_behind(row: Int64s, marks: Mask) -> Int64s:
    """How many of the marked ones each has before it that are of the same key."""
    order = stable_order(row)
    keys, marked = row[order], marks[order].astype(np.int64)
    before = np.cumsum(marked) - marked
    turns = np.empty(len(row), np.int64)
    turns[order] = before - before[np.searchsorted(keys, keys)]
    return turns


def _merged(runs: Sequence[Run], level: int = 0) -> Run:
    masks = [run.is_matched for run in runs if run.is_matched is not None]
    return Run(
        one_batch(pa.Table.from_batches([run.batch for run in runs])),
        np.concatenate([run.row for run in runs]),
        np.concatenate([run.time for run in runs]),
        np.concatenate(masks),
        level,
    )
