"""Watermark alignment under crashes: splits wait for each other, nothing is lost, and none waits for ever.

The job is the simulated one, whose input has another pace in each split; a split may be a few ms ahead.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable

import pytest

from onceflow.runtime.graph.job_graph import JobGraph
from onceflow.runtime.slot.event_time import SourceWatermarks
from onceflow.runtime.slot.watermark_alignment import AlignedSplits, GroupsOfAttempt, Lowest, Turn
from onceflow.runtime.testing.mutation import Mutant, hunt, killed_by, mutated, wrong_on_fair_days
from onceflow.runtime.testing.sim_broker import SimSink
from onceflow.runtime.testing.sim_job import TIMES, SimReader, SimSource, sim_graph
from onceflow.runtime.testing.simulation import run_exhaustive, run_seeds
from onceflow.runtime.testing.violations import Breach
from onceflow.runtime.testing.world import Crash

DRIFT_MS = 3


def aligned(source: SimSource, sink: SimSink, max_parallelism: int, has_real_windows: bool) -> JobGraph:
    times = TIMES.with_watermark_alignment(DRIFT_MS)
    return sim_graph(source, sink, max_parallelism, has_real_windows, watermarks=times)


def test_seeds_with_splits_that_wait_for_each_other() -> None:
    pauses = 0
    original = SimReader.pause_splits

    def counted(self: SimReader, split_ids: Collection[str]) -> None:
        nonlocal pauses
        pauses += 1
        original(self, split_ids)

    with mutated(Mutant("counts", [(SimReader, "pause_splits", counted)])):
        report = run_seeds(range(120), aligned)
    assert report.failed_seed is None, report.failure
    assert pauses > 60, pauses


def test_every_crash_at_every_point_of_the_tiny_job() -> None:
    report = run_exhaustive(deviations_max=0, crashes=[None, Crash.KILL_SLOT, Crash.KILL_ALL], graph=aligned)
    assert not report.failure


def _idle_while_paused(self: SourceWatermarks, split_ids: Iterable[str]) -> None:
    for split_id in split_ids:
        self._splits[split_id].is_paused = self._splits[split_id].is_idle = True


def _unfinished(self: SourceWatermarks) -> dict[str, int]:
    return {name: self._watermark_of(split) for name, split in self._splits.items() if not split.is_finished}


def _with_finished(self: SourceWatermarks) -> dict[str, int]:
    return {name: self._watermark_of(split) for name, split in self._splits.items()}


def _told_to_nobody_who_waits(
    self: GroupsOfAttempt, slot: int, lowest_of: Lowest, has_paused: bool
) -> list[int]:
    return [each for each in _report(self, slot, lowest_of, has_paused) if each == slot]


_report = GroupsOfAttempt.report


def _never_resumed(self: AlignedSplits, watermarks: dict[str, int]) -> Turn:
    return Turn(_turn(self, watermarks).pause, frozenset())


_turn = AlignedSplits.turn

MUTANTS = [
    Mutant(
        "a paused split counts as idle",
        [(SourceWatermarks, "pause", _idle_while_paused), (SourceWatermarks, "of_splits", _unfinished)],
        {Breach.LOST, Breach.WRONG, Breach.STATE},
        False,
        aligned,
    ),
    Mutant(
        "a finished split holds the others",
        [(SourceWatermarks, "of_splits", _with_finished)],
        {Breach.STUCK},
        False,
        aligned,
    ),
    Mutant(
        "who waits is told nothing",
        [(GroupsOfAttempt, "report", _told_to_nobody_who_waits)],
        {Breach.STUCK},
        False,
        aligned,
    ),
    Mutant(
        "who was paused stays paused",
        [(AlignedSplits, "turn", _never_resumed)],
        {Breach.STUCK},
        False,
        aligned,
    ),
]
KNOWN_SEEDS = {"a paused split counts as idle": 84}
"""Each the first to kill its mutant when somebody looked last."""


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.title)
def test_mutant_is_killed(mutant: Mutant) -> None:
    is_killed = killed_by(mutant, KNOWN_SEEDS.get(mutant.title, 0)) or hunt(mutant).by
    assert is_killed, f"{mutant.title} survived"


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.title)
def test_on_a_fair_day_a_mutant_breaks_what_it_is_meant_to_or_nothing(mutant: Mutant) -> None:
    assert wrong_on_fair_days(mutant, range(8)) == []
