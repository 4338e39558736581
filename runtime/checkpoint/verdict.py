"""Pure: what follows a failed attempt: another attempt, or the end of the job.

Three things end a job, besides an error that says so itself and a restart strategy that gives up:

- Something outside can't be used, and no attempt of this run has worked yet: a wrong address or folder
  is far more likely than an outage, and no number of attempts puts it right.
- The same failure twice in a row, with nothing in between to make the second one differ: an attempt
  reads the same records again, so what depends on them only comes back for ever.

"In a row" is the restart strategy's: an attempt that was stable ends the row. What a failure has in
common with another is its fingerprints (checkpoint/fingerprints.py); what may pass by itself has none.
"""

from __future__ import annotations

from collections.abc import Set
from dataclasses import dataclass

from onceflow.runtime.checkpoint.restart import RestartStrategy


@dataclass(frozen=True, slots=True)
class Failure:
    """Why an attempt failed, or why none could be opened."""

    reason: str
    is_fatal: bool = False
    """A restart would meet the same: the job is over."""
    is_unavailable: bool = False
    """Something outside (a broker, a registry, a folder) could not be used."""
    fingerprints: Set[str] = frozenset()
    """What it has in common with the same failure another time; empty: it may pass by itself."""


@dataclass(frozen=True, slots=True)
class Restart:
    """Another attempt follows after this long; `failures`: so many in a row by now."""

    delay_ms: int
    failures: int


@dataclass(frozen=True, slots=True)
class GiveUp:
    """The job has failed."""

    reason: str


class FailureRow:
    """The failures in a row of one run of the job. The coordinator tells it what its attempts do."""

    def __init__(self, restart: RestartStrategy) -> None:
        self._restart = restart
        self._failures = 0
        self._seen: dict[str, str] = {}
        """Fingerprint -> which attempt had it first, in this row."""
        self._has_worked = False
        """An attempt of this run ran in all its slots and read a record or completed a checkpoint, so
        what is outside was there and was the right one."""
        self._attempt: int | None = None
        self._running_since_ms: int | None = None
        self._has_read = False
        self._completed = 0

    def on_attempt(self, attempt: int) -> None:
        """An attempt was opened; its slots are being started."""
        self._attempt, self._running_since_ms = attempt, None
        self._has_read, self._completed = False, 0

    def on_running(self, now_ms: int) -> None:
        """All its slots run, and what was promised is committed: the brokers of the sinks answer."""
        self._running_since_ms = now_ms
        self._note_work()

    def on_record(self) -> None:
        """A slot has read a record: the sources are there."""
        self._has_read = True
        self._note_work()

    def on_checkpoint(self) -> None:
        """A manifest is durable: the folder can be written."""
        self._completed += 1
        self._note_work()

    def judge(self, failure: Failure, now_ms: int) -> Restart | GiveUp:
        """What follows a failure of the attempt, or of opening one."""
        attempt = "opening the job" if self._attempt is None else f"attempt {self._attempt}"
        if self._was_stable(now_ms):
            self._failures = 0
            self._seen.clear()
        self._attempt = self._running_since_ms = None
        self._failures += 1
        if failure.is_fatal:
            return GiveUp(failure.reason)
        if failure.is_unavailable and not self._has_worked:
            return GiveUp(
                f"{failure.reason}. Nothing of this run has worked before, so this is taken for a wrong "
                "setting and not for an outage"
            )
        if same := [self._seen[mark] for mark in sorted(failure.fingerprints) if mark in self._seen]:
            return GiveUp(f"{failure.reason} ({same[0]} failed for the same reason, and so would another)")
        self._seen |= dict.fromkeys(failure.fingerprints, attempt)
        delay_ms = self._restart.delay_ms(self._failures)
        if delay_ms is None:
            again = f" ({self._failures} failures in a row)" if self._failures > 1 else ""
            return GiveUp(f"{failure.reason}{again}")
        return Restart(delay_ms, self._failures)

    def _note_work(self) -> None:
        if self._running_since_ms is not None and (self._has_read or self._completed):
            self._has_worked = True

    def _was_stable(self, now_ms: int) -> bool:
        since_ms = self._running_since_ms
        is_old = since_ms is not None and now_ms - since_ms >= self._restart.stable_after_ms
        return is_old and self._completed > 0
