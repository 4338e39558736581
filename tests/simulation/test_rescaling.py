"""A running job gets other numbers of slots, at any moment, with crashes everywhere: its output stays what it
would have been."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace

import pytest

from onceflow.runtime.checkpoint import events as ev
from onceflow.runtime.checkpoint.effects import Effect
from onceflow.runtime.checkpoint.job_phase import JobPhase
from onceflow.runtime.checkpoint.scale import Scale
from onceflow.runtime.slot.warm_slots import LaunchedSlots, WarmSlots
from onceflow.runtime.testing.choices import Choices, SeededChoices
from onceflow.runtime.testing.mutation import Mutant, mutated
from onceflow.runtime.testing.sim_driver import SimDriver
from onceflow.runtime.testing.sim_job import sim_graph
from onceflow.runtime.testing.sim_world import SimWorld
from onceflow.runtime.testing.simulation import GraphOf, draw_options, run_seeds
from onceflow.runtime.testing.violations import Breach
from onceflow.runtime.testing.world import Crash, Move, WorldOptions

ASKS_MAX = 6
AT_ONCE = 4
"""How much likelier it is to be asked than each other move, so that not all has been read."""


class RescalingWorld(SimWorld):
    """A job that is asked for other numbers of slots, also while it starts or restarts."""

    def __init__(self, choices: Choices, options: WorldOptions, graph: GraphOf = sim_graph) -> None:
        super().__init__(choices, options, graph)
        self._asks_left = 1 + choices.choose(ASKS_MAX, "rescales")
        self._asks_from = choices.choose(60, "rescale from this move on")

    def outside_moves(self) -> list[Move]:
        moves = super().outside_moves()
        driver = self._drivers[-1]
        if self._asks_left and self.moves >= self._asks_from:
            moves += [("rescale", driver, self._rescale, (driver,))] * AT_ONCE
        return moves

    def _rescale(self, driver: SimDriver) -> None:
        self._asks_left -= 1
        within = (60, 8, 8)[self.choices.choose(3, "soon again")]
        self._asks_from = self.moves + self.choices.choose(within, "rescale from this move on")
        before = driver.parallelism
        driver.has_room_for_both = self.choices.choose(4, "room for both") > 0
        driver.handle(ev.RescaleRequested(1 + self.choices.choose(4, "slots")))
        if driver.coordinator.phase is JobPhase.RUNNING and before != 1:
            self.marks.add("asked while running")

    def _start_slots(self, driver: SimDriver, attempt: int, slots: int) -> Sequence[int]:
        if slots != self._first_parallelism(driver):
            self.marks.add("rescaled")
        if driver.group is not None and not driver.group.is_over:
            self.marks.add("warmed")
        return super()._start_slots(driver, attempt, slots)

    def _first_parallelism(self, driver: SimDriver) -> int:
        return self.options.parallelism[min(self._starts - 1, len(self.options.parallelism) - 1)]


def rescaling_world(
    seed: int, graph: GraphOf = sim_graph, is_aligned: bool = True, is_traced: bool = False
) -> SimWorld:
    """The world of this seed, with rescales."""
    choices = SeededChoices(seed)
    return RescalingWorld(choices, replace(draw_options(choices), records_max=12), graph)


def test_seeds_with_crashes() -> None:
    report = run_seeds(range(80), world_of=rescaling_world)
    assert report.failed_seed is None, f"seed {report.failed_seed}: {report.failure}"
    assert report.marks["rescaled"] > 30, report.marks
    assert report.marks["warmed"] > 15, report.marks


@pytest.mark.parametrize(
    "stride", [9, pytest.param(1, marks=[pytest.mark.soak, pytest.mark.timeout(900)], id="at each point")]
)
def test_crashes_at_points_all_over(stride: int) -> None:
    """The same job, hit at one point after another until it has ended."""
    marks: Counter[str] = Counter()
    for crash in (Crash.KILL_ALL, Crash.KILL_DRIVER, Crash.KILL_SLOT, Crash.FREEZE_DRIVER):
        point, points = 1, 1
        while point <= points:
            options = WorldOptions((2,), splits=2, records_max=12, crashes={point: crash})
            world = RescalingWorld(SeededChoices(point), options)
            world.run()
            marks.update(world.marks)
            point, points = point + stride, world.points
    assert marks["rescaled"] > 10, marks


def _told_and_forgotten(self: Scale) -> bool:
    return self._wanted != self.slots


def _untold(self: Scale) -> list[Effect]:
    self.slots = self._wanted
    return []


def _take_any(self: WarmSlots, attempt: int, slots: int) -> LaunchedSlots | None:
    launched, self._launched = self._launched, None
    return launched


MUTANTS = [
    Mutant(
        "slots that wait are taken, however many they are",
        [(WarmSlots, "take", _take_any)],
        set(),  # what each slot starts from can't be told
    ),
    Mutant(
        "a request that is taken back leaves the sources standing",
        [(Scale, "is_to_change", property(_told_and_forgotten))],
        {Breach.STUCK},
    ),
    Mutant(
        "whoever starts the slots is not told of another number",
        [(Scale, "begin", _untold)],
        {Breach.OFFSETS, Breach.STUCK},
    ),
]


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.title)
def test_mutant_is_killed(mutant: Mutant) -> None:
    with mutated(mutant):
        report = run_seeds(range(400), world_of=rescaling_world)
    assert report.failed_seed is not None, "it survived"
    assert report.breach in mutant.breaches or not mutant.breaches, report.failure
