"""Barriers that overtake, with crashes everywhere: a record is in the state or in flight, and never both.

The checker holds each manifest against the input: what is below its offsets is what the tally has counted and
what is in flight to it, each record once (runtime/testing/checkers.py).
"""

from __future__ import annotations

import pytest

from onceflow.runtime.testing.mutation import Mutant, killed_by, mutated
from onceflow.runtime.testing.overtaking_mutants import OVERTAKING_MUTANTS, TAIL_DOES_NOT_WAIT
from onceflow.runtime.testing.simulation import overtaking_world, run_seeds
from onceflow.runtime.testing.violations import Violation
from onceflow.testing import SimulationError, simulate
from tests.simulation.test_loops import ROWS, carousel

SEEDS_MAX = 400
KNOWN_SEEDS = {
    "the rest of a batch that was cut is forgotten": 29,
    "what comes before the barrier does is not kept": 73,
    "what is behind the barrier is kept too": 14,
    "an older barrier ends what is kept": 198,
    "watermarks overtake what was in flight": 92,
    "rows in flight get key groups that are not theirs": 165,
}
"""Each the first to kill its mutant when somebody looked last; 0 for those that are not here."""


def test_seeds_with_crashes_and_rescales() -> None:
    report = run_seeds(range(150), world_of=overtaking_world)
    assert report.failed_seed is None, f"seed {report.failed_seed}: {report.failure}"
    assert len(report.crashes) == 7, "of every kind"


@pytest.mark.parametrize("mutant", OVERTAKING_MUTANTS, ids=lambda mutant: mutant.title)
def test_mutant_is_killed(mutant: Mutant) -> None:
    """The seed that is known for it kills it, or, if that one does no more, any."""
    known = killed_by(mutant, KNOWN_SEEDS.get(mutant.title, 0), overtaking_world)
    seeds = range(0 if known else SEEDS_MAX)
    assert known or any(killed_by(mutant, seed, overtaking_world) for seed in seeds), "it survived"


def test_what_goes_round_is_in_the_log_or_in_flight() -> None:
    report = simulate(carousel(), ROWS, seeds=10, barriers="unaligned")
    assert report.rows == {"done": 34}


def test_the_end_of_a_loop_that_does_not_wait_for_its_head_is_found() -> None:
    with mutated(TAIL_DOES_NOT_WAIT), pytest.raises((SimulationError, Violation)):
        simulate(carousel(), ROWS, seeds=10, barriers="unaligned")
