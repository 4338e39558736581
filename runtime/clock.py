"""The only door to the time."""

from __future__ import annotations

import time
from typing import Protocol


class Clock(Protocol):
    """Injected wherever time matters, so that tests and the simulation move it by hand."""

    def now_ms(self) -> int:
        """Wall-clock time, ms since the epoch. May jump."""
        ...

    def monotonic_ms(self) -> float:
        """A clock for intervals and deadlines, in ms; never goes back."""
        ...


class SystemClock:
    """The machine's clock."""

    def now_ms(self) -> int:
        """Wall-clock time, in ms since 1970. May jump."""
        return time.time_ns() // 1_000_000

    def monotonic_ms(self) -> float:
        """The monotonic clock, in ms."""
        return time.monotonic_ns() / 1e6


class ManualClock:
    """A clock that stands still until it is told to move."""

    def __init__(self, start_ms: int = 0) -> None:
        self._now_ms = float(start_ms)

    def now_ms(self) -> int:
        """The time that it was moved to, in whole ms."""
        return int(self._now_ms)

    def monotonic_ms(self) -> float:
        """The same time, with its fraction of a millisecond."""
        return self._now_ms

    def advance(self, milliseconds: float) -> None:
        """Moves the clock ahead. Time never goes back."""
        assert milliseconds >= 0, "time does not go back"
        self._now_ms += milliseconds
