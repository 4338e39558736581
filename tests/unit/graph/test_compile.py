"""Steps to chains and exchanges: what is fused, what crosses, which columns are read, who says where from."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import polars as pl
import pyarrow as pa
import pytest

from onceflow.runtime.api.graph_builder import JobGraphBuilder
from onceflow.runtime.api.stream import Stream
from onceflow.runtime.contracts import DEAD_LETTER_SCHEMA, WatermarkStrategy
from onceflow.runtime.errors import GraphError
from onceflow.runtime.graph.job_graph import (
    ByKey,
    Chain,
    Forward,
    InChain,
    JobGraph,
    OperatorNode,
    Rebalance,
    SourceNode,
    ToEdge,
)
from onceflow.runtime.operators.aggregation.aggregates import AggregateFunction, count, sum_
from onceflow.runtime.operators.assigners.tumbling import tumbling
from onceflow.runtime.operators.operator import MAIN
from onceflow.runtime.operators.processing.keyed_process import Ctx, KeyedProcess
from onceflow.runtime.records import Records
from onceflow.runtime.testing.harness import LONE_SUBTASK

col = pl.col


@dataclass(frozen=True, slots=True)
class Purchase:
    user: str
    type: str
    amount: int
    ts: int
    item: str


@dataclass(frozen=True, slots=True)
class UserAmount:
    user: str
    amount: int


@dataclass(frozen=True, slots=True)
class Total:
    user: str
    total: int


def to_total(purchase: UserAmount) -> Total:
    return Total(purchase.user, purchase.amount)


def is_large(purchase: Purchase) -> bool:
    return purchase.amount > 10


class Pass(KeyedProcess[str, UserAmount, Total]):
    def process(self, record: UserAmount, ctx: Ctx) -> Iterator[Total]:
        yield Total(record.user, record.amount)


class Longest(AggregateFunction[Purchase, int, int]):
    def create_accumulator(self) -> int:
        return 0

    def add(self, value: Purchase, accumulator: int) -> int:
        return max(len(value.item), accumulator)

    def merge(self, accumulator_a: int, accumulator_b: int) -> int:
        return max(accumulator_a, accumulator_b)

    def get_result(self, accumulator: int) -> int:
        return accumulator


@pytest.fixture
def job() -> JobGraphBuilder:
    return JobGraphBuilder("totals", max_parallelism=32)


@pytest.fixture
def purchases(job: JobGraphBuilder, list_source: Any) -> Stream[Purchase]:
    return job.source(list_source(Purchase), WatermarkStrategy.monotonous("ts"), uid="purchases")


def uids(graph: JobGraph) -> list[list[str]]:
    return [list(chain.nodes) for chain in graph.chains]


def source_columns(graph: JobGraph) -> list[str]:
    return list(graph.sources()[0].source.schema.names)


def node(graph: JobGraph, uid: str) -> Any:
    return next(c.nodes[uid] for c in graph.chains if uid in c.nodes)


class Collect:
    def __init__(self) -> None:
        self.rows: list[dict[str, Any]] = []

    def emit(self, records: Records, tag: str = MAIN) -> None:
        self.rows += records.batch.to_pylist()


def run_chain(chain: Chain, batch: pa.RecordBatch) -> dict[int, list[dict[str, Any]]]:
    """Push a batch through a chain's operators as the task does; what leaves, by edge."""
    left: dict[int, list[dict[str, Any]]] = {}

    def push(uid: str, records: Records) -> None:
        this = chain.nodes[uid]
        if isinstance(this, SourceNode):
            out = Collect()
            emitted = [records]
        else:
            assert isinstance(this, OperatorNode)
            operator = this.create()
            emitted = []
            out = Collect()
            out.emit = lambda r, tag=MAIN: emitted.append(r)  # type: ignore[method-assign,misc,assignment]
            operator.open(LONE_SUBTASK, out)
            operator.on_records(records)
            assert all(r.batch.schema == this.schema for r in emitted)
        for target in this.outputs.get(MAIN, ()):
            for r in emitted:
                if isinstance(target, InChain):
                    push(target.uid, r)
                else:
                    left.setdefault(target.edge_id, []).extend(r.batch.to_pylist())

    push(chain.head, Records(batch, np.arange(batch.num_rows)))
    return left


def test_the_main_job_is_two_chains_with_one_exchange(
    job: JobGraphBuilder, purchases: Stream[Any], sink: Any
) -> None:
    totals = purchases.filter(col("type") != "refund").key_by("user").window(tumbling("10 s"))
    totals.aggregate(uid="window", count=count(), total=sum_("amount")).sink_to(sink, uid="out")
    graph = job.build()
    assert uids(graph) == [["purchases", "purchases.filter"], ["window", "out"]]
    (edge,) = graph.edges
    assert (edge.upstream, edge.downstream, edge.partitioning) == (0, 1, ByKey(("user",)))
    assert edge.schema.names == ["user", "amount"]
    assert edge.has_event_time
    assert not edge.with_origin
    assert source_columns(graph) == ["user", "type", "amount", "ts"]
    assert not graph.sources()[0].with_origin
    assert graph.max_parallelism == 32
    assert sink.checked["out"] == ["user", "window_start", "window_end", "count", "total"]


