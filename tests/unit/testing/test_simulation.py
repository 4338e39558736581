"""A user's job under crashes; and that what is wrong with a job, or with the engine, is found and named."""

from __future__ import annotations

import re

import pytest

from onceflow.runtime.testing.mutants import MUTANTS
from onceflow.runtime.testing.mutation import mutated
from onceflow.testing import SimulationError, simulate
from tests.unit.testing.jobs import Purchase, of_order, totals, with_dice

ROWS = {
    "events-0": [Purchase(f"u{n % 3}", "buy", n, 700 * n) for n in range(24)],
    "events-1": [Purchase(f"u{n % 4}", "buy", n, 900 * n) for n in range(18)],
}


def test_a_job_with_event_time_is_exact_under_crashes() -> None:
    report = simulate(totals(slack="60 s"), {"purchases": ROWS}, seeds=60)
    assert report.runs == 60
    assert sum(report.crashes.values()) > 30, "most of them hit"
    assert len(report.crashes) == 7, "of every kind"
    assert report.rows == {"user-totals": 8, "late": 0}


def test_an_engine_that_is_wrong_is_found_with_the_seed_to_see_it_again() -> None:
    mutant = next(mutant for mutant in MUTANTS if mutant.title == "no re-commit after recovery")
    again = re.compile(r"onceflow\.testing\.simulate\(job, inputs, seeds=\[(\d+)\]\)$")
    job, inputs = totals(slack="60 s"), {"purchases": ROWS}
    with mutated(mutant):
        with pytest.raises(SimulationError, match="is not that of a run without crashes") as found:
            simulate(job, inputs, seeds=200)
        seed = again.search(str(found.value))
        assert seed is not None
        with pytest.raises(SimulationError):
            simulate(job, inputs, seeds=[int(seed[1])])
    assert simulate(job, inputs, seeds=[int(seed[1])]).runs == 1


def test_a_function_that_throws_dice_is_named() -> None:
    with pytest.raises(SimulationError, match="job 'dice' is not deterministic: 'throw' gives other rows"):
        simulate(with_dice(), {"purchases": ROWS}, seeds=1)


def test_a_result_that_depends_on_the_order_of_splits_is_named() -> None:
    with pytest.raises(
        SimulationError, match=r"depends on the order in which splits are read .*'difference'"
    ):
        simulate(of_order(), {"purchases": ROWS}, seeds=1)
