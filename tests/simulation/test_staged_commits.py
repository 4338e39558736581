"""The commits of a sink with a ledger in the system it writes to: whatever is killed, lost, late or
overtaken, each row of a durable checkpoint is there once, and no other.

A job of two subtasks writes checkpoints; any call to the system may crash it, be refused, lose its answer, or
land later; a restart begins a new attempt from the last durable checkpoint, at another parallelism, and the
writers of old attempts go on as zombies.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa
import pytest

from onceflow.connectors.staged_commits.owner import OwnerCommits
from onceflow.connectors.staged_commits.target import Target
from onceflow.runtime.errors import Fatal, Fenced, OnceflowError
from tests.simulated_target import CrashError, SimulatedSystem, SimulatedTarget

SEEDS, CHECKPOINTS = 400, 6
Commits = Callable[[str, Target, Any, int | None], OwnerCommits]


class Eager:
    """A Patience that waits for nothing."""

    def wait(self, error: OnceflowError) -> None: ...

    def reset(self) -> None: ...


@dataclass
class Promise:
    """A durable checkpoint: the rows of each owner, and what the ledger said when it was taken."""

    checkpoint_id: int = 0
    rows: dict[str, list[int]] = field(default_factory=dict)
    ledgers: dict[str, int | None] = field(default_factory=dict)


class Job:
    """Checkpoint n has the rows 10 n and 10 n + 1, spread over the owners of the attempt."""

    def __init__(self, seed: int, commits: Commits, target: type[SimulatedTarget]) -> None:
        self._random = random.Random(seed)
        self._commits, self._target = commits, target
        self.system = SimulatedSystem(self._random.randrange)
        self.durable = Promise()
        self.attempt = 0
        self.zombies: list[tuple[OwnerCommits, int, list[int]]] = []
        """Writers of old attempts, with the latest checkpoint that they heard to be durable, and its rows."""

    def run(self) -> None:
        while self.durable.checkpoint_id < CHECKPOINTS or not self._is_committed():
            self.system.crashes = self.attempt < 30
            self.attempt += 1
            try:
                self._run_attempt()
            except CrashError:
                continue
        assert self.visible() == sorted(self.expected())

    def visible(self) -> list[int]:
        return sorted(n for batch in self.system.rows for n in batch.column("n").to_pylist())

    def expected(self) -> list[int]:
        return [10 * n + k for n in range(1, self.durable.checkpoint_id + 1) for k in (0, 1)]

    def _is_committed(self) -> bool:
        return self.visible() == sorted(self.expected())

    def _run_attempt(self) -> None:
        owners = {str(n): self._open(str(n)) for n in range(self._random.choice((1, 2)))}
        try:
            self._recover(owners)
            while self.durable.checkpoint_id < CHECKPOINTS:
                self._next_checkpoint(owners)
        finally:
            n, rows = self.durable.checkpoint_id, self.durable.rows
            self.zombies += [
                (commits, n, rows[owner]) for owner, commits in owners.items() if rows.get(owner)
            ]

    def _recover(self, owners: dict[str, OwnerCommits]) -> None:
        n = self.durable.checkpoint_id
        self._let_zombies_try()
        for owner, rows in self.durable.rows.items():
            commits = owners.get(owner) or self._open(owner)
            if owner in owners:
                commits.claim(n)
            if rows:
                commits.commit(n, batches(rows))
        for owner, commits in owners.items():
            if owner not in self.durable.rows:
                commits.claim(n)
        self._check()

    def _next_checkpoint(self, owners: dict[str, OwnerCommits]) -> None:
        self._let_zombies_try()
        n, names = self.durable.checkpoint_id + 1, list(owners)
        rows = {owner: [10 * n + k for k in (0, 1) if names[k % len(names)] == owner] for owner in names}
        self.durable = Promise(n, rows, {owner: commits.last_seen for owner, commits in owners.items()})
        if self._random.random() < 0.1:
            raise CrashError
        for owner, commits in owners.items():
            if rows[owner]:
                commits.commit(n, batches(rows[owner]))
        self._check()

    def _let_zombies_try(self) -> None:
        for commits, n, rows in self.zombies:
            if self._random.random() < 0.1:
                try:
                    commits.commit(n, batches(rows))
                except (CrashError, Fenced):
                    continue

    def _open(self, owner: str) -> OwnerCommits:
        target = self._target(self.system, owner, self.attempt)
        return self._commits(owner, target, Eager(), self.durable.ledgers.get(owner))

    def _check(self) -> None:
        visible = self.visible()
        assert len(visible) == len(set(visible)), f"twice: {visible}"
        assert set(visible) <= set(self.expected()), f"of no checkpoint: {visible}"


def batches(rows: list[int]) -> Callable[[], Iterator[pa.RecordBatch]]:
    return lambda: iter([pa.record_batch({"n": rows})])


def survivors(
    commits: Commits, target: type[SimulatedTarget] = SimulatedTarget, seeds: int = SEEDS
) -> list[str]:
    """What went wrong, by seed."""
    wrong = []
    for seed in range(seeds):
        try:
            Job(seed, commits, target).run()
        except (AssertionError, OnceflowError) as error:
            wrong.append(f"{seed}: {error}")
    return wrong


def test_each_row_is_there_once() -> None:
    assert survivors(OwnerCommits) == []


class BelievesItsMemory(OwnerCommits):
    """After a lost answer it tries again, without asking anybody."""

    @property
    def _is_sure(self) -> bool:
        return self._last_seen is not None and self.__dict__.get("was_sure", False)

    @_is_sure.setter
    def _is_sure(self, is_sure: bool) -> None:
        self.__dict__["was_sure"] = self.__dict__.get("was_sure", False) or is_sure


class ReadsBeforeItFences(SimulatedTarget):
    """The ledger is read while an earlier commit is under way, which lands after it."""

    def _claim(self) -> int:
        _, before = self._system.ledgers.get(self._owner, (0, 0))
        super()._claim()
        return before


class FencesNobody(SimulatedTarget):
    """Older attempts can still commit: the attempt is not compared."""

    def commit(self, checkpoint_id: int, rows: Iterator[pa.RecordBatch]) -> None:
        _, committed = self._system.ledgers.get(self._owner, (0, 0))
        self._system.ledgers[self._owner] = (self._attempt, committed)
        super().commit(checkpoint_id, rows)


class CommitsInTwoSteps(SimulatedTarget):
    """The rows, and then the ledger."""

    def commit(self, checkpoint_id: int, rows: Iterator[pa.RecordBatch]) -> None:
        written = list(rows)
        self._system.rows += written
        super().commit(checkpoint_id, iter(()))


@pytest.mark.parametrize(
    ("commits", "target"),
    [
        (BelievesItsMemory, SimulatedTarget),
        (OwnerCommits, ReadsBeforeItFences),
        (OwnerCommits, FencesNobody),
        (OwnerCommits, CommitsInTwoSteps),
    ],
    ids=lambda each: each.__name__,
)
def test_a_mutant_is_killed(commits: Commits, target: type[SimulatedTarget]) -> None:
    assert survivors(commits, target), "each of these makes rows come twice, or from nowhere"


def test_a_ledger_that_went_back_is_no_reason_to_write_again() -> None:
    system = SimulatedSystem(lambda n: 0, crashes=False)
    commits = OwnerCommits("sink 'out', subtask 0", SimulatedTarget(system, "0", 2), Eager(), last_seen=4)
    with pytest.raises(Fatal, match=r"the ledger of sink 'out', subtask 0 says nothing, and it was at 4"):
        commits.commit(5, batches([1]))
    assert system.rows == []


def test_a_job_that_starts_behind_its_output_is_refused() -> None:
    system = SimulatedSystem(lambda n: 0, ledgers={"0": (1, 7)}, crashes=False)
    commits = OwnerCommits("sink 'out', subtask 0", SimulatedTarget(system, "0", 2), Eager(), None)
    with pytest.raises(Fatal, match="committed up to checkpoint 7, but the job starts from checkpoint 5"):
        commits.claim(5)
