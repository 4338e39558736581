"""A system in memory with Targets, on which anything may go wrong: the commits of an owner are proven on it.

It keeps what a Target promises and nothing more: a commit is atomic, fails for an attempt that is not the
ledger's, and may still be under way when its caller has long given up; a claim ends what is under way, or
waits for it. It does not mind a commit that it has had already: its caller must.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from enum import Enum

import pyarrow as pa

from onceflow.runtime.errors import Fenced, Indeterminate, OnceflowError, Retryable

Choose = Callable[[int], int]
"""A number below the given one: what happens next."""


class CrashError(Exception):
    """The process of the writer is killed."""


class Fate(Enum):
    """What becomes of a call."""

    DONE = "done"
    REFUSED = "refused"
    LOST = "lost"
    """It is not done, and nobody says so."""
    DONE_UNSAID = "done, and the answer is lost"
    UNDER_WAY = "under way when the caller gives up"
    CRASH_BEFORE = "killed before"
    CRASH_AFTER = "killed after"


@dataclass
class SimulatedSystem:
    """`rows`: what everybody sees, in the order of the commits."""

    choose: Choose
    rows: list[pa.RecordBatch] = field(default_factory=list)
    ledgers: dict[str, tuple[int, int]] = field(default_factory=dict)
    """Attempt and checkpoint, by owner."""
    under_way: list[SimulatedCommit] = field(default_factory=list)
    crashes: bool = True
    """False: from now on all goes well."""

    def fate(self) -> Fate:
        fates = list(Fate)
        return (
            fates[self.choose(2 * len(fates)) % len(fates)]
            if self.crashes and self.choose(3) == 0
            else Fate.DONE
        )

    def settle(self, owner: str | None = None) -> None:
        """What is under way (of this owner) ends now: done or not. With no owner, some of it."""
        for commit in list(self.under_way):
            if owner == commit.owner or (owner is None and self.choose(3) == 0):
                self.under_way.remove(commit)
                if self.choose(2):
                    commit.land(self)


@dataclass(frozen=True)
class SimulatedCommit:
    """A commit that the system has got."""

    owner: str
    attempt: int
    checkpoint_id: int
    rows: tuple[pa.RecordBatch, ...]

    def land(self, system: SimulatedSystem) -> bool:
        """In one step, and not at all for an attempt that is not the ledger's. Whether it was."""
        attempt, _ = system.ledgers.get(self.owner, (0, 0))
        if attempt != self.attempt:
            return False
        system.rows.extend(self.rows)
        system.ledgers[self.owner] = (attempt, self.checkpoint_id)
        return True


class SimulatedTarget:
    """A Target."""

    def __init__(self, system: SimulatedSystem, owner: str, attempt: int) -> None:
        self._system = system
        self._owner = owner
        self._attempt = attempt

    def claim(self) -> int:
        return self._meet_fate(self._claim)

    def commit(self, checkpoint_id: int, rows: Iterator[pa.RecordBatch]) -> None:
        commit = SimulatedCommit(self._owner, self._attempt, checkpoint_id, tuple(rows))

        def land() -> int:
            if not commit.land(self._system):
                raise Fenced("a newer attempt has claimed it")
            return checkpoint_id

        self._meet_fate(land, commit)

    def close(self) -> None:
        """Nothing is open."""

    def _claim(self) -> int:
        self._system.settle(self._owner)
        attempt, checkpoint_id = self._system.ledgers.get(self._owner, (0, 0))
        if attempt > self._attempt:
            raise Fenced(f"attempt {attempt} has claimed it")
        self._system.ledgers[self._owner] = (self._attempt, checkpoint_id)
        return checkpoint_id

    def _meet_fate(self, call: Callable[[], int], commit: SimulatedCommit | None = None) -> int:
        self._system.settle()
        error: OnceflowError = Indeterminate("no answer")
        match self._system.fate():
            case Fate.CRASH_BEFORE:
                raise CrashError
            case Fate.REFUSED:
                raise Retryable("refused")
            case Fate.LOST:
                raise error
            case Fate.UNDER_WAY:
                if commit is not None:
                    self._system.under_way.append(commit)
                raise error
            case Fate.DONE_UNSAID:
                call()
                raise error
            case Fate.CRASH_AFTER:
                call()
                raise CrashError
            case Fate.DONE:
                return call()
