"""The whole job with crashes everywhere, its source a queue that forgets what was acknowledged."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import pytest

from onceflow.runtime.contracts import ReaderContext, SourceReader, SplitState
from onceflow.runtime.graph.job_graph import JobGraph
from onceflow.runtime.records import Barrier
from onceflow.runtime.slot.slot_tasks import SlotTasks
from onceflow.runtime.slot.source_task import SourceTask
from onceflow.runtime.testing.mutation import Mutant, hunt, killed_by, wrong_on_fair_days
from onceflow.runtime.testing.sim_broker import SimSink
from onceflow.runtime.testing.sim_job import SimReader, SimSource, sim_graph
from onceflow.runtime.testing.simulation import run_exhaustive, run_seeds
from onceflow.runtime.testing.violations import Breach, Violation

SEEDS = 400


@dataclass(frozen=True)
class QueueSimSource(SimSource):
    """`gone`: how many records of each split were acknowledged, and in which attempt. Durable."""

    gone: dict[str, tuple[int, int]] = field(default_factory=dict)

    def open_reader(self, context: ReaderContext) -> SourceReader:
        return QueueSimReader(self, context.attempt)


class QueueSimReader(SimReader):
    def __init__(self, source: QueueSimSource, attempt: int) -> None:
        super().__init__(source.input, source.choices)
        self._gone = source.gone
        self._attempt = attempt
        self._frozen: dict[int, dict[str, int]] = {}

    def add_splits(self, splits: Sequence[SplitState]) -> None:
        """A zombie that only starts now may be behind: nobody takes what it reads."""
        for split in splits:
            at, (gone, attempt) = split.position["next_offset"], self._gone.get(split.split_id, (0, 0))
            if at < gone and self._attempt >= attempt:
                raise Violation(Breach.LOST, f"{split.split_id} is at {at}, and {gone} are acknowledged")
        super().add_splits(splits)

    def on_barrier(self, checkpoint_id: int) -> None:
        self._frozen[checkpoint_id] = dict(self._next)

    def on_completed(self, checkpoint_id: int) -> None:
        for split, offset in self._frozen[checkpoint_id].items():
            self._gone[split] = max((offset, self._attempt), self._gone.get(split, (0, 0)))


def queue_graph(
    source: SimSource, sink: SimSink, max_parallelism: int, has_real_windows: bool = False
) -> JobGraph:
    return sim_graph(QueueSimSource(source.input, source.choices), sink, max_parallelism, has_real_windows)


def test_every_crash_at_every_point_of_the_tiny_job() -> None:
    report = run_exhaustive(deviations_max=0, graph=queue_graph)
    assert not report.failure
    assert report.runs > 400


@pytest.mark.parametrize("seeds", [150, pytest.param(SEEDS, marks=pytest.mark.soak)])
def test_seeds_with_crashes(seeds: int) -> None:
    report = run_seeds(range(seeds), queue_graph)
    assert report.failed_seed is None, f"{report.failure}; seed {report.failed_seed} with queue_graph"


def acknowledge_at_the_barrier(self: SourceTask, barrier: Barrier) -> None:
    original_on_barrier(self, barrier)
    self._reader.on_completed(barrier.checkpoint_id)  # type: ignore[attr-defined]


original_on_barrier = SourceTask._on_barrier


def acknowledge_what_was_read_since(self: SlotTasks, checkpoint_id: int) -> None:
    """All that was read by now, and not what the checkpoint has."""
    for reader in self.readers.values():
        reader.on_barrier(checkpoint_id)  # type: ignore[attr-defined]
    original_commit(self, checkpoint_id)


original_commit = SlotTasks.commit
MUTANTS = (
    Mutant(
        "acknowledged before the checkpoint is durable",
        [(SourceTask, "_on_barrier", acknowledge_at_the_barrier)],
        {Breach.LOST},
        graph=queue_graph,
    ),
    Mutant(
        "acknowledged what came after the barrier",
        [(SlotTasks, "commit", acknowledge_what_was_read_since)],
        {Breach.LOST},
        graph=queue_graph,
    ),
)


KNOWN_SEEDS = {
    "acknowledged before the checkpoint is durable": 13,
    "acknowledged what came after the barrier": 14,
}
"""Each the first to kill its mutant when somebody looked last; seed 0 kills the others, or the hunt."""


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.title)
def test_mutant_is_killed(mutant: Mutant) -> None:
    is_killed = killed_by(mutant, KNOWN_SEEDS.get(mutant.title, 0)) or hunt(mutant, SEEDS).by
    assert is_killed, f"{mutant.title} survived"
    assert not wrong_on_fair_days(mutant, range(5))
