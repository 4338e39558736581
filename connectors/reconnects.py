"""Reconnects: when a reader tries again that has lost its system, and when it gives up."""

from __future__ import annotations

from collections.abc import Callable

from onceflow.runtime.clock import Clock
from onceflow.runtime.errors import Retryable, Unavailable

_PAUSE_FIRST_MS, _PAUSE_MAX_MS = 50, 5_000
_SAY_AFTER_MS = 1_000


class Reconnects:
    """The tries of one reader, in longer and longer pauses; said on the live line after a second. Nobody
    waits in it: `is_time` says whether the next try is due."""

    def __init__(self, clock: Clock, on_wait: Callable[[str], None], timeout_ms: int) -> None:
        self._clock = clock
        self._on_wait = on_wait
        self._timeout_ms = timeout_ms
        self._away_since_ms: float | None = None
        self._pause_ms: float = _PAUSE_FIRST_MS
        self._again_at_ms = 0.0

    @property
    def is_time(self) -> bool:
        """Whether a try may be made now."""
        return self._away_since_ms is None or self._clock.monotonic_ms() >= self._again_at_ms

    def failed(self, error: Retryable) -> None:
        """A try, or what was connected, failed. Raises Unavailable when the time is up."""
        now_ms = self._clock.monotonic_ms()
        since_ms = self._away_since_ms = now_ms if self._away_since_ms is None else self._away_since_ms
        waited_ms = now_ms - since_ms
        if waited_ms >= self._timeout_ms:
            raise Unavailable(f"gave up after {waited_ms / 1000:.0f} s (timeout): {error}") from error
        if waited_ms >= _SAY_AFTER_MS:
            self._on_wait(f"the source waits since {waited_ms / 1000:.0f} s: {error}")
        self._again_at_ms = now_ms + self._pause_ms
        self._pause_ms = min(self._pause_ms * 2, _PAUSE_MAX_MS)

    def worked(self) -> None:
        """The system answers."""
        if self._away_since_ms is not None:
            self._on_wait("")
        self._away_since_ms, self._pause_ms = None, _PAUSE_FIRST_MS
