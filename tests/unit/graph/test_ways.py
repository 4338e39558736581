"""Which edges may have rows in flight in a checkpoint, and what these are called there."""

from __future__ import annotations

from dataclasses import dataclass

import pyarrow as pa
import pytest

from onceflow import Job
from onceflow.runtime.graph.job_graph import Broadcast, ByKey, Edge, Forward, Partitioning, Rebalance
from onceflow.runtime.graph.ways import described_ways, may_be_overtaken, ways


@dataclass(frozen=True, slots=True)
class Order:
    customer: int
    cents: int


def doubled(order: Order) -> Order:
    return Order(order.customer, 2 * order.cents)


def larger(one: Order, other: Order) -> Order:
    return max(one, other, key=lambda order: order.cents)


@pytest.mark.parametrize(
    ("partitioning", "may"),
    [(ByKey(("x",)), True), (Rebalance(), True), (Forward(), False), (Broadcast(), False)],
)
def test_where_rows_are_the_same_for_all_or_stay_in_their_slot_nothing_is_overtaken(
    partitioning: Partitioning, may: bool
) -> None:
    edge = Edge(0, 0, 1, partitioning, pa.schema([("x", pa.int64())]), False, False)
    assert may_be_overtaken(edge) is may


def test_ways_are_named_by_the_operators_at_their_ends() -> None:
    job = Job("ways")
    left = job.from_records([Order(1, 2)], uid="left")
    right = job.from_records([Order(1, 2)], uid="right")
    left.union(left).key_by("customer").reduce(larger, uid="most").print(uid="out")
    right.rebalance().map(doubled, uid="doubled").print(uid="twice")
    found = sorted(ways(job.build()).values())
    assert found[:2] == ["left > most", "left > most #2"]
    assert len(found) == 3
    assert found[2].startswith("right > ")


def test_a_description_says_the_key_and_the_rows() -> None:
    job = Job("ways")
    job.from_records([Order(1, 2)], uid="left").key_by("customer").reduce(larger, uid="most").print(uid="out")
    [(uid, described)] = described_ways(job.build()).items()
    assert uid == "left > most"
    assert [(key.name, key.type) for key in described.keys] == [("customer", "int64")]
    assert described.kind == "rows in flight"
    assert "cents: int64" in described.parts[0].type
