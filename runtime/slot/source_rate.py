"""SourceRate: how many records a source's subtask may read now, for a source with a limit. Pure."""

from __future__ import annotations

BURST_S = 0.1
"""The part of a second's records that may come at once, one at least: what was not read before is not made
up for."""


class SourceRate:
    """A token bucket. The limit is the whole job's: each subtask has an equal part of it, used or not."""

    def __init__(self, records_per_s: float, parallelism: int) -> None:
        self._per_ms = records_per_s / parallelism / 1_000
        self._most = max(1.0, self._per_ms * 1_000 * BURST_S)
        self._tokens = 1.0
        self._filled_ms: float | None = None

    def allowed(self, now_ms: float) -> int:
        """How many records may be read now; 0: none yet."""
        if self._filled_ms is not None:
            self._tokens = min(self._most, self._tokens + (now_ms - self._filled_ms) * self._per_ms)
        self._filled_ms = now_ms
        return max(0, int(self._tokens))

    def took(self, count: int) -> None:
        """Take note that so many were read; a reader that brought more than was asked for waits longer."""
        self._tokens -= count
