"""Savepoints that are pinned in the job's folder, while a job runs there, another attempt begins, and one is
deleted: every kill, every single change of turn, and many random interleavings.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from contextlib import suppress
from typing import Any

import pytest

from onceflow.runtime.checkpoint import log, retention
from onceflow.runtime.checkpoint.copies import delete_with_copies
from onceflow.runtime.checkpoint.log import (
    AttemptStarted,
    CheckpointCompleted,
    CheckpointLog,
    JobCreated,
    entry_path,
)
from onceflow.runtime.checkpoint.log_view import LogView, read_log
from onceflow.runtime.checkpoint.manifest import CheckpointManifest, StateHandle, TableFile
from onceflow.runtime.checkpoint.memory_store import MemoryStore
from onceflow.runtime.checkpoint.retention import Retention
from onceflow.runtime.checkpoint.savepoints import deleting, pins, taking
from onceflow.runtime.checkpoint.savepoints.deleting import delete_savepoint
from onceflow.runtime.checkpoint.savepoints.folder import pinned_at
from onceflow.runtime.checkpoint.savepoints.pins import PATIENCE_MS, Pins, pin_path, pinned_ids, record_path
from onceflow.runtime.checkpoint.savepoints.savepoint import Savepoint
from onceflow.runtime.checkpoint.savepoints.taking import pin_savepoint
from onceflow.runtime.checkpoint.store import CheckpointStore
from onceflow.runtime.clock import ManualClock
from onceflow.runtime.errors import CorruptCheckpointError, Fenced, Indeterminate, Retryable, UsageError
from onceflow.runtime.testing.choices import Choices, ExhaustiveChoices, SeededChoices
from onceflow.runtime.testing.interleaving import CHANGE_OF_TURN, run_interleaved
from onceflow.runtime.testing.mutation import Mutant, mutated

LATE_MS = 10 * PATIENCE_MS
"""The clock of who looks for abandoned pins is so far ahead that every taker's pin is one to it."""


def state_file(n: int) -> str:
    return f"state/attempt-000001/{n:010d}.op.0.arrows"


def checkpoint(n: int) -> CheckpointManifest:
    """Each has a file of its own, and one that the next one still names."""
    tables = tuple(TableFile("t", path, 0, 1, "", (1,)) for path in (state_file(n), state_file(n - 1)))
    return CheckpointManifest("job", "lineage", 1, n, 0, 0, 1, 1, [StateHandle("op", 0, 0, 1, tables)])


class HasFailed(AssertionError):
    """A process ended with an error that it should not meet; but nothing is broken."""


