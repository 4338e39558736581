"""Pure: whether and when a failed attempt is followed by another."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol


class RestartStrategy(Protocol):
    """When to start anew after failures. Immutable; the coordinator counts."""

    def delay_ms(self, failures: int) -> int | None:
        """How long to wait after this many failures in a row (1: the first); None: give up."""
        ...

    @property
    def stable_after_ms(self) -> int:
        """An attempt that ran this long and completed a checkpoint ends the row of failures. Both,
        because an error that always comes back comes back before the next checkpoint."""
        ...


@dataclass(frozen=True, slots=True)
class ExponentialDelay:
    """Each delay is `multiplier` times the one before, up to `max_ms`; gives up after `failures_max`.

    With the defaults: at once, then 0.2, 0.4, ... 10 s; it gives up after about a minute of delays.
    """

    initial_ms: int = 100
    multiplier: float = 2.0
    max_ms: int = 10_000
    failures_max: int = 12
    stable_after_ms: int = 30_000

    def delay_ms(self, failures: int) -> int | None:
        if failures > self.failures_max:
            return None
        return round(min(self.max_ms, self.initial_ms * self.multiplier ** (failures - 1)))


@dataclass(frozen=True, slots=True)
class FixedDelay:
    """The same delay each time, `failures_max` times in a row."""

    wait_ms: int = 1_000
    failures_max: int = 10
    stable_after_ms: int = 30_000

    def delay_ms(self, failures: int) -> int | None:
        return None if failures > self.failures_max else self.wait_ms


@dataclass(frozen=True, slots=True)
class NoRestart:
    """The first failure fails the job."""

    stable_after_ms: int = 0

    def delay_ms(self, failures: int) -> int | None:
        return None
