"""The whole job with crashes everywhere, its source one that prunes finished splits."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import pytest

from onceflow.runtime.checkpoint.manifest import CheckpointManifest
from onceflow.runtime.contracts import SplitState
from onceflow.runtime.driver.enumerators import Enumerators
from onceflow.runtime.graph.job_graph import JobGraph
from onceflow.runtime.records import Barrier
from onceflow.runtime.slot.source_task import SourceTask
from onceflow.runtime.testing.mutation import Mutant, hunt, killed_by, wrong_on_fair_days
from onceflow.runtime.testing.sim_broker import SimSink
from onceflow.runtime.testing.sim_job import SimEnumerator, SimSource, sim_graph
from onceflow.runtime.testing.simulation import run_exhaustive, run_seeds
from onceflow.runtime.testing.violations import Breach

SEEDS = 400


class PruningSimEnumerator(SimEnumerator):
    def discover_unfinished(self, known: frozenset[str], finished: Any) -> Sequence[SplitState]:
        return []


@dataclass(frozen=True)
class PruningSimSource(SimSource):
    """Remembers each finished split with its end, so that the checker can tell what was read."""

    def open_enumerator(self, job: str, clock: Any) -> PruningSimEnumerator:
        return PruningSimEnumerator(self.input)

    def add_finished(self, finished: Any, splits: Sequence[SplitState]) -> Any:
        return {**(finished or {}), **{s.split_id: s.position["next_offset"] for s in splits}}


def pruning_graph(
    source: SimSource, sink: SimSink, max_parallelism: int, has_real_windows: bool = False
) -> JobGraph:
    pruning = PruningSimSource(source.input, source.choices)
    return sim_graph(pruning, sink, max_parallelism, has_real_windows)


def test_every_crash_at_every_point_of_the_tiny_job() -> None:
    report = run_exhaustive(deviations_max=0, graph=pruning_graph)
    assert not report.failure
    assert report.runs > 400


@pytest.mark.parametrize("seeds", [150, pytest.param(SEEDS, marks=pytest.mark.soak)])
def test_seeds_with_crashes(seeds: int) -> None:
    report = run_seeds(range(seeds), pruning_graph)
    assert report.failed_seed is None, f"{report.failure}; seed {report.failed_seed} with pruning_graph"


# --- Mutants ------------------------------------------------------------------------------------------


def prune_and_forget(
    self: Enumerators, manifest: CheckpointManifest, finished: Mapping[str, Any]
) -> CheckpointManifest:
    """The value of the checkpoint before is not taken along."""
    return original_prune(self, manifest, {})


original_prune = Enumerators.prune


def prune_what_is_open(
    self: Enumerators, manifest: CheckpointManifest, finished: Mapping[str, Any]
) -> CheckpointManifest:
    """A split counts as finished as soon as a checkpoint has it."""
    all_done = {"src": [replace(p, is_finished=True) for p in manifest.splits["src"]]}
    return original_prune(self, replace(manifest, splits=all_done), finished)


def forget_at_the_barrier(self: SourceTask, barrier: Barrier) -> None:
    """The slot lets go of finished splits before the checkpoint is durable."""
    original_on_barrier(self, barrier)
    self._forget({split for split, is_finished in self._finished.items() if is_finished})


original_on_barrier = SourceTask._on_barrier

OFFSETS, LOST = {Breach.OFFSETS}, {Breach.LOST}
FORGOTTEN = (Enumerators, "prune", prune_and_forget)
TOO_MANY = (Enumerators, "prune", prune_what_is_open)
TOO_EARLY = (SourceTask, "_on_barrier", forget_at_the_barrier)
MUTANTS = (
    Mutant(
        "what was remembered is lost", [FORGOTTEN], OFFSETS, is_right_on_fair_days=False, graph=pruning_graph
    ),
    Mutant(
        "open splits are pruned", [TOO_MANY], OFFSETS | LOST, is_right_on_fair_days=False, graph=pruning_graph
    ),
    Mutant("forgotten at the barrier", [TOO_EARLY], OFFSETS, graph=pruning_graph),
)


KNOWN_SEEDS = {"forgotten at the barrier": 1, "open splits are pruned": 14}
"""Each the first to kill its mutant when somebody looked last; seed 0 kills the others, or the hunt."""


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.title)
def test_mutant_is_killed(mutant: Mutant) -> None:
    is_killed = killed_by(mutant, KNOWN_SEEDS.get(mutant.title, 0)) or hunt(mutant, SEEDS).by
    assert is_killed, f"{mutant.title} survived"
    assert not wrong_on_fair_days(mutant, range(5))
