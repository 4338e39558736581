"""Joins as programs: columns, what is refused before anything runs, and the same output under crashes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pytest

from onceflow import Job, WatermarkStrategy, col, count, lit, tumbling
from onceflow.runtime.api.stream import Stream
from onceflow.runtime.errors import GraphError, OptionError
from onceflow.runtime.graph.plan import describe
from onceflow.runtime.testing.tight_state import tight_rocksdb
from onceflow.testing import run, simulate
from onceflow.testing.simulation import simulate_with
from tests.paid_orders import TIMES, Order, Payment, streams


def joined(**options: Any) -> tuple[Job, Stream[Any]]:
    job, orders, payments = streams()
    by_id, by_ref = orders.key_by("order_id"), payments.key_by("ref")
    return job, by_id.interval_join(by_ref, "0 s", "1 h", uid="join", **options)


PAIR = {"order_id": "a", "item": "tea", "cents": 5, "ts": 0, "cents_right": 6, "ts_right": 3_600_000}


@pytest.mark.parametrize("parallelism", [1, 3])
def test_rows_of_a_key_within_the_bounds_meet_whoever_comes_first(parallelism: int) -> None:
    job, pairs = joined()
    pairs.print(uid="pairs")
    with run(job, parallelism=parallelism, payments=[Payment("a", 6, 3_600_000), Payment("b", 1, 0)]) as test:
        test.push(orders=[Order("a", "tea", 5, 0), Order("a", "late for it", 5, 3_600_001)])
        assert test.pairs == [PAIR]
        test.restart(parallelism=4 - parallelism).push(payments=[Payment("a", 7, 3_600_001)])
        assert [row["item"] for row in test.pairs[1:]] == ["late for it"]


def test_a_row_without_a_partner_comes_when_none_can_come_any_more() -> None:
    job, pairs = joined(how="full")
    pairs.print(uid="pairs")
    with run(job, orders=[Order("a", "tea", 5, 1_000)], payments=[Payment("b", 6, 2_000)]) as test:
        test.advance_to("2 s")
        assert test.pairs == [
            PAIR | dict.fromkeys(PAIR) | {"order_id": "b", "cents_right": 6, "ts_right": 2_000}
        ]
        test.advance_to("3601 s", source="orders").advance_to("3600 s", source="payments")
        assert len(test.pairs) == 1, "a payment may still come"
        test.advance_to("3601 s", source="payments")
        alone = {"cents_right": None, "ts_right": None}
        assert test.pairs[1:] == [PAIR | {"ts": 1_000} | alone]


def test_what_comes_alone_is_not_late_for_a_window_behind_the_join() -> None:
    job, pairs = joined(how="left")
    counted = pairs.key_by("item").window(tumbling("1 s")).aggregate(n=count(), uid="counts")
    counted.print(uid="counts-out")
    with run(job, orders=[Order("a", "tea", 5, n) for n in (0, 999, 1_000)], payments=[]) as test:
        test.advance_to("10 h")
        rows = {(row["window_start"], row["n"]) for row in test.counts_out}
        assert (rows, test.late_records) == ({(0, 2), (1_000, 1)}, 0)


def test_a_condition_is_a_part_of_what_a_partner_is() -> None:
    job, pairs = joined(how="left", where=col("cents_right") >= col("cents"))
    pairs.select("item", "cents_right").print(uid="pairs")
    with run(job, orders=[Order("a", "tea", 5, 1), Order("a", "cup", 9, 1)], payments=[]) as test:
        test.push(payments=[Payment("a", 6, 1)]).advance_to("2 h")
        assert test.pairs == [{"item": "tea", "cents_right": 6}, {"item": "cup", "cents_right": None}]


def test_late_rows_of_each_side_join_nothing_and_go_to_a_side_output_of_their_own() -> None:
    job, pairs = joined(late_to="late")
    pairs.print(uid="pairs")
    pairs.side_output("late_left").print(uid="left")
    pairs.side_output("late_right").print(uid="right")
    with run(job, orders=[Order("a", "tea", 5, 60_000)], payments=[]) as test:
        test.advance_to("59 s", source="orders").advance_to("58 s", source="payments")
        test.push(payments=[Payment("a", 6, 60_000), Payment("a", 7, 58_000)])
        test.push(orders=[Order("a", "old", 5, 58_000), Order("a", "new", 5, 58_001)])
        assert [row["item"] for row in test.pairs] == ["tea", "new"]
        assert [row["item"] for row in test.left] == ["old"]
        assert [row["cents"] for row in test.right] == [7]
        assert test.late_records == 2


def test_only_columns_that_are_read_cross_the_exchange_and_are_kept() -> None:
    job, pairs = joined(where=col("cents_right") > 0)
    pairs.select("item").print(uid="items")
    exchanges = {tuple(e["columns"]): e["input"] for e in describe(job.build())["exchanges"]}
    assert exchanges == {("order_id", "item"): "left", ("ref", "cents"): "right"}
    with run(job, orders=[Order("a", "tea", 5, 0)], payments=[Payment("a", 1, 0)]) as test:
        assert test.items == [{"item": "tea"}]
        kept = {tuple(row["left"] or row["right"]) for row in test.state("join")}
        assert kept == {("order_id", "item"), ("ref", "cents")}


@pytest.mark.parametrize(
    ("how", "barriers"), [("inner", "aligned"), ("full", "aligned"), ("full", "unaligned")]
)
def test_a_join_is_exact_under_crashes_and_rescales(how: str, barriers: str) -> None:
    orders = [Order(f"o{n % 9}", f"i{n}", n, 400_000 * n) for n in range(20)]
    paid = {
        f"p{split}": [Payment(f"o{n % 9}", n, 500_000 * n) for n in range(split, 16, 2)] for split in range(2)
    }
    inputs = {"orders": orders, "payments": paid}
    report = simulate(job_with_slack(how), inputs, seeds=8, barriers=barriers)
    assert report.rows["pairs"] > 15
    assert sum(report.crashes.values()) > 3


def test_so_is_one_in_rocksdb() -> None:
    orders = [Order(f"o{n % 9}", f"i{n}", n, 400_000 * n) for n in range(20)]
    paid = {"p": [Payment(f"o{n % 9}", n, 500_000 * n) for n in range(16)]}
    with tight_rocksdb(rows_in_memory=1) as state:
        inputs = {"orders": orders, "payments": paid}
        report = simulate_with(state, job_with_slack("full"), inputs, range(1, 5))
        assert sum(report.crashes.values()) > 2


def job_with_slack(how: str) -> Job:
    """Rows of a test's splits are read in any order, so that much is not late here that would be else."""
    job, times = Job("pay"), WatermarkStrategy.bounded_out_of_orderness("1 h", event_time="ts")
    orders = job.from_elements(Order("a", "tea", 5, 0), watermarks=times, uid="orders")
    payments = job.from_elements(Payment("a", 5, 0), watermarks=times, uid="payments")
    pairs = orders.key_by("order_id").interval_join(payments.key_by("ref"), "-1 h", "1 h", how=how)
    pairs.select("order_id", "item", "cents_right").print(uid="pairs")
    return job


