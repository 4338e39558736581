"""Regular joins as programs: their changes, what is refused before anything runs, and the same result under
crashes."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pyarrow as pa
import pytest

from onceflow import Job, col
from onceflow.connectors.postgres_cdc import PostgresCdcSource
from onceflow.runtime.api.graph_builder import JobGraphBuilder
from onceflow.runtime.api.stream import Stream
from onceflow.runtime.checkpoint.state_comparison import Comparison
from onceflow.runtime.errors import GraphError, UsageError
from onceflow.runtime.graph.job_graph import JobGraph
from onceflow.runtime.operators.joins.meetings import Meetings
from onceflow.runtime.records import RowKind
from onceflow.runtime.state.description import StateDescription
from onceflow.runtime.testing.connectors.folder_source import FolderSource
from onceflow.runtime.testing.connectors.folder_table import FolderTable
from onceflow.runtime.testing.mutation import Mutant, mutated
from onceflow.testing import SimulationError, run, simulate
from tests.paid_orders import TIMES, Order, Payment, streams


def whenever(**options: Any) -> tuple[Job, Stream[Any]]:
    job, orders, payments = streams()
    pairs = orders.key_by("order_id").join(payments.key_by("ref"), uid="join", **options)
    return job, pairs.select("order_id", "item", "cents_right")


def kept_in_a_table(pairs: Stream[Any]) -> None:
    pairs.sink_to(FolderTable("/nowhere", takes_kinds=True), uid="pairs")


def pair(item: str | None, cents: int | None, order: str = "a") -> dict[str, Any]:
    return {"order_id": order, "item": item, "cents_right": cents}


@pytest.mark.parametrize("parallelism", [1, 3])
def test_rows_of_a_key_meet_whenever_they_come(parallelism: int) -> None:
    job, pairs = whenever()
    pairs.print(uid="pairs")
    with run(job, parallelism=parallelism, orders=[Order("a", "tea", 5, 0)], payments=[]) as test:
        test.advance_to("10 h").push(payments=[Payment("a", 6, 0)])
        test.restart(parallelism=4 - parallelism).push(payments=[Payment("a", 7, 36_000_000)])
        assert (test.pairs, test.late_records) == ([pair("tea", 6), pair("tea", 7)], 0)


def test_a_row_comes_alone_at_once_and_is_taken_back_when_its_partner_comes() -> None:
    job, pairs = whenever(how="full")
    kept_in_a_table(pairs)
    with run(job, orders=[Order("a", "tea", 5, 0)], payments=[Payment("b", 1, 0)]) as test:
        test.restart(parallelism=2).push(payments=[Payment("a", 6, 0)])
        assert sorted(test.changes("pairs"), key=str) == [
            (RowKind.DELETE, pair("tea", None)),
            (RowKind.INSERT, pair("tea", 6)),
            (RowKind.INSERT, pair("tea", None)),
            (RowKind.INSERT, pair(None, 1, "b")),
        ]
        assert [(row["is_right"], row["partners"]) for row in test.state("join")].count((False, 1)) == 1


def test_rows_with_a_time_to_live_meet_if_they_come_less_than_that_apart() -> None:
    job, pairs = whenever(ttl="1 h")
    pairs.print(uid="pairs")
    hour = 3_600_000
    with run(job, orders=[Order("a", "tea", 5, 0), Order("a", "cup", 5, 1)], payments=[]) as test:
        test.push(payments=[Payment("a", 6, hour)])
        assert test.pairs == [pair("cup", 6)]
        test.restart().advance_to(hour + 1)
        assert [row["right"]["ref"] for row in test.state("join")] == ["a"]


def test_without_event_time_rows_expire_by_the_clock() -> None:
    job = Job("pay")
    orders = job.from_elements(Order("a", "tea", 5, 0), uid="orders").key_by("order_id")
    payments = job.from_elements(Payment("a", 5, 0), uid="payments").key_by("ref")
    pairs = orders.join(payments, ttl="1 min", ttl_time="processing", uid="join")
    pairs.select("order_id", "item", "cents_right").print(uid="pairs")
    with run(job, orders=[Order("a", "tea", 5, 0)], payments=[]) as test:
        test.advance_clock("59 s").push(payments=[Payment("a", 6, 0)], orders=[Order("a", "cup", 5, 0)])
        test.restart().advance_clock("1 s").push(payments=[Payment("a", 7, 0)])
        assert sorted(test.pairs, key=str) == [pair("cup", 6), pair("cup", 7), pair("tea", 6)]


@pytest.mark.parametrize(
    ("how", "barriers", "seeds"), [("inner", "aligned", 6), ("full", "aligned", 8), ("left", "unaligned", 3)]
)
def test_a_join_of_all_rows_is_exact_under_crashes_and_rescales(how: str, barriers: str, seeds: int) -> None:
    job, pairs = whenever(how=how, where=col("cents_right") != 3)
    kept_in_a_table(pairs)
    orders = [Order(f"o{n % 9}", f"i{n}", n, n) for n in range(20)]
    paid = {f"p{split}": [Payment(f"o{n % 11}", n, n) for n in range(split, 16, 2)] for split in range(2)}
    report = simulate(job, {"orders": orders, "payments": paid}, seeds=seeds, barriers=barriers)
    assert report.rows["pairs"] > 15
    assert sum(report.crashes.values()) >= 2


def test_a_join_of_a_join_takes_its_changes_and_is_exact_under_crashes() -> None:
    job, orders, payments = streams()
    notes = job.from_elements(Payment("a", 5, 0), watermarks=TIMES, uid="notes").key_by("ref")
    pairs = orders.key_by("order_id").join(payments.key_by("ref"), how="full", uid="paid")
    paid = pairs.select("order_id", "item", paid=col("cents_right")).key_by("order_id")
    noted = paid.join(notes, how="left", where=col("paid") < col("cents"), uid="noted")
    kept_in_a_table(noted.select("order_id", "item", "paid", "cents"))
    rows = [Order(f"o{n % 5}", f"i{n}", n, n) for n in range(9)]
    some = {name: [Payment(f"o{n % 6}", n, n) for n in range(8)] for name in ("payments", "notes")}
    report = simulate(job, {"orders": rows, **some}, seeds=4)
    assert report.rows["pairs"] == 14
    assert sum(report.crashes.values()) > 1


def _keeps_no_partners(self: Meetings, rows: Any, partners: Any) -> None:
    _load(self, rows, partners * 0)


_load = Meetings.load


def test_a_join_that_forgets_partners_in_a_restore_is_found_under_crashes() -> None:
    with (
        mutated(Mutant("no partners", [(Meetings, "load", _keeps_no_partners)])),
        pytest.raises(SimulationError),
    ):
        test_a_join_of_all_rows_is_exact_under_crashes_and_rescales("full", "aligned", 8)


def changes_joined(how: str, takes_kinds: bool) -> JobGraph:
    """A join of a changelog with rows."""
    job = JobGraphBuilder("changes", max_parallelism=4)
    schema = pa.schema([("user", pa.string()), ("n", pa.int64())])
    log = FolderSource("/nowhere", schema, has_kinds=True)
    users = job.source(log, uid="users").key_by("user")
    clicks = job.source(replace(log, has_kinds=False), uid="clicks").key_by("user")
    clicks.join(users, how=how, uid="join").sink_to(FolderTable("/out", takes_kinds=takes_kinds), uid="out")
    return job.build()


def test_a_join_takes_updates_and_deletes_and_passes_them_on() -> None:
    edges = changes_joined("inner", takes_kinds=True).edges
    assert sorted(edge.has_kinds for edge in edges) == [False, True]
    with pytest.raises(GraphError, match="would write the updates and deletes of 'users' as if they were"):
        changes_joined("inner", takes_kinds=False)


def test_changes_without_the_rows_as_they_were_are_refused() -> None:
    job = JobGraphBuilder("changes", max_parallelism=4)
    log = PostgresCdcSource(
        url="postgresql://db/shop", table="t", of=Order, slot="s", publication="p", before="optional"
    )
    users = job.source(log, uid="users").filter(col("cents") > 0).key_by("order_id")
    users.join(users, uid="join").sink_to(FolderTable("/out", takes_kinds=True), uid="out")
    with pytest.raises(GraphError) as refusal:
        job.build()
    assert str(refusal.value) == (
        "'join' (inner join by order_id, rows kept for good) would keep rows that 'users' has changed, since "
        'its updates come without the row as it was: read them with before="required"'
    )


def test_what_can_not_be_joined_whenever_it_comes_is_refused_in_a_sentence() -> None:
    job, orders, payments = streams()
    left, right = orders.key_by("order_id"), payments.key_by("ref")
    with pytest.raises(GraphError, match="how='outer': write one of inner, left, right, full"):
        left.join(right, how="outer")
    with pytest.raises(GraphError, match=r"ttl='0 s': no row would meet any; write a longer one"):
        left.join(right, ttl="0 s")
    with pytest.raises(GraphError, match="ttl_time='clock': use 'event' or 'processing'"):
        left.join(right, ttl="1 s", ttl_time="clock")
    with pytest.raises(GraphError, match="ttl_time='processing' says how a ttl counts: pass ttl= too"):
        left.join(right, ttl_time="processing")
    untimed = Job("untimed").from_elements(Payment("a", 5, 0), uid="untimed").key_by("ref")
    with pytest.raises(GraphError, match=r"ttl='1 s' counts event time, and these streams have none"):
        untimed.join(untimed, ttl="1 s")
    with pytest.raises(GraphError, match="cents int64 on the right"):
        left.join(payments.key_by("cents"))
    left.join(right, how="left", uid="join").print(uid="out")
    with pytest.raises(
        GraphError,
        match=r"updates and deletes of 'join' as if .* or let the join send pairs only: how=\"inner\"",
    ):
        job.build()


def state_of(**options: Any) -> StateDescription:
    job, pairs = whenever(**options)
    kept_in_a_table(pairs)
    described = job.build().states()["join"]
    assert described is not None
    return described


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"ttl": "2 h"}, "rows kept for 7200000 ms of event time"),
        ({}, "rows kept for good"),
        ({"ttl": "1 h", "ttl_time": "processing"}, "3600000 ms of processing time"),
        ({"ttl": "1 h", "how": "left"}, "left, rows kept"),
        ({"ttl": "1 h", "where": col("cents") > 1}, "cents"),
    ],
)
def test_the_state_of_another_join_is_refused(options: dict[str, Any], said: str) -> None:
    was = state_of(ttl="1 h")
    assert Comparison("join", "checkpoint 3", was, state_of(ttl="1 h"), 5, False).notes() == []
    with pytest.raises(UsageError) as refusal:
        Comparison("join", "checkpoint 3", was, state_of(**options), 5, False).notes()
    assert "'join'" in str(refusal.value)
    assert said in str(refusal.value)
    assert "make the join what it was, or give the operator a new uid" in str(refusal.value)