class Folder:
    """A checkpoint folder with a checkpoint, which may be a savepoint as well."""

    def __init__(self, has_savepoint: bool) -> None:
        self.store = MemoryStore()
        self.log = CheckpointLog(self.store, 0)
        self.log.append(JobCreated("job", "lineage", 0))
        self.log.append(AttemptStarted(1, None, "first", 0, 1))
        self.store.create(state_file(0), b"x")
        self.complete(self.store, self.log, 1)
        self.saved = pin_savepoint(self.store, ManualClock(0)).savepoint_id if has_savepoint else ""
        self.taken: list[str] = []
        self.seen: set[str] = set()

    def complete(self, store: CheckpointStore, log: CheckpointLog, n: int) -> tuple[int, CheckpointManifest]:
        store.create(state_file(n), b"x")
        return log.append(CheckpointCompleted(checkpoint(n))), checkpoint(n)

    def run_job(self, store: CheckpointStore) -> None:
        """Three more checkpoints; only the last one is retained."""
        log = CheckpointLog(store, self.log.next_position)
        known = LogView({self.log.next_position - 1: CheckpointCompleted(checkpoint(1))})
        mine = Retention(store, 1, known, 1)
        for n in (2, 3, 4):
            mine.add(*self.complete(store, log, n))
            mine.subsume(n)

    def take(self, store: CheckpointStore) -> None:
        self.taken.append(pin_savepoint(store, ManualClock(0)).savepoint_id)

    def begin_attempt(self, store: CheckpointStore) -> None:
        """Fence the other one before anything is deleted, as `CheckpointIO` does."""
        started = AttemptStarted(2, 1, "second", 0, 1)
        while True:
            view = read_log(store)
            with suppress(Fenced):
                start = CheckpointLog(store, view.next_position).append(started)
                break
        Retention(store, 1, view, start).sweep(2, LATE_MS)

    def delete(self, store: CheckpointStore) -> None:
        delete_savepoint(pinned_at(store, self.saved))

    # --- What must hold ---

    def check(self) -> None:
        """At any moment: what is a savepoint is whole, and so is what the log names."""
        paths = {status.path for status in self.store.list("")}
        if paths == self.seen:
            return
        self.seen = paths
        for savepoint_id in pinned_ids(self.store):
            if (taken := self.read(savepoint_id)) is not None:
                self.check_files(taken.manifest, f"savepoint {savepoint_id}")
        for _, manifest in read_log(self.store).completed()[-1:]:
            self.check_files(manifest, f"checkpoint {manifest.checkpoint_id}")

    def read(self, savepoint_id: str) -> Savepoint | None:
        try:
            return pinned_at(self.store, savepoint_id).read()
        except (UsageError, CorruptCheckpointError):
            return None

    def check_files(self, manifest: CheckpointManifest, what: str) -> None:
        there = {status.path for status in self.store.list("state")}
        assert manifest.paths() <= there, f"{what} lacks {manifest.paths() - there}"

    def check_end(self, ended: Any) -> None:
        """At the end: who has said that he took one has it, and nothing is left that nobody needs."""
        for name, process in ended.items():
            may_fail = (Retryable, Fenced, Indeterminate) if name != "delete" else ()
            if process.outcome and not process.was_killed and not isinstance(process.outcome, may_fail):
                raise HasFailed(name) from process.outcome
        for savepoint_id in self.taken:
            assert self.read(savepoint_id) is not None, "it was said to be taken"
        if "delete" in ended and ended["delete"].outcome is None:
            assert self.read(self.saved) is None, "it was said to be deleted"
        view = read_log(self.store)
        Retention(self.store, 1, view, view.next_position).sweep(9, LATE_MS)
        self.check()
        whole = [self.read(savepoint_id) for savepoint_id in pinned_ids(self.store)]
        assert all(whole), "was said to be a savepoint"
        left = {s.path.split("/")[1] for s in self.store.list("savepoints")} - {*pinned_ids(self.store)}
        assert not left, f"pins or savepoints that nobody names: {left}"
        named = {path for _, manifest in view.completed() for path in manifest.paths()}
        named |= {path for taken in whole if taken for path in taken.manifest.paths()}
        assert {s.path for s in self.store.list("state")} == named, "files that nobody names"


class FewChanges(SeededChoices):
    """A process goes on for some steps before it is another one's turn: what breaks an order of steps needs
    one side to get far while the other one stands still."""

    def choose(self, n: int, what: str = "") -> int:
        goes_on = what == CHANGE_OF_TURN and super().choose(6, "goes on") > 0
        return 0 if goes_on else super().choose(n, what)


SCENES: tuple[tuple[str, ...], ...] = (
    ("take", "run_job"),
    ("take", "run_job", "begin_attempt"),
    ("take", "run_job", "begin_attempt", "delete"),
    ("delete", "take"),
    ("take", "begin_attempt"),
)


FOUND = {SCENES[1]: (2216,)}
"""Seeds at which something was wrong. An attempt's entry came where a checkpoint's had been, after the log
was listed."""


def play(scene: tuple[str, ...], choices: Choices) -> None:
    folder = Folder(has_savepoint="delete" in scene)
    works: dict[str, Callable[[CheckpointStore], None]] = {name: getattr(folder, name) for name in scene}
    folder.check_end(run_interleaved(works, folder.store, choices, folder.check))


