"""The whole job with crashes everywhere, sums by window kept in state with a time to live.

An entry lives just long enough for its window's timer. What has expired is shown by the job itself, as a
row that nobody expects.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from onceflow.runtime.graph.job_graph import (
    ByKey,
    Chain,
    Edge,
    InChain,
    JobGraph,
    OperatorNode,
    SinkNode,
    ToEdge,
)
from onceflow.runtime.operators.operator import MAIN
from onceflow.runtime.operators.processing.keyed_process import Ctx, KeyedProcess
from onceflow.runtime.operators.processing.process import ProcessConfig
from onceflow.runtime.state.expiring_items import ExpiringItems
from onceflow.runtime.state.handles import MapState
from onceflow.runtime.state.overflow import UNLIMITED, StateBackend
from onceflow.runtime.state.rocks import frozen_tiers
from onceflow.runtime.state.rocks.rocks_units import RocksUnits
from onceflow.runtime.state.timers import Timer
from onceflow.runtime.testing.choices import SeededChoices
from onceflow.runtime.testing.mutation import Mutant, mutated
from onceflow.runtime.testing.sim_broker import SimSink
from onceflow.runtime.testing.sim_job import RECORD_SCHEMA, SimRecord, SimSource, sim_graph
from onceflow.runtime.testing.sim_rows import WINDOW_MS, window_end
from onceflow.runtime.testing.sim_world import SimWorld
from onceflow.runtime.testing.simulation import draw_options
from onceflow.runtime.testing.tight_state import INCREMENTAL, tight_rocksdb
from onceflow.runtime.testing.violations import Breach, Violation
from onceflow.runtime.types.columns_of_records import RecordWriter
from onceflow.runtime.types.record_types import arrow_schema
from onceflow.runtime.types.records_of_columns import RecordReader

SEEDS = (30, 41, 53, 75, 85, 87, 114, 121, 130, 132, 147, 350)
"""Runs in which windows that are open are restored; in the last one a record comes long after."""
TTL_MS = WINDOW_MS + 1


@dataclass(frozen=True, slots=True)
class Total:
    key: int
    window_start: int
    window_end: int
    count: int
    total: int


@dataclass(frozen=True, slots=True)
class Sums:
    count: int
    total: int
    written_ms: int


class Totals(KeyedProcess[int, SimRecord, Total]):
    windows = MapState("windows", int, Sums, ttl=TTL_MS)

    def process(self, record: SimRecord, ctx: Ctx) -> Iterator[Total]:
        for end, sums in self.windows.items():
            if record.ts >= sums.written_ms + TTL_MS:
                yield Total(record.key, end, end, -1, -1)  # it has expired, and is here
        end = window_end(record.ts)
        before = self.windows.get(end) or Sums(0, 0, 0)
        sums = Sums(before.count + 1, before.total + record.value, max(before.written_ms, record.ts))
        self.windows.put(end, sums)
        ctx.timers.event_time(end - 1)

    def on_timer(self, fired: Timer, ctx: Ctx) -> Iterator[Total]:
        end = fired.time + 1
        sums = self.windows.get(end) or Sums(0, 0, 0)
        yield Total(ctx.key, end - WINDOW_MS, end, sums.count, sums.total)


def ttl_graph(source: SimSource, sink: SimSink, max_parallelism: int, has_real_windows: bool) -> JobGraph:
    graph = sim_graph(source, sink, max_parallelism)
    made = arrow_schema(Total)
    writer, reader = RecordWriter(made), RecordReader(SimRecord)
    config = ProcessConfig("windows", Totals(), ("key",), RECORD_SCHEMA, writer, reader, True)
    to: Any = {MAIN: [InChain("totals")]}
    node = OperatorNode("windows", "windows", config.create, made, to, state=config.description)
    chain = Chain(2, "windows", {"windows": node, "totals": SinkNode("totals", sink, made)})
    edge = Edge(1, 0, 2, ByKey(("key",)), RECORD_SCHEMA, True, False)
    graph.chains[0].nodes["src"].outputs[MAIN].append(ToEdge(1))  # type: ignore[union-attr, attr-defined]
    return JobGraph("simulated", [*graph.chains, chain], [*graph.edges, edge], max_parallelism)


def run_seed(seed: int, state: StateBackend = UNLIMITED) -> None:
    choices = SeededChoices(seed)
    options = replace(draw_options(choices), has_real_windows=True, state=state)
    SimWorld(choices, options, ttl_graph).run()


def test_seeds_with_crashes() -> None:
    for seed in SEEDS:
        run_seed(seed, INCREMENTAL)


def test_seeds_with_crashes_and_the_state_in_rocksdb() -> None:
    with tight_rocksdb(rows_in_memory=1) as state:
        for seed in SEEDS[:2]:
            run_seed(seed, state)


def restored_for_good(self: ExpiringItems, rows: Any, times: pa.Array) -> None:
    """What is restored expires much later than it did."""
    for row, of_row in zip(rows.tolist(), times.to_pylist(), strict=True):
        if of_row is not None:
            self._set_times(row, [time + 1_000 for time in of_row])


def forget_the_times(self: ExpiringItems) -> Any:
    """The snapshot does not say when anything expires: as if it had long."""
    return lambda rows: pa.array([None] * len(rows), pa.list_(pa.int64()))


MUTANTS = (
    Mutant(
        "what has expired is there after a restore",
        [(ExpiringItems, "load_times", restored_for_good)],
        {Breach.WRONG},
    ),
    Mutant(
        "the snapshot is without times", [(ExpiringItems, "freeze_times", forget_the_times)], {Breach.WRONG}
    ),
)


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.title)
def test_mutant_is_killed(mutant: Mutant) -> None:
    with mutated(mutant), pytest.raises(Violation) as found:
        test_seeds_with_crashes()
    assert found.value.breach in mutant.breaches


def never_wakes(self: RocksUnits, kind: int, rows: Any, times: Any) -> None:
    """A row that goes does not say when it has to come back."""


def only_what_is_here(self: RocksUnits, max_parallelism: int) -> Any:
    """The snapshot is without the rows that are away."""
    return self._table.freeze(max_parallelism)


def as_it_was(some: Any, among: Any) -> Any:
    """A row that is in memory, too, is in the snapshot a second time, as it was when it last went."""
    return np.zeros(len(some), np.bool_)


ROCKS_MUTANTS = (
    Mutant(
        "timers of keys that are away don't fire", [(RocksUnits, "_put_wakes", never_wakes)], {Breach.LOST}
    ),
    Mutant("a snapshot is of what is in memory", [(RocksUnits, "freeze", only_what_is_here)], {Breach.LOST}),
)


@pytest.mark.parametrize("mutant", ROCKS_MUTANTS, ids=lambda mutant: mutant.title)
def test_mutant_of_rocksdb_is_killed(mutant: Mutant) -> None:
    with mutated(mutant), pytest.raises(Violation) as found:
        test_seeds_with_crashes_and_the_state_in_rocksdb()
    assert found.value.breach in mutant.breaches


def test_a_snapshot_that_has_rows_twice_is_refused_when_it_is_restored() -> None:
    mutant = Mutant("a snapshot has rows twice", [(frozen_tiers, "are_among", as_it_was)])
    with mutated(mutant), pytest.raises(AssertionError, match="is in one restored state only"):
        test_seeds_with_crashes_and_the_state_in_rocksdb()