def test_what_can_not_be_joined_is_refused_in_a_sentence() -> None:
    job, orders, payments = streams()
    left, right = orders.key_by("order_id"), payments.key_by("ref")
    with pytest.raises(GraphError, match="no time is from lower='1 h' to upper='0 s'"):
        left.interval_join(right, "1 h", "0 s")
    with pytest.raises(GraphError, match=r"no time is from lower='1 s' to upper='1 s' \(closed='left'\)"):
        left.interval_join(right, "1 s", "1 s", closed="left")
    with pytest.raises(OptionError, match="lower='1 week' is not a duration"):
        left.interval_join(right, "-1 week", "1 s")
    with pytest.raises(GraphError, match="how='outer': write one of inner, left, right, full"):
        left.interval_join(right, 0, 1, how="outer")
    with pytest.raises(GraphError, match="closed='in': write one of both, left, right, none"):
        left.interval_join(right, 0, 1, closed="in")
    with pytest.raises(GraphError, match=r"there is no column 'cent'.*did you mean 'cents'"):
        left.interval_join(right, 0, 1, where=col("cent") > 1)
    with pytest.raises(GraphError, match="a filter needs true or false"):
        left.interval_join(right, 0, 1, where=lit(1))
    with pytest.raises(GraphError, match="cents int64 on the right"):
        left.interval_join(payments.key_by("cents"), 0, 1)
    with pytest.raises(GraphError, match="two columns would be called 'cents_right'"):
        orders.with_columns(cents_right=1).key_by("order_id").interval_join(right, 0, 1)
    untimed = job.from_elements(Payment("a", 5, 0), uid="untimed").key_by("ref")
    with pytest.raises(GraphError, match=r"needs event time: pass watermarks= to both sources"):
        untimed.interval_join(untimed, 0, 1)
    with pytest.raises(AttributeError, match=r"has no 'join': write a\.key_by\(\"id\"\)\.join"):
        _ = orders.join  # type: ignore[attr-defined]