def test_only_columns_that_somebody_reads_are_read(
    job: JobGraphBuilder, purchases: Stream[Any], sink: Any
) -> None:
    purchases.with_columns(double=col("amount") * 2, low=col("type").str.to_lowercase()).select(
        "user", "double"
    ).sink_to(sink)
    graph = job.build()
    assert source_columns(graph) == ["user", "amount", "ts"]  # ts is the event time
    assert uids(graph) == [["purchases", "purchases.with_columns", "purchases.sink"]]
    assert node(graph, "purchases.with_columns").name == "with_columns, select"


def test_a_function_gets_the_columns_of_its_type(
    job: JobGraphBuilder, purchases: Stream[Any], sink: Any
) -> None:
    purchases.map(to_total).sink_to(sink)
    assert source_columns(job.build()) == ["user", "amount", "ts"]
    purchases.filter(is_large).select("user").sink_to(sink)
    assert source_columns(job.build()) == ["user", "type", "amount", "ts", "item"]


def test_rows_say_where_they_came_from_only_if_a_function_may_fail_on_them(
    job: JobGraphBuilder, purchases: Stream[Any], list_source: Any, sink: Any
) -> None:
    plain = job.source(list_source(Purchase), WatermarkStrategy.monotonous("ts"), uid="plain")
    plain.key_by("user").window(tumbling("1 s")).aggregate(uid="w", n=count()).map(window_total).sink_to(sink)
    purchases.filter(col("amount") > 1).key_by("user").process(Pass(), uid="pass").sink_to(sink)
    graph = job.build()
    assert {s.uid: s.with_origin for s in graph.sources()} == {"plain": False, "purchases": True}
    assert {graph.chain(e.downstream).head: e.with_origin for e in graph.edges} == {"w": False, "pass": True}


def window_total(window: UserCount) -> Total:
    return Total(window.user, window.n)


@dataclass
class UserCount:
    user: str
    n: int


def test_a_users_aggregate_gets_whole_records(
    job: JobGraphBuilder, purchases: Stream[Any], sink: Any
) -> None:
    purchases.key_by("user").window(tumbling("1 s")).aggregate(n=Longest()).sink_to(sink)
    graph = job.build()
    assert graph.edges[0].schema.names == ["user", "type", "amount", "ts", "item"]
    assert graph.edges[0].with_origin


def test_late_rows_need_all_columns_only_if_somebody_takes_them(
    job: JobGraphBuilder, purchases: Stream[Any], sink: Any
) -> None:
    windowed = purchases.key_by("user").window(tumbling("1 s")).late_to("too-late")
    totals = windowed.aggregate(uid="window", n=count())
    totals.sink_to(sink, uid="out")
    assert job.build().edges[0].schema.names == ["user"]
    totals.side_output("too-late").select("item").sink_to(sink, uid="late")
    graph = job.build()
    assert graph.edges[0].schema.names == ["user", "type", "amount", "ts", "item"]
    window = node(graph, "window")
    assert window.outputs["late"] == [InChain("window.select")]
    assert window.side_schemas["late"].names == purchases.schema.names
    assert sink.checked["late"] == ["item"]


def test_a_union_is_several_edges(job: JobGraphBuilder, list_source: Any, sink: Any) -> None:
    one, two = (job.source(list_source(Purchase), WatermarkStrategy.monotonous("ts"), uid=u) for u in "ab")
    one.union(two).select("user").sink_to(sink, uid="out")
    graph = job.build()
    assert uids(graph) == [
        ["a", "a.union.columns"],
        ["b", "a.union.columns-2"],
        ["a.union", "a.select", "out"],
    ]
    assert [(e.upstream, e.downstream, e.partitioning) for e in graph.edges] == [
        (0, 2, Forward()),
        (1, 2, Forward()),
    ]
    assert [e.schema.names for e in graph.edges] == [["user"], ["user"]]


def test_a_keyed_union_crosses_one_exchange_only(job: JobGraphBuilder, list_source: Any, sink: Any) -> None:
    one, two = (job.source(list_source(Purchase), WatermarkStrategy.monotonous("ts"), uid=u) for u in "ab")
    one.union(two.filter(is_large)).key_by("user").window(tumbling("1 s")).aggregate(
        uid="w", n=count()
    ).sink_to(sink, uid="out")
    graph = job.build()
    assert uids(graph) == [["a", "w.columns"], ["b", "b.filter-is_large", "w.columns-2"], ["w", "out"]]
    assert [e.partitioning for e in graph.edges] == [ByKey(("user",)), ByKey(("user",))]


def test_rebalance_begins_a_chain(job: JobGraphBuilder, purchases: Stream[Any], sink: Any) -> None:
    purchases.rebalance().map(to_total).sink_to(sink, uid="out")
    graph = job.build()
    assert [chain.head for chain in graph.chains] == ["purchases", "purchases.rebalance"]
    assert graph.edges[0].partitioning == Rebalance()
    assert graph.edges[0].with_origin


