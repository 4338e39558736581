"""map_async: what it takes, and what it refuses where it is written."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass
from typing import Any, ClassVar

import pytest
import tenacity

from onceflow import Job, WatermarkStrategy, col, errors_to, sum_, tumbling
from onceflow.runtime.errors import GraphError, OnceflowError
from onceflow.testing import run


@dataclass(frozen=True)
class Order:
    id: int
    ts: int


@dataclass(frozen=True)
class Priced:
    id: int
    cents: int


ORDERS = [Order(n, n * 10) for n in range(12)]
TIMES = WatermarkStrategy.bounded_out_of_orderness("10 ms", event_time="ts")


def stream(job: Job) -> Any:
    return job.from_elements(Order(0, 0), watermarks=TIMES, uid="orders")


async def priced(order: Order) -> Priced:
    if order.id == 5:
        raise LookupError("no price")
    return Priced(order.id, order.id * 100)


def blocking(order: Order) -> Priced:
    return Priced(order.id, order.id * 100)


class Client:
    log: ClassVar[list[str]] = []

    async def open(self, ctx: Any) -> None:
        self.log.append(f"open {ctx.uid}")

    async def __call__(self, order: Order) -> Priced:
        return Priced(order.id, 1)

    async def close(self) -> None:
        self.log.append("close")


@pytest.mark.parametrize("fn", [priced, blocking])
def test_records_come_out_in_order_and_what_fails_goes_aside(fn: Any) -> None:
    job = Job("prices")
    found = stream(job).map_async(fn, capacity=3, on_error=errors_to("failed"), uid="ask")
    found.print(uid="out")
    found.side_output("failed").select(id=col("record").struct.field("id"), error="error").print(uid="failed")
    with run(job, orders=ORDERS) as test:
        failed = [5] if fn is priced else []
        assert [row["id"] for row in test.rows("out")] == [n for n in range(12) if n not in failed]
        assert [row["id"] for row in test.rows("failed")] == failed
        test.finish()


def test_windows_behind_it_get_all_rows_before_they_fire() -> None:
    job = Job("prices")
    found = stream(job).map_async(blocking, ordered=False, capacity=2)
    windows = found.key_by((col("id") * 0).alias("key")).window(tumbling("50 ms"))
    windows.aggregate(cents=sum_("cents")).print(uid="out")
    with run(job, orders=ORDERS) as test:
        assert [row["cents"] for row in test.finish().rows("out")] == [1_000, 3_500, 2_100]
        assert test.late_records == 0


def test_an_object_is_opened_and_closed_on_its_loop() -> None:
    Client.log.clear()
    job = Job("prices")
    stream(job).map_async(Client(), uid="ask").print(uid="out")
    with run(job, orders=ORDERS[:2]) as test:
        assert len(test.rows("out")) == 2
    assert Client.log == ["open ask", "close"]


def test_a_retrying_decides_by_the_result() -> None:
    asked: list[int] = []

    def unsure(order: Order) -> Priced:
        asked.append(order.id)
        return Priced(order.id, len(asked))

    retrying = tenacity.Retrying(
        retry=tenacity.retry_if_result(lambda found: found.cents < 3),
        stop=tenacity.stop_after_attempt(5),
        wait=tenacity.wait_fixed(1),
    )
    job = Job("prices")
    stream(job).map_async(unsure, retries=retrying, timeout=None).print(uid="out")
    with run(job, orders=ORDERS[:1]) as test:
        for attempts in (1, 2):
            assert (test.rows("out"), len(asked)) == ([], attempts)
            test.advance_clock("1 s")
        assert test.rows("out") == [{"id": 0, "cents": 3}]


def away_twice(wait: Any, stop: Any) -> Job:
    """A job whose service says no to the first two questions about each order."""
    asked: dict[int, int] = {}

    def unsure(order: Order) -> Priced:
        asked[order.id] = asked.get(order.id, 0) + 1
        if asked[order.id] < 3:
            raise ConnectionError("away")
        return Priced(order.id, 7)

    retrying = tenacity.Retrying(wait=wait, stop=stop)
    job = Job("away")
    stream(job).map_async(unsure, retries=retrying, timeout=None).print(uid="out")
    return job


def test_a_test_waits_for_calls_that_are_asked_again_at_the_end_and_by_the_clock_before() -> None:
    with run(away_twice(tenacity.wait_fixed(60), tenacity.stop_after_attempt(3)), orders=ORDERS[:2]) as job:
        assert job.out == []
        job.advance_clock("1 min").advance_clock("1 min")
        assert [row["cents"] for row in job.out] == [7, 7]
        job.push(orders=ORDERS[2:])
        assert len(job.finish().committed("out")) == len(ORDERS)


def test_a_call_that_is_asked_for_ever_ends_a_test_with_a_sentence() -> None:
    def never(order: Order) -> Priced:
        raise ConnectionError("away")

    job = Job("never")
    retrying = tenacity.Retrying(wait=tenacity.wait_fixed(60), stop=tenacity.stop_never)
    stream(job).map_async(never, retries=retrying, timeout=None).print(uid="out")
    with run(job, orders=ORDERS[:1]) as running, pytest.raises(OnceflowError, match="write `retries=` with"):
        running.finish()


def test_without_a_policy_an_error_fails_the_job() -> None:
    job = Job("prices")
    stream(job).map_async(priced).print(uid="out")
    with pytest.raises(OnceflowError, match=r"priced failed on the record in 0 at offset 5.* no price"):
        run(job, orders=ORDERS)


async def yields(order: Order) -> AsyncIterator[Priced]:
    yield Priced(1, 1)


def generates(order: Order) -> Iterator[Priced]:
    yield Priced(1, 1)


async def untold(order: Order):  # type: ignore[no-untyped-def]
    return Priced(1, 1)


class HalfAsync:
    async def open(self, ctx: Any) -> None: ...

    def __call__(self, order: Order) -> Priced:
        return Priced(1, 1)


@pytest.mark.parametrize(
    ("fn", "options", "said"),
    [
        (yields, {}, "yields yields: return one record"),
        (generates, {}, "generates yields"),
        (untold, {}, "no return annotation"),
        (HalfAsync(), {}, "a blocking function, and its open\\(\\) a coroutine"),
        (priced, {"capacity": 0}, "capacity=0: write how many records"),
        (priced, {"capacity": True}, "capacity=True"),
        (priced, {"timeout": 0}, "timeout=0: a call needs 1 ms or more"),
        (priced, {"retries": -1}, "retries=-1: write how many more attempts"),
        (priced, {"retries": "3"}, "retries='3'"),
        (priced, {"on_error": "ignore"}, "on_error='ignore'"),
    ],
)
def test_what_can_not_be_meant_is_refused(fn: Any, options: dict[str, Any], said: str) -> None:
    with pytest.raises(GraphError, match=said):
        stream(Job("prices")).map_async(fn, uid="ask", **options)


def test_updates_and_deletes_are_refused() -> None:
    job = Job("prices")
    windows = stream(job).key_by("id").window(tumbling("10 ms")).allowed_lateness("1 s")
    changes = windows.aggregate(cents=sum_("ts"))
    changes.map_async(blocking_of_changes, uid="ask").print(uid="out")
    with pytest.raises(GraphError, match=r"asks for each of the updates and deletes of .* at another time"):
        job.build()


def blocking_of_changes(row: Any) -> Priced:
    return Priced(row.id, row.cents)
