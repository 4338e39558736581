"""Pace: how soon after a fetch of few records the next one is worth its cost.

A fetch and all that follows it in the slot take as long for ten records as for a thousand. So after a
small one, others may gather in librdkafka's queue: for a few milliseconds, which is little beside the
checkpoint that makes them visible. After a large one there is no pause: a backlog waits for nothing.
"""

from __future__ import annotations

from onceflow.runtime.clock import Clock

RECORDS_FEW = 1_000
GATHER_MS = 4.0


class Pace:
    """One reader's pace: `took` after each fetch that brought anything, `is_gathering` before the next."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._until_ms = 0.0

    @property
    def is_gathering(self) -> bool:
        return self._clock.monotonic_ms() < self._until_ms

    def took(self, records: int, records_max: int) -> None:
        """`records_max`: more were not asked for."""
        is_small = records < min(RECORDS_FEW, records_max)
        self._until_ms = self._clock.monotonic_ms() + GATHER_MS if is_small else 0.0
