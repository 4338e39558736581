"""Timers of one subtask: kept with the key, fired in the order of their times."""

from __future__ import annotations

import heapq
from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from onceflow.runtime.records import WATERMARK_MAX_MS, WATERMARK_MIN_MS, Indices, Int64s
from onceflow.runtime.state.table import Frozen, LiveRows

TIMERS_TYPE = pa.list_(pa.field("item", pa.int64(), nullable=False))

Due = list[tuple[int, int]]
"""Timers that are due, as a heap: (time, row)."""


@dataclass(frozen=True, slots=True)
class Timer:
    """A timer that fires. `time` is what it was registered for, in ms since the epoch."""

    time: int
    is_processing_time: bool = False
    """Whether the clock has reached it, and not the watermark."""


class KeyTimers:
    """Timers of one kind by row: at most one for each key and time. One thread.

    The heap may hold timers that were deleted, or one twice: what counts is the set of the row.
    """

    def __init__(self, may_be_left_out: bool = False) -> None:
        """`may_be_left_out`: of a snapshot, if there are none."""
        self._may_be_left_out = may_be_left_out
        self._times: list[set[int] | None] = []
        self._owned: set[int] = set()
        """Rows whose set was copied since the last snapshot: those of the others are shared with it."""
        self._heap: Due = []
        self._early_ms = WATERMARK_MIN_MS
        self._early: Due = []
        self.away = 0
        """How many timers are of rows that have gone elsewhere."""
        self.is_closed = False
        """What is added goes nowhere: the input has ended, and nobody waits for the clock any more."""

    def __len__(self) -> int:
        """How many there are at most."""
        return len(self._heap) + self.away

    @property
    def in_memory(self) -> int:
        """How many of them are of rows that are here, at most."""
        return len(self._heap)

    @property
    def first_ms(self) -> int | None:
        """No timer is earlier. None: there is none."""
        return self._heap[0][0] if self._heap else None

    def grow(self, size: int) -> None:
        """Have this many rows; new ones have no timers."""
        self._times.extend([None] * (size - len(self._times)))

    def add(self, row: int, time_ms: int) -> None:
        assert WATERMARK_MIN_MS <= time_ms <= WATERMARK_MAX_MS, time_ms
        if not self.is_closed:
            self._add(row, time_ms)

    def _add(self, row: int, time_ms: int) -> None:
        times = self._times[row]
        if times is None or time_ms not in times:
            self._own(row).add(time_ms)
            heapq.heappush(self._heap, (time_ms, row))
            if time_ms <= self._early_ms:
                self._early.append((time_ms, row))

    def delete(self, row: int, time_ms: int) -> None:
        """Nothing happens if there is none."""
        times = self._times[row]
        if times is not None and time_ms in times:
            self._own(row).remove(time_ms)

    def pop_due(self, until_ms: int, count: int) -> Due:
        """The first timers up to and including this time, at most so many. They stay alive until `is_alive`
        was asked, so that one of them can delete another, and a snapshot has them."""
        due: Due = []
        while self._heap and self._heap[0][0] <= until_ms and len(due) < count:
            due.append(heapq.heappop(self._heap))
        return due  # sorted, and so a heap

    def due_of(self, rows: Iterable[int], until_ms: int) -> Due:
        """All timers of these rows up to and including this time, alive as for `pop_due`."""
        return sorted((time, row) for row in rows for time in self._times[row] or () if time <= until_ms)

    def put_back(self, due: Due) -> None:
        """These were popped and did not fire."""
        for timer in due:
            heapq.heappush(self._heap, timer)

    def watch(self, until_ms: int) -> None:
        """From now on `take_early` gives what is added up to and including this time."""
        self._early_ms = until_ms
        self._early.clear()

    def take_early(self, due: Due) -> None:
        """Put the timers that were added in time among those that fire."""
        while self._early:
            heapq.heappush(due, self._early.pop())

    def is_alive(self, time_ms: int, row: int) -> bool:
        """Whether a popped timer is to fire; it is gone then."""
        times = self._times[row]
        if times is None or time_ms not in times:
            return False
        self._own(row).remove(time_ms)
        return True

    def is_empty(self, row: int) -> bool:
        return not self._times[row]

    def empty_of(self, rows: list[int]) -> list[int]:
        """Return those of these rows that have no timers."""
        times = self._times
        return [row for row in rows if not times[row]]

    def save(self, row: int) -> set[int] | None:
        """The row's timers, for `bring_back`."""
        self._owned.discard(row)  # so the next change is one of a copy
        return self._times[row]

    def bring_back(self, row: int, saved: set[int] | None) -> None:
        """Undo what was done to the row since `save`: the heap may keep what was added, and has what was
        deleted."""
        self._owned.discard(row)
        self._times[row] = saved

    def clear(self, rows: Indices) -> None:
        """Delete all timers of these rows."""
        for row in rows.tolist():
            self._times[row] = None

    def keep(self, rows: Indices) -> None:
        """Renumber: keep these rows only, in this order."""
        old = self._times
        self._times = [old[row] for row in rows.tolist()]
        self._owned.clear()
        self._heap = [(time, row) for row, times in enumerate(self._times) for time in times or ()]
        heapq.heapify(self._heap)

    def freeze(self, live: LiveRows) -> Frozen | None:
        """The timers as they are now. None: there are none, and what has none may be left out."""
        if self._may_be_left_out and not self._heap:
            return None
        times = live.copied(self._times)
        self._owned.clear()
        return lambda rows: pa.array([sorted(of_row or ()) for of_row in times(rows)], TIMERS_TYPE)

    def load(self, rows: Indices, values: pa.Array) -> None:
        for row, times in zip(rows.tolist(), values.to_pylist(), strict=True):
            for time in times:
                self._add(row, time)  # also when it is closed: it was there before

    def first_of(self, rows: Indices) -> Int64s:
        """A time for each of these rows at which none of its timers is past; WATERMARK_MAX_MS: it has
        none."""
        kept = [self._times[row] for row in rows.tolist()]
        firsts = [min(min(times), WATERMARK_MAX_MS - 1) if times else WATERMARK_MAX_MS for times in kept]
        return np.array(firsts, np.int64)

    def count_of(self, rows: Indices) -> int:
        """How many timers these rows have."""
        return sum(len(self._times[row] or ()) for row in rows.tolist())

    def _own(self, row: int) -> set[int]:
        """The row's set, to be changed: no snapshot has it."""
        times = self._times[row]
        if row not in self._owned or times is None:
            self._owned.add(row)
            times = self._times[row] = set(times or ())
        return times
