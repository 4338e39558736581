"""The whole job with crashes everywhere, its windows those of a trigger."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from onceflow.runtime.graph.job_graph import JobGraph
from onceflow.runtime.operators.assigners.firings import Firings, Results
from onceflow.runtime.operators.triggers.built_in import at_watermark, every_rows
from onceflow.runtime.state.number_columns import FlagColumn, NumberColumn
from onceflow.runtime.testing.choices import SeededChoices
from onceflow.runtime.testing.mutation import Mutant, mutated
from onceflow.runtime.testing.sim_broker import SimSink
from onceflow.runtime.testing.sim_job import SimSource, sim_graph
from onceflow.runtime.testing.sim_world import SimWorld
from onceflow.runtime.testing.simulation import draw_options
from onceflow.runtime.testing.violations import Violation

SEEDS = (30, 41, 53, 75, 85, 87, 114, 121, 130, 132, 147)
"""Runs in which windows that are open are restored."""
NEVER_EARLY = Firings(7, Results.ACCUMULATING, at_watermark(early=every_rows(1 << 20)))
"""Results are those of the watermark alone, by the operator of triggers, whose windows stay for late rows."""


def triggered_graph(
    source: SimSource, sink: SimSink, max_parallelism: int, has_real_windows: bool
) -> JobGraph:
    return sim_graph(source, sink, max_parallelism, has_real_windows, NEVER_EARLY)


def run_seed(seed: int) -> None:
    choices = SeededChoices(seed)
    SimWorld(choices, replace(draw_options(choices), has_real_windows=True), triggered_graph).run()


def test_seeds_with_crashes() -> None:
    for seed in SEEDS:
        run_seed(seed)


def forget_what_has_fired(self: FlagColumn, live: Any) -> None:
    """The snapshot does not say which windows have sent their result."""


def lose_numbers(self: NumberColumn, rows: Any, values: Any) -> None:
    """A restored window does not know how many rows it holds, nor its bounds."""


MUTANTS = (
    Mutant("fired windows are not known any more", [(FlagColumn, "freeze", forget_what_has_fired)]),
    Mutant("a restored window has lost its numbers", [(NumberColumn, "load", lose_numbers)]),
)


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.title)
def test_mutant_is_killed(mutant: Mutant) -> None:
    with mutated(mutant), pytest.raises(Violation):
        test_seeds_with_crashes()
