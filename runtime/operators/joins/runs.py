"""Rows of one side of a join, in runs sorted by key and event time: a binary search finds many at once.

A batch that comes is a run. Once there are `MERGE_RUNS` runs of a level they become one of the next level,
so a row is copied a few times in its life, and there are few runs to search. In a run nothing changes but
which rows were matched or are gone, how many have expired, and what stands beside the rows: a snapshot shares
the rest.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType

import numpy as np
import pyarrow as pa

from onceflow.runtime.arrays.sorting import stable_order
from onceflow.runtime.records import Indices, Int64s, Mask
from onceflow.runtime.state.columns import one_batch
from onceflow.runtime.state.rows import take_rows

MERGE_RUNS = 8
PAIRS_MAX = 1 << 16
"""The most pairs that are made at a time: one row may meet very many."""
_MERGE_BYTES_MAX = 1 << 30
EVER_MS = 1 << 61
"""Further from any time of a row than there is time."""
_PLACES_MAX = 1 << 62
_NOTHING: Mapping[str, Int64s] = MappingProxyType({})


class Places:
    """Numbers for (row, time) in the order of these, so that one search finds a place among sorted pairs."""

    def __init__(self, row: Int64s, time: Int64s) -> None:
        self._first, last = int(time.min()), int(time.max())
        self._row_max = int(row.max())
        self._span = last - self._first + 2
        self._times: Int64s | None = None
        if (self._row_max + 2) * self._span >= _PLACES_MAX:  # times far apart: their ranks will do
            self._times = np.unique(time)
            self._span = len(self._times) + 1

    def of(self, row: Int64s, time: Int64s) -> Int64s:
        """The numbers of these; of a pair that is not there, what the next higher one has at most."""
        if self._times is None:
            place = np.clip(time, self._first, self._first + self._span - 1) - self._first
        else:
            place = np.searchsorted(self._times, time)
        return np.asarray(np.minimum(row, self._row_max + 1) * self._span + place)


class Run:
    """Rows of one side, sorted by (row of the key, event time)."""

    def __init__(
        self,
        batch: pa.RecordBatch,
        row: Int64s,
        time: Int64s,
        is_matched: Mask | None,
        level: int = 0,
        beside: Mapping[str, Int64s] = _NOTHING,
    ) -> None:
        """`is_matched`: for a side whose rows without a match are told of; else None. `beside`: what else
        there is to know of each row."""
        self._places = Places(row, time)
        numbers = self._places.of(row, time)
        if len(numbers) > 1 and not bool(np.all(numbers[1:] >= numbers[:-1])):
            order = stable_order(numbers)
            batch, row, time, numbers = take_rows(batch, order), row[order], time[order], numbers[order]
            is_matched = None if is_matched is None else is_matched[order]
            beside = {name: values[order] for name, values in beside.items()}
        self.batch, self.row, self.time, self.level = batch, row, time, level
        self.is_matched, self.beside = is_matched, beside
        self.is_gone: Mask | None = None
        """The rows that were taken away; None: none was."""
        self._numbers = numbers
        self.by_time: Indices | None = None if is_matched is None else stable_order(time)
        self.expired = 0
        """How many of the first rows of `by_time` have expired."""
        self.earliest, self.latest = int(time.min()), int(time.max())
        self.median = int(np.partition(time, len(time) // 2)[len(time) // 2])

    def __len__(self) -> int:
        return len(self.row)

    def find(self, row: Int64s, earliest: Int64s, latest: Int64s) -> tuple[Int64s, Int64s]:
        """For each of these, where the rows of the same key from `earliest` to `latest` begin, and how many
        there are. In the order of `row` neighbours look at the same memory: three times as fast."""
        begin = np.searchsorted(self._numbers, self._places.of(row, earliest))
        end = np.searchsorted(self._numbers, self._places.of(row, latest + 1))
        return begin, np.maximum(end - begin, 0)

    def live(self, limit: int) -> Indices:
        """The rows that are there: later than `limit` and not taken away, or not yet told of."""
        if self.by_time is None:
            return _later(self.time, limit, self.is_gone)
        return np.sort(self.by_time[self.expired :])

    def live_of(self, keys: Int64s, limit: int) -> Indices:
        """The rows of these keys that are there, lowest first; the keys rise."""
        begin, counts = self.find(keys, np.full(len(keys), -EVER_MS), np.full(len(keys), EVER_MS))
        rows = np.repeat(begin - (np.cumsum(counts) - counts), counts) + np.arange(int(counts.sum()))
        if self.by_time is None:
            return rows[_later(self.time[rows], limit, None if self.is_gone is None else self.is_gone[rows])]
        return np.setdiff1d(rows, self.by_time[: self.expired], assume_unique=True)

    def take_away(self, rows: Indices) -> None:
        """These rows are no more. Only of a side whose expired rows nobody is told of."""
        assert self.by_time is None, "they would be told of"
        if self.is_gone is None:
            self.is_gone = np.zeros(len(self), np.bool_)
        self.is_gone[rows] = True

    def take(self, rows: Indices, level: int) -> Run:
        """A run of these rows, given lowest first."""
        if len(rows) == len(self):
            return self
        is_matched = None if self.is_matched is None else self.is_matched[rows]
        beside = {name: values[rows] for name, values in self.beside.items()}
        return Run(take_rows(self.batch, rows), self.row[rows], self.time[rows], is_matched, level, beside)

    def renumbered(self, kept: Indices) -> Run:
        """The same with the numbers that keys have when only these rows of the table are kept."""
        row = np.searchsorted(kept, self.row)
        run = Run(self.batch, row, self.time, self.is_matched, self.level, self.beside)
        run.expired, run.is_gone = self.expired, self.is_gone
        return run

    def due(self, limit: int, count: int) -> Indices:
        """At most so many rows that expire at `limit` or before, earliest first; each is given once."""
        assert self.by_time is not None
        left = self.by_time[self.expired : self.expired + count]
        due = left[: np.searchsorted(self.time[left], limit, side="right")]
        self.expired += len(due)
        return due


@dataclass(frozen=True, slots=True)
class FrozenRun:
    """The rows of a run that had not expired at a barrier; any thread."""

    run: Run
    limit: int
    is_matched: Mask | None
    pending: Indices | None
    """Rows of a padded side that were not told of."""
    is_gone: Mask | None = None
    beside: Mapping[str, Int64s] = field(default_factory=dict)

    @property
    def batch(self) -> pa.RecordBatch:
        return self.run.batch

    @property
    def time(self) -> Int64s:
        return self.run.time

    def live(self) -> Indices:
        """Its rows, lowest first."""
        if self.pending is None:
            return _later(self.run.time, self.limit, self.is_gone)
        return np.sort(self.pending)


class SideRows:
    """The rows that one side keeps for those of the other side that are still to come."""

    def __init__(self, schema: pa.Schema, is_padded: bool) -> None:
        """`is_padded`: whether rows are told of that expire without a match."""
        self.schema = schema
        self.is_padded = is_padded
        self.runs: list[Run] = []
        self._limit = -EVER_MS
        """Rows up to this time have expired."""

    def __len__(self) -> int:
        return sum(map(len, self.runs))

    def add(
        self,
        batch: pa.RecordBatch,
        row: Int64s,
        time: Int64s,
        is_matched: Mask | None = None,
        beside: Mapping[str, Int64s] = _NOTHING,
    ) -> None:
        if not len(row):
            return
        if not self.is_padded:
            is_matched = None
        assert is_matched is not None or not self.is_padded, "rows of a padded side are told of"
        self.runs.append(Run(batch, row, time, None if is_matched is None else is_matched.copy(), 0, beside))
        while len(self.runs) >= MERGE_RUNS and self.runs[-MERGE_RUNS].level <= self.runs[-1].level:
            last = self.runs[-MERGE_RUNS:]
            if sum(run.batch.nbytes for run in last) > _MERGE_BYTES_MAX:
                break
            self.runs[-MERGE_RUNS:] = self._merged(last, self.runs[-1].level + 1)

    def expire(self, limit: int) -> None:
        """Let go of rows up to this time; of a padded side, those that `due` gave."""
        self._limit = limit
        kept = []
        for run in self.runs:
            gone = run.expired if self.is_padded else len(run) * (limit >= run.median) // 2
            if run.is_gone is not None:
                gone = max(gone, int(np.count_nonzero(run.is_gone)))
            if limit >= run.latest and (not self.is_padded or run.expired == len(run)):
                continue
            if gone and 2 * gone >= len(run) - 1:
                live = run.live(limit)
                if not len(live):
                    continue
                run = run.take(live, run.level)
            kept.append(run)
        self.runs = kept

    @property
    def limit(self) -> int:
        """Rows up to this time have expired."""
        return self._limit

    def keep(self, keys: Mask) -> None:
        """Keep the rows of these keys only, of those that are there; `keys`: by number."""
        kept = []
        for run in self.runs:
            live = run.live(self._limit)
            left = live[keys[run.row[live]]]
            if len(left):
                kept.append(run if len(left) == len(run) else run.take(left, run.level))
        self.runs = kept

    def let_go_of_what_is_gone(self) -> None:
        """Rows were taken away: runs of which that are half the rows are made anew."""
        self.expire(self._limit)

    def due(self, limit: int, count: int) -> list[tuple[Run, Indices]]:
        """At most so many rows of a padded side that expire at `limit` or before."""
        found = []
        for run in self.runs:
            if count > 0 and len(rows := run.due(limit, count)):
                count -= len(rows)
                found.append((run, rows))
        return found

    def frozen(self) -> list[FrozenRun]:
        """What there is now, for a snapshot."""
        return [
            FrozenRun(
                run,
                self._limit,
                None if run.is_matched is None else run.is_matched.copy(),
                None if run.by_time is None else run.by_time[run.expired :],
                None if run.is_gone is None else run.is_gone.copy(),
                {name: values.copy() for name, values in run.beside.items()},
            )
            for run in self.runs
        ]

    def renumber(self, kept: Indices) -> None:
        """Keys are numbered anew: the rows of the table that are kept."""
        self.runs = [run.renumbered(kept) for run in self.runs]

    def _merged(self, runs: Sequence[Run], level: int) -> list[Run]:
        parts = [run.take(live, 0) for run in runs if len(live := run.live(self._limit))]
        if not parts:
            return []
        matched = [part.is_matched for part in parts if part.is_matched is not None]
        run = Run(
            one_batch(pa.Table.from_batches([part.batch for part in parts])),
            np.concatenate([part.row for part in parts]),
            np.concatenate([part.time for part in parts]),
            np.concatenate(matched) if matched else None,
            level,
            {name: np.concatenate([part.beside[name] for part in parts]) for name in parts[0].beside},
        )
        return [run]


def _later(time: Int64s, limit: int, is_gone: Mask | None) -> Indices:
    is_there = time > limit
    return np.flatnonzero(is_there if is_gone is None else is_there & ~is_gone)


def limit_of(watermark_ms: int, keep_ms: int) -> int:
    """Rows up to this time have expired that are kept until the watermark is `keep_ms` behind them."""
    return max(-EVER_MS, min(EVER_MS, watermark_ms - keep_ms))


def pairs(begin: Int64s, counts: Int64s) -> Iterator[tuple[Indices, Indices]]:
    """What `find` gave, as pairs (which row was looked for, which was found), in pieces."""
    ends = np.cumsum(counts)
    total = int(ends[-1]) if len(ends) else 0
    for first in range(0, total, PAIRS_MAX):
        number = np.arange(first, min(total, first + PAIRS_MAX))
        asked = np.searchsorted(ends, number, side="right")
        yield asked, begin[asked] + number - (ends[asked] - counts[asked])
