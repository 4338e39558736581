"""The whole job with crashes everywhere, its windows those of an assigner of the user's, with sketches."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pyarrow as pa
import pytest

from onceflow.runtime.graph.job_graph import JobGraph
from onceflow.runtime.operators.aggregation.aggregates import approx_count_distinct, sum_
from onceflow.runtime.operators.aggregation.sketches import Sketches
from onceflow.runtime.operators.assigners.own_windows import WindowAssigner
from onceflow.runtime.testing.choices import SeededChoices
from onceflow.runtime.testing.mutation import Mutant, mutated
from onceflow.runtime.testing.sim_broker import SimSink
from onceflow.runtime.testing.sim_job import SimSource, sim_graph
from onceflow.runtime.testing.sim_rows import WINDOW_MS
from onceflow.runtime.testing.sim_world import SimWorld
from onceflow.runtime.testing.simulation import draw_options
from onceflow.runtime.testing.violations import Breach, Violation

SEEDS = (30, 41, 53, 75, 85, 87, 114, 121, 130, 132, 147)
"""Runs in which windows that are open are restored."""


class Tumbling(WindowAssigner):
    """What the job's windows are otherwise."""

    def assign(self, batch: pa.RecordBatch, event_time: Any) -> Any:
        starts = event_time // WINDOW_MS * WINDOW_MS
        return starts, starts + WINDOW_MS


def own_graph(source: SimSource, sink: SimSink, max_parallelism: int, has_real_windows: bool) -> JobGraph:
    """The job whose records are counted by a sketch: exactly, since there are few."""
    aggregates = {"count": approx_count_distinct("id"), "total": sum_("value")}
    return sim_graph(
        source, sink, max_parallelism, has_real_windows, window=Tumbling(), aggregates=aggregates
    )


def test_seeds_with_crashes() -> None:
    for seed in SEEDS:
        choices = SeededChoices(seed)
        SimWorld(choices, replace(draw_options(choices), has_real_windows=True), own_graph).run()


def load_nothing(self: Sketches, rows: Any, state: Any) -> None:
    """What a restored window has counted is forgotten."""


def test_sketches_that_are_not_restored_are_found() -> None:
    mutant = Mutant("sketches are not restored", [(Sketches, "load", load_nothing)], {Breach.WRONG})
    with mutated(mutant), pytest.raises(Violation) as found:
        test_seeds_with_crashes()
    assert found.value.breach in mutant.breaches