@pytest.mark.parametrize("scene", SCENES, ids="-".join)
def test_a_savepoint_is_whole_or_is_none_whoever_is_killed(scene: tuple[str, ...]) -> None:
    for seed in (*range(25), *FOUND.get(scene, ())):
        play(scene, FewChanges(seed))


@pytest.mark.soak
@pytest.mark.parametrize("scene", SCENES, ids="-".join)
def test_many_interleavings(scene: tuple[str, ...]) -> None:
    for seed in range(5_000):
        play(scene, FewChanges(seed))


@pytest.mark.parametrize("scene", [SCENES[0], SCENES[3]], ids="-".join)
def test_every_kill_before_every_step_and_every_single_change_of_turn(scene: tuple[str, ...]) -> None:
    runs = 0
    for choices in ExhaustiveChoices(deviations_max=2):
        play(scene, choices)
        runs += 1
    assert runs > 20


# --- Mutants ------------------------------------------------------------------------------------------


def nothing_is_pinned(self: Pins) -> Any:
    return frozenset()


def pins_first(self: Retention, checkpoint_id: int) -> None:
    """The pins are read before the checkpoint is dropped."""
    pinned = self._pins.paths()
    dropped = [kept for kept in self._kept if kept[1] < checkpoint_id]
    for position, _, paths in dropped:
        delete_with_copies(self._store, [entry_path(position)])
        self._kept.pop(0)
        self._discarded |= paths
    delete_with_copies(self._store, pins.unneeded(self._discarded, self._named(), pinned))


def always_kept(store: CheckpointStore, position: int) -> bool:
    return True


def drop_at_once(store: CheckpointStore, now_ms: int) -> None:
    """A pin without a savepoint goes, and nobody is told."""
    for status in store.list("savepoints"):
        savepoint_id = status.path.split("/")[1]
        if pins._is_abandoned(store, savepoint_id, now_ms):
            store.delete([pin_path(savepoint_id)])


def unpin_asking_pins_first(store: CheckpointStore, taken: Savepoint) -> None:
    store.delete([record_path(taken.savepoint_id)])
    store.delete([pin_path(taken.savepoint_id)])
    pinned = Pins(store).paths()
    named = frozenset().union(*(manifest.paths() for _, manifest in read_log(store).completed()))
    delete_with_copies(store, pins.unneeded(taken.manifest.paths(), named, pinned))


def unpin_everything(store: CheckpointStore, taken: Savepoint) -> None:
    """What the job still names goes, too."""
    store.delete([record_path(taken.savepoint_id), pin_path(taken.savepoint_id)])
    delete_with_copies(store, sorted(taken.manifest.paths()))


MUTANTS = (
    (Mutant("retention knows no pins", [(Pins, "paths", nothing_is_pinned)]), 0),
    (Mutant("retention reads the pins too early", [(Retention, "subsume", pins_first)]), 0),
    (Mutant("a taker does not look again", [(taking, "has_entry", always_kept)]), 0),
    (Mutant("abandoned pins go without a word", [(retention, "drop_abandoned", drop_at_once)]), 4),
    (Mutant("a deletion reads the pins too early", [(deleting, "_unpin", unpin_asking_pins_first)]), 2),
    (Mutant("an attempt takes a free place for the next one", [(log, "is_newest", always_kept)]), 1),
    (Mutant("a deletion takes all", [(deleting, "_unpin", unpin_everything)]), 3),
)
SEEDS_MAX = 1_500


@pytest.mark.parametrize(("mutant", "scene"), MUTANTS, ids=lambda value: getattr(value, "title", ""))
def test_every_mutant_is_killed(mutant: Mutant, scene: int) -> None:
    def hunt() -> None:
        few = len(SCENES[scene]) == 2
        runs: Iterable[Choices] = ExhaustiveChoices(2) if few else map(FewChanges, range(SEEDS_MAX))
        for choices in runs:
            with suppress(HasFailed):
                play(SCENES[scene], choices)

    with mutated(mutant), pytest.raises(AssertionError, match=r"lacks|was said|nobody names"):
        hunt()
