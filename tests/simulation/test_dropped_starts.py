"""Starts of old attempts are dropped from the log while drivers go on that were fenced, or soon will be: many
random interleavings, and each driver killed at some step.

What a driver was told is complete has to be in the history of what the log says at the end: else its output
was committed, and another attempt has read the same input.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from contextlib import suppress
from itertools import count

import pytest

from onceflow.runtime.checkpoint import log, log_view
from onceflow.runtime.checkpoint.copies import delete_with_copies
from onceflow.runtime.checkpoint.log import (
    AttemptStarted,
    CheckpointCompleted,
    CheckpointLog,
    JobCreated,
    JobFinished,
    LogEntry,
    entry_path,
)
from onceflow.runtime.checkpoint.log_view import LogView, read_log
from onceflow.runtime.checkpoint.manifest import CheckpointManifest
from onceflow.runtime.checkpoint.memory_store import MemoryStore
from onceflow.runtime.checkpoint.recovery import Resumable, derive_job
from onceflow.runtime.checkpoint.retention import Retention
from onceflow.runtime.checkpoint.store import CheckpointStore
from onceflow.runtime.errors import Fenced, Indeterminate
from onceflow.runtime.testing.choices import SeededChoices
from onceflow.runtime.testing.interleaving import CHANGE_OF_TURN, run_interleaved
from onceflow.runtime.testing.mutation import Mutant, mutated

ATTEMPTS = 3
"""How many attempts a driver begins after each other, unless it is fenced."""
CHECKPOINTS = 2
"""How many checkpoints each of them completes; one or two are retained."""


def checkpoint(n: int, attempt: int) -> CheckpointManifest:
    return CheckpointManifest("job", "lineage", attempt, n, 0, 0, 1, 1)


class Folder:
    """A log in which attempt 1 has completed checkpoint 1, and all that drivers do to it."""

    def __init__(self, retained: int) -> None:
        self.retained = retained
        self.store = MemoryStore()
        self.ids = count(2)
        self.before: dict[int, int | None] = {1: None}
        """What each checkpoint was built on."""
        self.told: list[int] = []
        """What drivers know to be complete, and commit."""
        self.had_strays = False
        self.most_kept = 0
        writer = CheckpointLog(self.store, 0)
        for entry in (
            JobCreated("job", "lineage", 0),
            AttemptStarted(1, None, "first", 0, 1),
            CheckpointCompleted(checkpoint(1, 1)),
        ):
            writer.append(entry)

    # --- What drivers do ---

    def first(self, store: CheckpointStore) -> None:
        """The driver of attempt 1 goes on, and says at the end that the job has finished."""
        known = LogView({2: CheckpointCompleted(checkpoint(1, 1))})
        writer = CheckpointLog(store, 3)
        self._complete(store, writer, Retention(store, self.retained, known, 1), 1, 1)

    def second(self, store: CheckpointStore) -> None:
        self._drive(store, "second")

    def third(self, store: CheckpointStore) -> None:
        self._drive(store, "third")

    def _drive(self, store: CheckpointStore, owner: str) -> None:
        for _ in range(ATTEMPTS):
            view = read_log(store)
            job = derive_job(view)
            if not isinstance(job, Resumable):
                return
            assert job.latest is not None
            latest = job.latest.checkpoint_id
            writer = CheckpointLog(store, job.next_position)
            start = self._append(writer, AttemptStarted(job.next_attempt, latest, owner, 0, 1))
            kept = Retention(store, self.retained, view, start)
            kept.sweep(job.next_attempt, 0)
            self._complete(store, writer, kept, job.next_attempt, latest)

    def _complete(
        self, store: CheckpointStore, writer: CheckpointLog, kept: Retention, attempt: int, latest: int
    ) -> None:
        for _ in range(CHECKPOINTS):
            manifest = checkpoint(next(self.ids), attempt)
            self.before[manifest.checkpoint_id] = latest
            latest = manifest.checkpoint_id
            kept.add(self._append(writer, CheckpointCompleted(manifest)), manifest)
            self.told.append(latest)
            kept.subsume(latest)
        if attempt == 1:
            self._append(writer, JobFinished(1, 0))

    def _append(self, writer: CheckpointLog, entry: LogEntry) -> int:
        """Again where it can't be told, as the coordinator does."""
        while True:
            with suppress(Indeterminate):
                return writer.append(entry)

    # --- What must hold ---

    def check(self) -> None:
        """At any moment: the log is whole for who reads it, and tells one history."""
        view = read_log(self.store)
        self.had_strays |= bool(view.strays)
        assert not view.corrupt, f"damaged: {view.corrupt}"
        ids = [manifest.checkpoint_id for _, manifest in view.completed()]
        self.most_kept = max(self.most_kept, len(ids))
        assert len(ids) >= min(self.most_kept, self.retained), f"of the checkpoints only {ids} are kept"
        foreign = {*ids} - self._history(derive_job(view).latest.checkpoint_id)  # type: ignore[union-attr]
        assert not foreign, f"{foreign} of another history"

    def check_end(self) -> None:
        view = read_log(self.store)
        latest = derive_job(view).latest  # type: ignore[union-attr]
        lost = {*self.told} - self._history(latest.checkpoint_id)
        assert not lost, f"{lost} was told to be complete, and is of another history"
        if isinstance(derive_job(view), Resumable):
            self._drive(self.store, "last")
            view = read_log(self.store)
            assert len(view.starts()) == 1, "old starts are left"
            assert not view.strays, "what drivers have left that were fenced is still there"

    def _history(self, checkpoint_id: int | None) -> set[int]:
        found = set()
        while checkpoint_id is not None:
            found.add(checkpoint_id)
            checkpoint_id = self.before[checkpoint_id]
        return found


