"""`stop --drain` with crashes everywhere: the output is that of the records read, as if they were all.

From a drained checkpoint nobody goes on; from one before it the job does, as if no drain had been asked for.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from typing import Any

import pytest

from onceflow.runtime.checkpoint import events as ev
from onceflow.runtime.checkpoint.job_phase import JobPhase
from onceflow.runtime.checkpoint.manifest import CheckpointManifest
from onceflow.runtime.checkpoint.stopping import Stopping
from onceflow.runtime.control.messages import Assignment
from onceflow.runtime.slot import assignments
from onceflow.runtime.testing.checkers import Checker
from onceflow.runtime.testing.choices import Choices, SeededChoices
from onceflow.runtime.testing.mutation import Mutant, mutated
from onceflow.runtime.testing.sim_driver import SimDriver
from onceflow.runtime.testing.sim_job import SimInput, sim_graph
from onceflow.runtime.testing.sim_world import SimWorld
from onceflow.runtime.testing.simulation import GraphOf, draw_options, run_seeds
from onceflow.runtime.testing.violations import Breach
from onceflow.runtime.testing.world import Crash, Move, WorldOptions

DRAIN_BY = 40
"""A drain may be asked for after so many moves of a run at the latest, once it runs."""
AT_ONCE = 8
"""How much likelier that is then than each other move, so that not all has been read."""
RECORDS_MAX = 16
"""In a split."""


class DrainChecker(Checker):
    """Once a checkpoint is drained its records are all that there are."""

    drained: CheckpointManifest | None = None

    def on_unread(self) -> None:
        """Replaced by the world, to count it."""

    def _on_manifest(self, manifest: CheckpointManifest) -> None:
        goes_on = self.drained is not None and not manifest.is_drained
        self._check(not goes_on, Breach.LOG, "a job that was drained goes on")
        before = self._next_offsets
        super()._on_manifest(manifest)
        if self.drained is not None:
            self._check(self._next_offsets == before, Breach.OFFSETS, "it reads on after it was drained")
        elif manifest.is_drained:
            self.drained = manifest
            if any(self._next_offsets[split] < len(records) for split, records in self._input.splits.items()):
                self.on_unread()
            parts = self._input.splits.items()
            read = SimInput({split: records[: self._next_offsets[split]] for split, records in parts})
            self._expected = read.expected(self._has_real_windows)
            wrong = self._visible - self._expected
            self._check(not wrong, Breach.WRONG, f"visible before the drain, and wrong after it: {wrong}")


class DrainingWorld(SimWorld):
    """A job that is asked to drain, once or twice, at any moment."""

    checker: DrainChecker
    checker_type = DrainChecker

    def __init__(self, choices: Choices, options: WorldOptions, graph: GraphOf = sim_graph) -> None:
        super().__init__(choices, options, graph)
        self.checker.on_unread = lambda: self.marks.add("drained with records unread")  # type: ignore[method-assign]
        self._drains_left = 1 + choices.choose(2, "drains")
        self._drains_from = choices.choose(DRAIN_BY, "drain from this move on")

    def outside_moves(self) -> list[Move]:
        moves = super().outside_moves()
        driver = self._drivers[-1]
        is_running = driver.coordinator.phase is JobPhase.RUNNING
        if is_running and self._drains_left and self.moves >= self._drains_from:
            moves += [("drain", driver, self._drain, (driver,))] * AT_ONCE
        return moves

    def _drain(self, driver: SimDriver) -> None:
        self._drains_left -= 1
        self.marks.add("drain")
        driver.handle(ev.StopRequested(drains=True))


def draining_world(
    seed: int, graph: GraphOf = sim_graph, is_aligned: bool = True, is_traced: bool = False
) -> SimWorld:
    """The world of this seed, with drains."""
    choices = SeededChoices(seed)
    return DrainingWorld(choices, replace(draw_options(choices), records_max=RECORDS_MAX), graph)


def test_seeds_with_crashes_and_rescales() -> None:
    report = run_seeds(range(60), world_of=draining_world)
    assert report.failed_seed is None, f"seed {report.failed_seed}: {report.failure}"
    assert report.marks["drained with records unread"] > 10, report.marks
    assert report.marks["failure while stopping"] > 3


@pytest.mark.parametrize(
    "stride", [9, pytest.param(1, marks=[pytest.mark.soak, pytest.mark.timeout(900)], id="at each point")]
)
def test_crashes_at_points_all_over(stride: int) -> None:
    """The same job, with two splits and two slots, hit at one point after another until it has ended."""
    marks: Counter[str] = Counter()
    for crash in (Crash.KILL_ALL, Crash.KILL_DRIVER, Crash.KILL_SLOT):
        point, points = 1, 1
        while point <= points:
            options = WorldOptions((2,), splits=2, records_max=RECORDS_MAX, crashes={point: crash})
            world = DrainingWorld(SeededChoices(point), options)
            world.run()
            marks.update(world.marks)
            point, points = point + stride, world.points
    assert marks["drained with records unread"] > 10, marks


def _checkpoints_go_on(self: Stopping, all_drained: bool) -> bool:
    return False


def _by_the_interval(self: Stopping, all_drained: bool) -> bool:
    return all_drained


def _told_to_go_on(**fields: Any) -> Assignment:
    return Assignment(**{**fields, "is_drained": False})


MUTANTS = (
    Mutant(
        "checkpoints go on while a job drains",
        [(Stopping, "forbids_trigger", _checkpoints_go_on), (Stopping, "is_ending", _by_the_interval)],
        {Breach.WRONG, Breach.LOST, Breach.STATE},
    ),
    Mutant(
        "a drained checkpoint is gone on from",
        [(assignments, "Assignment", _told_to_go_on)],
        {Breach.LOG, Breach.OFFSETS, Breach.STATE, Breach.WRONG},
    ),
)


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.title)
def test_mutant_is_killed(mutant: Mutant) -> None:
    def breach(seed: int) -> Breach | None:
        with mutated(mutant):
            return run_seeds([seed], world_of=draining_world).breach

    assert any(breach(seed) in mutant.breaches for seed in range(80)), "it survived"
