"""The whole job with crashes everywhere, its windows those that stay for late rows."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from onceflow.runtime.graph.job_graph import JobGraph
from onceflow.runtime.operators.assigners.firings import Firings, Results
from onceflow.runtime.state.heap.heap_groups import HeapGroups
from onceflow.runtime.state.number_columns import FlagColumn
from onceflow.runtime.state.overflow import StateBackend
from onceflow.runtime.testing.choices import SeededChoices
from onceflow.runtime.testing.mutation import Mutant, mutated
from onceflow.runtime.testing.sim_broker import SimSink
from onceflow.runtime.testing.sim_job import SimSource, sim_graph
from onceflow.runtime.testing.sim_world import SimWorld
from onceflow.runtime.testing.simulation import draw_options
from onceflow.runtime.testing.tight_state import tight_rocksdb
from onceflow.runtime.testing.violations import Breach, Violation

SEEDS = 60
LATE = Firings(7, Results.ACCUMULATING)


def late_graph(source: SimSource, sink: SimSink, max_parallelism: int, has_real_windows: bool) -> JobGraph:
    return sim_graph(source, sink, max_parallelism, has_real_windows, LATE)


def run_seed(seed: int, state: StateBackend | None = None) -> None:
    choices = SeededChoices(seed)
    options = replace(draw_options(choices), has_real_windows=True)
    SimWorld(choices, options if state is None else replace(options, state=state), late_graph).run()


def test_seeds_with_crashes() -> None:
    for seed in range(SEEDS):
        run_seed(seed)


def test_seeds_with_crashes_and_the_windows_in_rocksdb() -> None:
    with tight_rocksdb(rows_in_memory=1) as state:
        for seed in range(3):
            run_seed(seed, state)


def forget_what_has_fired(self: FlagColumn, live: Any) -> None:
    """The snapshot does not say which windows have sent their result."""


def lose_what_moves(self: HeapGroups, batch: Any) -> Any:
    """The last row of each restored piece is left out."""
    return original_load(self, batch.slice(0, batch.num_rows - 1))


original_load = HeapGroups.load


MUTANTS = (
    Mutant(
        "fired windows are not known any more",
        [(FlagColumn, "freeze", forget_what_has_fired)],
        {Breach.DOUBLED},
    ),
    Mutant("a restored window is left out", [(HeapGroups, "load", lose_what_moves)], {Breach.LOST}),
)


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.title)
def test_mutant_is_killed(mutant: Mutant) -> None:
    with mutated(mutant), pytest.raises(Violation) as found:
        test_seeds_with_crashes()
    assert found.value.breach in mutant.breaches
