"""WaitForSystem: how long, and how visibly, a sink tries again while the system that it writes to is away."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Protocol, TypeVar

from onceflow.runtime.clock import Clock
from onceflow.runtime.errors import Indeterminate, OnceflowError, Retryable, Unavailable

T = TypeVar("T")

_PAUSE_FIRST_S = 0.02
_PAUSE_MAX_S = 1.0
_SAY_AFTER_MS = 1_000
SAFE = "The output is safe in the checkpoint and goes out when the job is started again"
NEVER_ANSWERED = "Nobody has ever answered there; delivery_timeout= makes the wait longer"


class Patience(Protocol):
    """How long to try again while the system that is written to is away."""

    def wait(self, error: OnceflowError) -> None:
        """Pause before the next try; raises Retryable with what to do when the time is up."""
        ...

    def reset(self) -> None:
        """Called when something went well: the next failure starts a new wait."""
        ...


def patiently(patience: Patience, call: Callable[[], T]) -> T:
    """What the call returns, as soon as it does: one that may be made as often as one likes, whether it was
    carried out or not."""
    while True:
        try:
            result = call()
        except (Retryable, Indeterminate) as error:
            patience.wait(error)
        else:
            patience.reset()
            return result


class WaitForSystem:
    """Patience in longer and longer pauses, said on the live line, until time is up. `who` is the sink, as
    people read it there; `closed` ends a pause."""

    def __init__(
        self,
        who: str,
        clock: Clock,
        on_wait: Callable[[str], None],
        give_up_after_ms: int,
        closed: threading.Event,
        advice: str = SAFE,
    ) -> None:
        """`advice`: the end of the sentence when the time is up."""
        self._who = who
        self._clock = clock
        self._on_wait = on_wait
        self._give_up_after_ms = give_up_after_ms
        self._closed = closed
        self._advice = advice
        self._since_ms: float | None = None
        self._pause_s = _PAUSE_FIRST_S
        self._has_said = False

    def wait(self, error: OnceflowError) -> None:
        now_ms = self._clock.monotonic_ms()
        if self._since_ms is None:
            self._since_ms = now_ms
        waited_ms = now_ms - self._since_ms
        if waited_ms >= self._give_up_after_ms:
            raise Unavailable(
                f"gave up after {waited_ms / 1000:.0f} s (delivery_timeout): {error}. {self._advice}"
            ) from error
        if waited_ms >= _SAY_AFTER_MS:
            self._has_said = True
            self._on_wait(f"{self._who} waits since {waited_ms / 1000:.0f} s: {error}")
        if self._closed.wait(self._pause_s):
            raise Retryable(f"closed while it waited: {error}") from error
        self._pause_s = min(self._pause_s * 2, _PAUSE_MAX_S)

    def reset(self) -> None:
        if self._has_said:
            self._on_wait("")
        self._has_said = False
        self._since_ms = None
        self._pause_s = _PAUSE_FIRST_S