def test_a_stream_may_be_joined_with_itself() -> None:
    job = Job("pay")
    orders = job.from_elements(Order("a", "tea", 5, 0), watermarks=TIMES, uid="orders")
    by_id = orders.key_by("order_id")
    by_id.interval_join(by_id, "1 ms", "10 s").select("item", "item_right").print(uid="pairs")
    with run(job, orders=[Order("a", item, 0, n) for n, item in enumerate(["tea", "cup"])]) as test:
        assert test.pairs == [{"item": "tea", "item_right": "cup"}]


# --- Versions ---


@dataclass(frozen=True)
class Price:
    thing: str
    price: int | None
    ts: int


def priced(slack: str, **options: Any) -> Job:
    job, times = Job("prices"), WatermarkStrategy.bounded_out_of_orderness(slack, event_time="ts")
    orders = job.from_elements(Order("a", "tea", 5, 0), watermarks=times, uid="orders").key_by("item")
    prices = job.from_elements(Price("tea", 1, 0), watermarks=times, uid="prices").key_by("thing")
    rows = orders.temporal_join(prices, deleted=col("price").is_null(), uid="join", **options)
    rows.select("order_id", "price").print(uid="rows")
    return job


def test_an_order_gets_the_price_of_its_time_once_both_streams_have_come_so_far() -> None:
    with run(priced("1 min", how="left"), parallelism=2, orders=[Order("o1", "tea", 0, 5_000)]) as test:
        test.push(prices=[Price("tea", 3, 6_000), Price("tea", 1, 1_000), Price("tea", 2, 5_000)])
        test.advance_to("5 s", source="orders")
        assert test.rows("rows") == [], "another price of this time may come"
        test.restart(parallelism=1).advance_to("5 s", source="prices")
        assert test.rows("rows") == [{"order_id": "o1", "price": 2}]
        test.push(orders=[Order("o2", "tea", 0, 7_000), Order("o3", "tea", 0, 9_000)])
        test.push(prices=[Price("tea", None, 8_000), Price("tea", 9, 4_000)]).advance_to("1 h")
        assert test.rows("rows")[1:] == [{"order_id": "o2", "price": 3}, {"order_id": "o3", "price": None}]
        assert test.late_records == 1, "the price of 4 s came late"


def test_the_latest_version_has_to_meet_the_condition_and_no_older_one_is_taken() -> None:
    job = priced("1 min", how="left", where=col("price") > col("cents"))
    with run(job, orders=[Order("o1", "tea", 2, 5_000), Order("o2", "tea", 9, 5_000)]) as test:
        test.push(prices=[Price("tea", 99, 1_000), Price("tea", 5, 2_000)]).advance_to("1 h")
        assert test.rows("rows") == [{"order_id": "o1", "price": 5}, {"order_id": "o2", "price": None}]


def test_a_temporal_join_is_exact_under_crashes() -> None:
    orders = [Order(f"o{n}", f"t{n % 4}", 0, 900 * n) for n in range(16)]
    prices = {f"p{s}": [Price(f"t{n % 4}", n, 700 * n) for n in range(s, 20, 2)] for s in range(2)}
    report = simulate(priced("1 h"), {"orders": orders, "prices": prices}, seeds=8)
    assert sum(report.crashes.values()) > 3
    assert report.rows["rows"] > 10


def test_what_is_wrong_with_a_temporal_join_is_said_in_a_sentence() -> None:
    _, orders, payments = streams()
    left, right = orders.key_by("order_id"), payments.key_by("ref")
    with pytest.raises(GraphError, match="how='full': write one of inner, left"):
        left.temporal_join(right, how="full")
    with pytest.raises(GraphError, match="there is no column 'item'"):
        left.temporal_join(right, deleted=col("item").is_null())
    with pytest.raises(GraphError, match="there is no column 'itm'"):
        left.temporal_join(right, where=col("itm") == "tea")
