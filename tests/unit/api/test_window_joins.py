"""Window joins and co-groups as programs: windows of every kind, what is refused, the same under crashes."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import pytest

from onceflow import (
    CoGroup,
    GroupWindow,
    Job,
    WatermarkStrategy,
    col,
    count_window,
    cumulative,
    processing_time,
    session,
    sliding,
    tumbling,
)
from onceflow.runtime.errors import GraphError
from onceflow.runtime.testing.tight_state import tight_rocksdb
from onceflow.testing import run, simulate
from onceflow.testing.simulation import simulate_with
from tests.paid_orders import Order, Payment, streams


@dataclass(frozen=True)
class Day:
    order_id: str
    ordered: int
    paid: int
    end: int


class Balance(CoGroup[Order, Payment, Day]):
    def group(self, left: list[Order], right: list[Payment], window: GroupWindow) -> Iterator[Day]:
        cents = [sum(row.cents for row in side) for side in (left, right)]
        yield Day(window.key, *cents, window.end)


def test_rows_of_a_window_meet_when_both_streams_have_come_to_its_end() -> None:
    job, orders, payments = streams()
    by_ref = payments.key_by("ref")
    pairs = orders.key_by("order_id").window_join(by_ref, tumbling("10 s"), how="left", late_to="late")
    pairs.select("item", "cents_right", "window_end").print(uid="pairs")
    pairs.side_output("late_right").print(uid="late")
    with run(job, parallelism=2, orders=[Order("a", "tea", 5, 9_999), Order("b", "cup", 5, 0)]) as test:
        test.push(payments=[Payment("a", 6, 0), Payment("a", 7, 10_000)])
        test.advance_to("10 s", source="orders")
        assert test.pairs == []
        test.restart(parallelism=1).advance_to("10 s", source="payments")
        assert sorted(test.pairs, key=str) == [
            {"item": "cup", "cents_right": None, "window_end": 10_000},
            {"item": "tea", "cents_right": 6, "window_end": 10_000},
        ]
        test.push(payments=[Payment("b", 1, 5)])
        assert (test.late, test.late_records) == ([{"ref": "b", "cents": 1, "ts": 5}], 1)


def test_a_co_group_gets_all_rows_of_a_key_and_window() -> None:
    job, orders, payments = streams()
    days = orders.key_by("order_id").co_group(payments.key_by("ref"), sliding("10 s", "5 s"), Balance())
    days.print(uid="days")
    with run(job, orders=[Order("a", "tea", 5, 0), Order("a", "cup", 4, 1)], payments=[]) as test:
        test.push(payments=[Payment("a", 6, 7_000), Payment("b", 2, 9_000)]).advance_to("1 min")
        assert sorted(test.records("days", Day), key=lambda day: (day.end, day.order_id)) == [
            Day("a", 9, 0, 5_000),
            Day("a", 9, 6, 10_000),
            Day("b", 0, 2, 10_000),
            Day("a", 0, 6, 15_000),
            Day("b", 0, 2, 15_000),
        ]


def test_window_joins_and_co_groups_are_exact_under_crashes() -> None:
    job, times = Job("pay"), WatermarkStrategy.bounded_out_of_orderness("1 h", event_time="ts")
    orders = job.from_elements(Order("a", "tea", 5, 0), watermarks=times, uid="orders").key_by("order_id")
    payments = job.from_elements(Payment("a", 5, 0), watermarks=times, uid="payments").key_by("ref")
    orders.window_join(payments, tumbling("10 s"), how="full").select("item", "cents_right").print(
        uid="pairs"
    )
    orders.co_group(payments, sliding("10 s", "5 s"), Balance()).print(uid="days")
    rows = [Order(f"o{n % 5}", f"i{n}", n, 1_700 * n) for n in range(16)]
    paid = {f"p{s}": [Payment(f"o{n % 5}", n, 2_100 * n) for n in range(s, 14, 2)] for s in range(2)}
    report = simulate(job, {"orders": rows, "payments": paid}, seeds=8)
    assert sum(report.crashes.values()) > 3


def test_what_is_wrong_with_a_window_join_is_said_in_a_sentence() -> None:
    job, orders, payments = streams()
    left, right = orders.key_by("order_id"), payments.key_by("ref")
    with pytest.raises(GraphError, match=r"window='10 s': use tumbling\(\.\.\.\), sliding"):
        left.window_join(right, "10 s")  # type: ignore[arg-type]
    with pytest.raises(GraphError, match="the join adds a column 'window_end': rename yours"):
        orders.with_columns(window_end=1).key_by("order_id").window_join(right, tumbling("1 s"))
    with pytest.raises(GraphError, match="expected an object of a class derived from CoGroup"):
        left.co_group(right, tumbling("1 s"), print)  # type: ignore[arg-type]
    with pytest.raises(GraphError, match="Balance takes Payment, but the stream has no column 'ref'"):
        left.co_group(left, tumbling("1 s"), Balance())  # type: ignore[arg-type]
    with pytest.raises(GraphError, match="have no columns in common that could say the gap"):
        left.window_join(right, session("cents"))
    with pytest.raises(GraphError, match="and so is the key 'left': give it another name"):
        orders.key_by(col("order_id").alias("left")).window_join(right, session("10 s"))
    with pytest.raises(GraphError, match="nothing is late there"):
        left.window_join(right, processing_time(tumbling("10 s")), late_to="late")
    with pytest.raises(GraphError, match="window=CountWindow"):
        left.window_join(right, count_window(5))  # type: ignore[arg-type]
    assert job.name == "pay"


def in_sessions(slack: str = "10 s") -> Job:
    job, times = Job("pay"), WatermarkStrategy.bounded_out_of_orderness(slack, event_time="ts")
    orders = job.from_elements(Order("a", "tea", 5, 0), watermarks=times, uid="orders").key_by("order_id")
    payments = job.from_elements(Payment("a", 5, 0), watermarks=times, uid="payments").key_by("ref")
    pairs = orders.window_join(payments, session("5 s"), how="full", late_to="late", uid="join")
    pairs.select("item", "cents_right", "window_start", "window_end").print(uid="pairs")
    pairs.side_output("late_right").print(uid="late")
    days = orders.co_group(payments, cumulative("20 s", "10 s"), Balance(), uid="days")
    days.print(uid="days-out")
    return job


def test_rows_of_a_session_of_both_streams_meet() -> None:
    with run(in_sessions(), parallelism=2) as test:
        test.push(orders=[Order("a", "tea", 5, 0), Order("a", "cup", 5, 9_000), Order("b", "jug", 5, 0)])
        test.restart(parallelism=1).push(payments=[Payment("a", 6, 4_500), Payment("c", 7, 0)])
        test.advance_to("5 s")
        assert sorted(test.pairs, key=str) == [
            {"item": "jug", "cents_right": None, "window_start": 0, "window_end": 5_000},
            {"item": None, "cents_right": 7, "window_start": 0, "window_end": 5_000},
        ]
        test.push(payments=[Payment("b", 1, 0)])
        assert (test.late, test.late_records) == ([{"ref": "b", "cents": 1, "ts": 0}], 1)
        test.advance_to("20 s")
        bounds = {"window_start": 0, "window_end": 14_000}
        assert test.pairs[2:] == [{"item": item, "cents_right": 6, **bounds} for item in ("tea", "cup")]
        assert [day for day in test.records("days-out", Day) if day.order_id == "a"] == [
            Day("a", 10, 6, 10_000),
            Day("a", 10, 6, 20_000),
        ]


def test_joins_in_sessions_are_exact_under_crashes() -> None:
    rows = [Order(f"o{n % 5}", f"i{n}", n, 1_700 * n) for n in range(16)]
    paid = {f"p{s}": [Payment(f"o{n % 5}", n, 2_100 * n) for n in range(s, 14, 2)] for s in range(2)}
    with tight_rocksdb() as state:
        report = simulate_with(state, in_sessions("1 h"), {"orders": rows, "payments": paid}, 8)
    assert sum(report.crashes.values()) > 3


def test_streams_without_event_time_are_joined_by_the_clock() -> None:
    job = Job("pay")
    orders = job.from_elements(Order("a", "tea", 5, 0), uid="orders").key_by("order_id")
    payments = job.from_elements(Payment("a", 6, 0), uid="payments").key_by("ref")
    pairs = orders.window_join(payments, processing_time(tumbling("10 s")), uid="join")
    pairs.select("item", "cents_right").print(uid="pairs")
    with run(job, orders=[Order("a", "tea", 5, 0)], payments=[Payment("a", 6, 0)]) as test:
        test.finish()
        assert test.pairs == [{"item": "tea", "cents_right": 6}]
