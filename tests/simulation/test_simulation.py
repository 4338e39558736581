"""The whole job with crashes everywhere: the real coordinator, recovery, slots, tasks and gates.

Goal: whatever crashes, freezes, is late or has no answer, each record counts once, each result is
visible once, and the job comes to its end. Method: runtime/testing/world.py.
"""

from __future__ import annotations

import signal
import subprocess
import sys

import pytest

from onceflow.runtime.slot.source_task import SourceTask
from onceflow.runtime.testing.choices import ReplayedChoices, SeededChoices
from onceflow.runtime.testing.mutants import MUTANTS
from onceflow.runtime.testing.mutation import Mutant, hunt, killed_by, mutated, wrong_on_fair_days
from onceflow.runtime.testing.sim_job import Tally
from onceflow.runtime.testing.sim_world import SimWorld
from onceflow.runtime.testing.simulate import limit_cpu, run_parallel
from onceflow.runtime.testing.simulation import (
    draw_options,
    halting_world,
    run_exhaustive,
    run_seeds,
    seeded_world,
)
from onceflow.runtime.testing.violations import Breach
from onceflow.runtime.testing.world import Crash

RARE_MOVES = {
    "collecting timeout",
    "failure while stopping",
    "late ack of an aborted checkpoint",
    "persist answer of a failed attempt",
    "persist conflict",
    "persist not done",
    "persist unknown",
    "stop while no attempt runs",
}


@pytest.mark.timeout(0)  # a run that never ends is found by the CPU time that it takes: run_parallel
@pytest.mark.parametrize("seeds", [600, pytest.param(10_000, marks=pytest.mark.soak)])
def test_thousands_of_seeds(seeds: int) -> None:
    report = run_parallel(range(seeds), processes=2)
    assert report.failed_seed is None, f"{report.failure}; repeat: make sim SEED={report.failed_seed}"
    assert report.runs == seeds
    assert {crash.name for crash in Crash} <= set(report.crashes), "every kind of crash was tried"
    assert set(report.marks) >= RARE_MOVES, f"never reached: {RARE_MOVES - set(report.marks)}"


def test_a_run_that_never_ends_is_ended_by_the_work_that_it_does() -> None:
    program = f"from {limit_cpu.__module__} import limit_cpu\nlimit_cpu(1)\nwhile True: pass"
    ended = subprocess.run([sys.executable, "-c", program], timeout=480)
    assert ended.returncode == -signal.SIGXCPU


def test_every_crash_at_every_point_of_the_tiny_job() -> None:
    report = run_exhaustive(deviations_max=0)
    assert not report.failure
    assert report.runs > 400


@pytest.mark.parametrize(
    ("crash", "stride"),
    [
        pytest.param(None, 1, id="no crash"),
        pytest.param(Crash.KILL_ALL, 11, id="everything is killed at each 11th point"),
        pytest.param(
            Crash.KILL_ALL, 1, marks=[pytest.mark.soak, pytest.mark.timeout(1800)], id="at each point"
        ),
    ],
)
def test_every_schedule_of_the_tiny_job_with_one_deviation(crash: Crash | None, stride: int) -> None:
    report = run_exhaustive(deviations_max=1, crashes=[crash], stride=stride)
    assert not report.failure


def test_sources_that_stand_still_for_each_checkpoint_lose_and_double_nothing() -> None:
    report = run_seeds(range(120), world_of=halting_world)
    assert report.failed_seed is None, report.failure


def _stands_still_for_ever(self: SourceTask, checkpoint_id: int) -> None: ...


def test_a_source_that_is_not_told_to_go_on_is_found() -> None:
    mutant = Mutant("stands still", [(SourceTask, "resume", _stands_still_for_ever)], {Breach.STUCK})
    with mutated(mutant):
        report = run_seeds(range(20), world_of=halting_world)
    assert report.breach is Breach.STUCK


def test_at_least_once_loses_nothing_either() -> None:
    report = run_seeds(range(120), is_aligned=False)
    assert report.failed_seed is None, report.failure


KNOWN_SEEDS = {
    "a channel unblocked too early": 550,
    "a discard asks nobody": 1,
    "a discard asks the kept manifests only": 1,
    "a stale attempt's ack accepted": 301,
    "an unknown outcome taken for not done": 379,
    "commit before persist": 1,
    "no alignment": 6,
    "output of an aborted checkpoint dropped": 1,
    "restore from the last but one checkpoint": 14,
    "retention deletes what is still named": 3,
    "state goes on changing while it is written": 6,
    "state not redistributed at a rescale": 67,
    "timers not in the snapshot": 6,
    "watermark maximum instead of minimum": 1,
    "what is due is recorded as fired": 9,
}
"""Each the first to kill its mutant when somebody looked last; seed 0 kills most of the others."""


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.title)
def test_mutant_is_killed(mutant: Mutant) -> None:
    """The seed that is known for it kills it, or, if that one does no more, any: the hunt takes seconds."""
    assert mutant.breaches
    is_killed = killed_by(mutant, KNOWN_SEEDS.get(mutant.title, 0)) or hunt(mutant).by
    assert is_killed, f"{mutant.title} survived"


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.title)
def test_on_a_fair_day_a_mutant_breaks_what_it_is_meant_to_or_nothing(mutant: Mutant) -> None:
    """One that fails anyhow, by a mistake in the mutant itself, would be killed by every checker."""
    assert wrong_on_fair_days(mutant, range(8)) == []


def test_a_mutant_that_merely_crashes_is_not_killed() -> None:
    def crashes(self: Tally) -> None:
        raise TypeError("a mistake in the mutant")

    mutant = Mutant("crashes", [(Tally, "snapshot", crashes)], {Breach.STATE}, is_right_on_fair_days=False)
    assert hunt(mutant, seeds_max=3).by == ""
    assert len(wrong_on_fair_days(mutant, range(3))) == 3


def test_a_seed_is_a_run_and_a_list_of_choices_too() -> None:
    first, second = seeded_world(511, is_traced=True), seeded_world(511, is_traced=True)
    first.run()
    second.run()
    assert first.trace == second.trace
    seeded = SeededChoices(7)
    options = draw_options(seeded)
    drawn = len(seeded.taken)
    SimWorld(seeded, options).run()
    replayed = SimWorld(ReplayedChoices(seeded.taken[drawn:]), options)
    replayed.run()
    assert replayed.choices.taken == seeded.taken[drawn:]  # type: ignore[attr-defined]
