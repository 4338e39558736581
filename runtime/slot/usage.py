"""How busy a slot is and how much memory its process has: measured once a heartbeat, next to nothing else."""

from __future__ import annotations

from collections.abc import Callable

import psutil


class SlotUsage:
    """The slot's thread adds to `idle_ms`; the thread of its heartbeat measures."""

    def __init__(self, now_ms: float, rss_bytes: Callable[[], int] | None = None) -> None:
        """`rss_bytes` tells the resident memory of this process."""
        self._rss_bytes = rss_bytes or (lambda: int(psutil.Process().memory_info().rss))
        self._measured_ms = now_ms
        self._idle_before_ms = 0.0
        self.idle_ms = 0.0
        """How long the slot had nothing to do, or no room for what it would do, since it began."""
        self.busy_ratio = 0.0
        """The rest of the time, between the last two measurements: 0 to 1."""
        self.rss_bytes = 0

    def measure(self, now_ms: float) -> None:
        """Measure the time since the last measurement."""
        passed_ms, idle_ms = now_ms - self._measured_ms, self.idle_ms
        if passed_ms > 0:
            idle_ratio = (idle_ms - self._idle_before_ms) / passed_ms
            self.busy_ratio = round(min(1.0, max(0.0, 1.0 - idle_ratio)), 3)
            self._measured_ms, self._idle_before_ms = now_ms, idle_ms
        self.rss_bytes = self._rss_bytes()
