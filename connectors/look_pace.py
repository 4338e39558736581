"""LookPace: a server that is read in batches is not asked for more right after it had none."""

from __future__ import annotations

from onceflow.runtime.clock import Clock


class LookPace:
    """When a planner of batches may look again. One thread asks."""

    def __init__(self, clock: Clock, every_ms: int) -> None:
        self._clock = clock
        self._every_ms = every_ms
        self._looked_ms: float | None = None

    def is_due(self) -> bool:
        """Whether to look now. If so, the next look is due `every_ms` later."""
        now_ms = self._clock.monotonic_ms()
        if self._looked_ms is not None and now_ms - self._looked_ms < self._every_ms:
            return False
        self._looked_ms = now_ms
        return True

    def found_some(self) -> None:
        """There may be more: the next look is due at once."""
        self._looked_ms = None