def test_a_stream_with_two_readers_is_not_fused_over_the_fork(
    job: JobGraphBuilder, purchases: Stream[Any], sink: Any
) -> None:
    kept = purchases.filter(col("amount") > 1)
    kept.select("user").sink_to(sink, uid="one")
    kept.select("item").sink_to(sink, uid="two")
    graph = job.build()
    assert node(graph, "purchases").outputs[MAIN] == [InChain("purchases.filter")]
    assert node(graph, "purchases.filter").outputs[MAIN] == [
        InChain("purchases.select"),
        InChain("purchases.select-2"),
    ]
    assert node(graph, "purchases.filter").schema.names == ["user", "item"]


def test_a_keyed_stream_may_be_used_twice(job: JobGraphBuilder, purchases: Stream[Any], sink: Any) -> None:
    keyed = purchases.key_by(col("user").str.to_lowercase().alias("low"))
    keyed.window(tumbling("1 s")).aggregate(uid="w", n=count()).sink_to(sink, uid="one")
    keyed.process(Pass(), uid="p").sink_to(sink, uid="two")
    graph = job.build()
    assert [(graph.chain(e.downstream).head, e.schema.names) for e in graph.edges] == [
        ("w", ["low"]),
        ("p", ["user", "amount", "low"]),
    ]
    batch = pa.record_batch(
        {"user": ["Ann", "BOB"], "amount": [1, 2]}, schema=graph.edges[1].schema.remove(2)
    )
    left = run_chain(graph.chains[0], batch)
    assert left == {
        0: [{"low": "ann"}, {"low": "bob"}],
        1: [{"user": "Ann", "amount": 1, "low": "ann"}, {"user": "BOB", "amount": 2, "low": "bob"}],
    }


def test_a_function_can_be_the_key(job: JobGraphBuilder, purchases: Stream[Any], sink: Any) -> None:
    purchases.key_by(first_letter).window(tumbling("1 s")).aggregate(uid="w", n=count()).sink_to(sink)
    graph = job.build()
    assert graph.edges[0].partitioning == ByKey(("key",))
    columns = {"user": ["Ann", "Bob"], "amount": [1, 2], "ts": [1, 2]}
    batch = pa.record_batch(columns, schema=graph.sources()[0].source.schema)
    assert run_chain(graph.chains[0], batch) == {0: [{"key": "A"}, {"key": "B"}]}


def first_letter(purchase: UserAmount) -> str:
    return purchase.user[0]


def test_dead_letters_have_a_sink_in_the_same_chain(
    job: JobGraphBuilder, list_source: Any, sink: Any
) -> None:
    job.source(list_source(Purchase, dead_letters=sink), uid="p").sink_to(sink, uid="out")
    graph = job.build()
    assert uids(graph) == [["p", "p.dead-letters", "out"]]
    assert node(graph, "p").outputs["dead-letters"] == [InChain("p.dead-letters")]
    assert node(graph, "p.dead-letters").schema == DEAD_LETTER_SCHEMA
    assert "reason" in sink.checked["p.dead-letters"]


def test_a_sink_knows_the_columns_of_its_rows(job: JobGraphBuilder, list_source: Any, sink: Any) -> None:
    purchases = job.source(list_source(Purchase), uid="p")
    purchases.select("user", "ts").sink_to(sink, uid="some")
    watermarks = WatermarkStrategy.monotonous("ts")
    timed = job.source(list_source(Purchase), watermarks, uid="timed")
    counts = timed.key_by("user").window(tumbling("1 s")).late_to("late").aggregate(n=count())
    counts.side_output("late").sink_to(sink, uid="late")
    counts.sink_to(sink, uid="counts")
    graph = job.build()
    assert node(graph, "some").schema.names == ["user", "ts"]
    for uid in ("some", "late", "counts"):
        assert node(graph, uid).schema.names == sink.checked[uid]


def test_a_uid_that_is_derived_for_another_is_refused(
    job: JobGraphBuilder, list_source: Any, sink: Any
) -> None:
    job.source(list_source(Purchase, dead_letters=sink), uid="p").sink_to(sink, uid="p.dead-letters")
    with pytest.raises(GraphError, match=r"uid 'p.dead-letters' is also derived for another operator"):
        job.build()


def test_every_target_exists(job: JobGraphBuilder, purchases: Stream[Any], sink: Any) -> None:
    kept = purchases.filter(is_large).union(purchases)
    kept.key_by("user").process(Pass()).rebalance().sink_to(sink)
    kept.map(to_total).sink_to(sink)
    graph = job.build()
    edges = {e.edge_id: e for e in graph.edges}
    for chain in graph.chains:
        assert next(iter(chain.nodes)) == chain.head
        for one in chain.nodes.values():
            for targets in getattr(one, "outputs", {}).values():
                for target in targets:
                    if isinstance(target, InChain):
                        assert target.uid in chain.nodes
                    else:
                        assert isinstance(target, ToEdge)
                        assert edges[target.edge_id].upstream == chain.chain_id
    assert all(e.upstream < e.downstream for e in graph.edges)