class FewChanges(SeededChoices):
    """A driver goes on for many steps before it is another one's turn, as one does that was not frozen."""

    def choose(self, n: int, what: str = "") -> int:
        goes_on = what == CHANGE_OF_TURN and super().choose(20, "goes on") > 0
        return 0 if goes_on else super().choose(n, what)


def play(seed: int) -> Folder:
    folder = Folder(retained=1 + seed % 2)
    works: dict[str, Callable[[CheckpointStore], None]] = {
        "first": folder.first, "second": folder.second, "third": folder.third
    }  # fmt: skip
    for process in run_interleaved(works, folder.store, FewChanges(seed), folder.check).values():
        if process.outcome and not process.was_killed and not isinstance(process.outcome, Fenced):
            raise process.outcome
    folder.check_end()
    return folder


def test_what_a_driver_was_told_is_complete_stays_in_the_history() -> None:
    had_strays = sum(play(seed).had_strays for seed in range(150))
    assert had_strays >= 5, "no driver has written where a start was dropped: the test would see nothing"


@pytest.mark.soak
def test_many_interleavings() -> None:
    for seed in range(20_000):
        play(seed)


# --- Mutants ------------------------------------------------------------------------------------------


def always(store: CheckpointStore, position: int) -> bool:
    return True


def all_count(view: LogView) -> None:
    """What a zombie has left in the log is taken for an entry."""


def drop_all_starts(self: Retention) -> None:
    """Starts of attempts whose checkpoints are kept go, too."""
    while len(self._starts) > 1:
        delete_with_copies(self._store, [entry_path(self._starts.pop(0))])


def drop_latest_first(self: Retention) -> None:
    if self._starts[-1] > self._kept[0][0]:
        return
    *old, _ = self._starts
    for start in reversed(old):
        delete_with_copies(self._store, [entry_path(start)])
    del self._starts[: len(old)]


MUTANTS = (
    Mutant("nobody looks whether there is more behind his entry", [(log, "is_newest", always)]),
    Mutant("what a zombie leaves is an entry", [(log_view, "_leave_out_strays", all_count)]),
    Mutant(
        "starts go before the checkpoints of their attempts", [(Retention, "_drop_starts", drop_all_starts)]
    ),
    Mutant("the latest start goes first", [(Retention, "_drop_starts", drop_latest_first)]),
)


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.title)
def test_every_mutant_is_killed(mutant: Mutant) -> None:
    with mutated(mutant), pytest.raises(AssertionError, match=r"damaged|history|kept"):
        deque(map(play, range(3_000)), maxlen=0)
