"""Timers of one subtask: kept with the key, fired in the order of their times."""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

import pyarrow as pa

from onceflow.runtime.records import WATERMARK_MAX_MS, WATERMARK_MIN_MS, Indices

TIMERS_TYPE = pa.list_(pa.field("item", pa.int64(), nullable=False))

Due = list[tuple[int, int]]
"""Timers that are due, as a heap: (time, slot)."""


@dataclass(frozen=True, slots=True)
class Timer:
    """A timer that fires. `time` is what it was registered for, in ms since the epoch."""

    time: int
    is_processing_time: bool = False
    """Whether the clock has reached it, and not the watermark."""


class KeyTimers:
    """Timers of one kind by slot: at most one for each key and time. One thread.

    The heap may hold timers that were deleted, or one twice: what counts is the set of the slot.
    """

    def __init__(self) -> None:
        self._times: list[set[int] | None] = []
        self._heap: Due = []
        self._early_ms = WATERMARK_MIN_MS
        self._early: Due = []
        self.is_closed = False
        """What is added goes nowhere: the input has ended, and nobody waits for the clock any more."""

    def __len__(self) -> int:
        """How many there are at most."""
        return len(self._heap)

    @property
    def first_ms(self) -> int | None:
        """No timer is earlier. None: there is none."""
        return self._heap[0][0] if self._heap else None

    def grow(self, size: int) -> None:
        """Have this many slots; new ones have no timers."""
        self._times.extend([None] * (size - len(self._times)))

    def add(self, slot: int, time_ms: int) -> None:
        assert WATERMARK_MIN_MS <= time_ms <= WATERMARK_MAX_MS, time_ms
        if self.is_closed:
            return
        times = self._times[slot]
        if times is None:
            times = self._times[slot] = set()
        if time_ms not in times:
            times.add(time_ms)
            heapq.heappush(self._heap, (time_ms, slot))
            if time_ms <= self._early_ms:
                self._early.append((time_ms, slot))

    def delete(self, slot: int, time_ms: int) -> None:
        """Nothing happens if there is none."""
        times = self._times[slot]
        if times is not None:
            times.discard(time_ms)

    def pop_due(self, until_ms: int, count: int) -> Due:
        """The first timers up to and including this time, at most so many. They stay alive until `is_alive`
        was asked, so that one of them can delete another, and a snapshot has them."""
        due: Due = []
        while self._heap and self._heap[0][0] <= until_ms and len(due) < count:
            due.append(heapq.heappop(self._heap))
        return due  # sorted, and so a heap

    def due_of(self, slots: Iterable[int], until_ms: int) -> Due:
        """All timers of these slots up to and including this time, alive as for `pop_due`."""
        return sorted((time, slot) for slot in slots for time in self._times[slot] or () if time <= until_ms)

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

    def is_alive(self, time_ms: int, slot: int) -> bool:
        """Whether a popped timer is to fire; it is gone then."""
        times = self._times[slot]
        if times is None or time_ms not in times:
            return False
        times.discard(time_ms)
        return True

    def is_empty(self, slot: int) -> bool:
        return not self._times[slot]

    def keep(self, slots: Indices) -> None:
        """Renumber: keep these slots only, in this order."""
        old = self._times
        self._times = [old[slot] for slot in slots.tolist()]
        self._heap = [(time, slot) for slot, times in enumerate(self._times) for time in times or ()]
        heapq.heapify(self._heap)

    def freeze(self, slots: Indices) -> Callable[[], pa.Array]:
        """The timers of these slots as they are now, in Arrow when it is asked for."""
        all_times = self._times
        frozen = [list(times) if (times := all_times[slot]) else () for slot in slots.tolist()]
        return lambda: pa.array([sorted(times) for times in frozen], TIMERS_TYPE)

    def load(self, slots: Indices, times: Sequence[Sequence[int]]) -> None:
        for slot, of_slot in zip(slots.tolist(), times, strict=True):
            for time in of_slot:
                self.add(slot, time)
