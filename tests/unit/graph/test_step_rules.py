"""Updates and deletes go only where they are known; elsewhere the graph is refused in one sentence."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import polars as pl
import pyarrow as pa
import pytest

from onceflow.runtime.api.graph_builder import JobGraphBuilder
from onceflow.runtime.api.stream import Stream
from onceflow.runtime.contracts import WatermarkStrategy
from onceflow.runtime.errors import GraphError
from onceflow.runtime.graph.job_graph import JobGraph
from onceflow.runtime.operators.aggregation.aggregates import count
from onceflow.runtime.operators.assigners.tumbling import tumbling
from onceflow.runtime.testing.connectors.folder_source import FolderSource
from onceflow.runtime.testing.connectors.folder_table import FolderTable

SCHEMA = pa.schema([("user", pa.string()), ("ts", pa.int64())])
CHANGES = FolderTable("/nowhere", takes_kinds=True)
ROWS = FolderTable("/nowhere")


@dataclass(frozen=True, slots=True)
class Purchase:
    user: str
    ts: int


def same(purchase: Purchase) -> Purchase:
    return purchase


def built(make: Callable[[Stream[Any]], Stream[Any]], sink: FolderTable, has_kinds: bool = True) -> JobGraph:
    job = JobGraphBuilder("job", max_parallelism=4)
    source = FolderSource("/nowhere", SCHEMA, has_kinds=has_kinds, record_type=Purchase)
    stream = job.source(source, WatermarkStrategy.monotonous("ts"), uid="changes")
    make(stream).sink_to(sink, uid="out")
    return job.build()


def test_stateless_steps_pass_them_on_to_a_sink_that_takes_them() -> None:
    def steps(stream: Stream[Any]) -> Stream[Any]:
        kept = stream.map(same).filter(pl.col("ts") > 0).select("user", "ts")
        return kept.union(stream)

    graph = built(steps, CHANGES)
    assert graph.edges
    assert all(edge.has_kinds for edge in graph.edges)
    assert not any(edge.has_kinds for edge in built(steps, CHANGES, has_kinds=False).edges)


def test_a_sink_that_does_not_know_them_refuses() -> None:
    with pytest.raises(GraphError) as refusal:
        built(lambda stream: stream.select("user"), ROWS)
    assert str(refusal.value) == (
        "sink 'out' would write the updates and deletes of 'changes' as if they were new rows: write them to "
        "a sink that takes changes, or read the source without them"
    )
    assert built(lambda stream: stream.select("user"), ROWS, has_kinds=False)


@pytest.mark.parametrize(
    ("make", "said"),
    [
        (
            lambda stream: stream.key_by("user").window(tumbling("1 s")).aggregate(n=count(), uid="totals"),
            r"'totals' .* would take the updates and deletes of 'changes' for new rows: only map",
        ),
        (
            lambda stream: stream.map_batches(lambda batch: batch, SCHEMA, uid="whole"),
            r"'whole' .* would take the updates and deletes of 'changes' for new rows: only map",
        ),
        (
            lambda stream: stream.select("user").rebalance(),
            r"\(rebalance\) would bring the updates and deletes of 'changes' out of their order",
        ),
    ],
    ids=["a window", "a function over batches", "a rebalance"],
)
def test_what_does_not_know_them_refuses(make: Callable[[Stream[Any]], Stream[Any]], said: str) -> None:
    with pytest.raises(GraphError, match=said):
        built(make, CHANGES)
    assert built(make, CHANGES, has_kinds=False)


def test_a_window_that_updates_its_results_is_refused_by_a_sink_of_rows() -> None:
    def windows(results: str) -> Callable[[Stream[Any]], Stream[Any]]:
        return lambda stream: (
            stream.key_by("user")
            .window(tumbling("10 s"))
            .allowed_lateness("1 min", results=results)  # type: ignore[arg-type]
            .aggregate(n=count(), uid="counts")
        )

    with pytest.raises(GraphError) as refusal:
        built(windows("retracting"), ROWS, has_kinds=False)
    assert str(refusal.value) == (
        "sink 'out' would write the updates and deletes of 'counts' as if they were new rows: write them to "
        'a sink that takes changes, or let the window send rows only: results="accumulating" in its '
        "allowed_lateness or trigger"
    )
    assert built(windows("retracting"), CHANGES, has_kinds=False)
    assert built(windows("discarding"), ROWS, has_kinds=False)
