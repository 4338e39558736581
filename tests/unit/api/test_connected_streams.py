"""connect: what it refuses when the graph is built, and what the functions of two streams see."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple

import pytest

from onceflow import (
    CoFlatMap,
    CoMap,
    Ctx,
    FunctionContext,
    Job,
    KeyedCoProcess,
    SideOutput,
    Timer,
    ValueState,
    WatermarkStrategy,
    col,
)
from onceflow.runtime.api.stream import Stream
from onceflow.runtime.errors import GraphError
from onceflow.runtime.graph.plan import describe
from onceflow.testing import run, simulate


@dataclass(frozen=True)
class Order:
    order_id: str
    item: str
    ts: int


@dataclass(frozen=True)
class Payment:
    order: str
    cents: int
    ts: int


@dataclass(frozen=True)
class Said:
    what: str


class Label(CoMap[Order, Payment, Said]):
    def open(self, ctx: FunctionContext) -> None:
        self.seen = 0

    def map_left(self, record: Order) -> Said:
        self.seen += 1
        return Said(f"order {record.item}")

    def map_right(self, record: Payment) -> Said:
        return Said(f"payment {record.cents} after {self.seen} orders")


class Letters(CoFlatMap[Order, Payment, Said]):
    def flat_map_left(self, record: Order) -> Iterator[Said]:
        yield from map(Said, record.item)

    def flat_map_right(self, record: Payment) -> list[Said] | None:
        return [Said(str(record.cents))] if record.cents else None


class Match(KeyedCoProcess[str, Order, Payment, Said]):
    order = ValueState("order", Order)
    unpaid = SideOutput("unpaid", Order)

    def process_left(self, record: Order, ctx: Ctx) -> None:
        self.order.set(record)
        ctx.timers.event_time(record.ts + 1_000)

    def process_right(self, record: Payment, ctx: Ctx) -> Iterator[Said]:
        order = self.order.get()
        if order is None:
            yield Said(f"no order {ctx.key}")
        else:
            ctx.timers.delete_event_time(order.ts + 1_000)
            self.order.clear()
            yield Said(f"{order.item} for {record.cents}")

    def on_timer(self, fired: Timer, ctx: Ctx) -> None:
        order = self.order.get()
        assert order is not None
        ctx.emit(self.unpaid, order)
        self.order.clear()


TIMES = WatermarkStrategy.bounded_out_of_orderness("10 s", event_time="ts", idle_after="1 min")


def streams(**options: Any) -> tuple[Job, Stream[Order], Stream[Payment]]:
    job = Job("pay", **options)
    orders = job.from_elements(Order("a", "tea", 0), watermarks=TIMES, uid="orders")
    payments = job.from_elements(Payment("a", 5, 0), watermarks=TIMES, uid="payments")
    return job, orders, payments


def matching() -> Job:
    job, orders, payments = streams()
    matched = orders.key_by("order_id").connect(payments.key_by("order")).process(Match(), uid="match")
    matched.collect(uid="said")
    matched.side_output("unpaid").collect(uid="unpaid")
    return job


@pytest.mark.parametrize("parallelism", [1, 3])
def test_both_streams_see_the_state_and_timers_of_a_key(parallelism: int) -> None:
    with run(matching(), parallelism=parallelism, orders=[Order("a", "tea", 0), Order("b", "cup", 0)]) as job:
        job.push(payments=[Payment("a", 5, 7)])
        job.push(payments=[Payment("a", 6, 8)])
        assert job.records("said", Said) == [Said("tea for 5"), Said("no order a")]
        job.restart(parallelism=4 - parallelism).advance_to("1 s", source="orders")
        assert job.unpaid == [], "the payment may still be on its way"
        job.advance_to("1 s", source="payments")
        assert job.records("unpaid", Order) == [Order("b", "cup", 0)]


def test_an_input_that_has_ended_stops_neither_the_other_nor_event_time() -> None:
    job, orders, payments = streams()
    matched = orders.key_by("order_id").connect(payments.key_by("order")).process(Match(), uid="match")
    said, unpaid = matched.collect(), matched.side_output("unpaid").collect()
    job.run(master="threads[2]")
    assert sorted(map(str, [*said, *unpaid])) in (
        [str(Said("tea for 5"))],
        sorted(map(str, [Said("no order a"), Order("a", "tea", 0)])),
    )


def test_what_is_matched_is_exact_under_crashes() -> None:
    job, orders, payments = streams()
    matched = orders.key_by("order_id").connect(payments.key_by("order")).process(Sums(), uid="sums")
    matched.collect(uid="said")
    paid = {str(s): [Payment(f"o{n}", n + 1, 100 * n) for n in range(s, 20, 2)] for s in range(2)}
    rows = {"orders": [Order(f"o{n}", "tea", 100 * n) for n in range(20)], "payments": paid}
    report = simulate(job, rows, seeds=20)
    assert report.rows == {"said": 20}
    assert sum(report.crashes.values()) > 7


class Sums(KeyedCoProcess[str, Order, Payment, Said]):
    """Its result is the same in whatever order the two sides come."""

    cents = ValueState("cents", int)
    item = ValueState("item", str)

    def process_left(self, record: Order, ctx: Ctx) -> Iterator[Said]:
        self.item.set(record.item)
        return self.both(ctx)

    def process_right(self, record: Payment, ctx: Ctx) -> Iterator[Said]:
        self.cents.set(record.cents)
        return self.both(ctx)

    def both(self, ctx: Ctx) -> Iterator[Said]:
        if self.cents.get() is not None and self.item.get() is not None:
            yield Said(f"{ctx.key} {self.item.get()} {self.cents.get()}")


def test_one_object_of_a_subtask_gets_the_records_of_both_streams() -> None:
    job, orders, payments = streams()
    orders.connect(payments).map(Label(), uid="label").collect(uid="said")
    with run(job, orders=[Order("a", "tea", 0), Order("b", "cup", 0)]) as test:
        test.push(payments=[Payment("a", 5, 1)])
        assert [row["what"] for row in test.said] == ["order tea", "order cup", "payment 5 after 2 orders"]


def test_a_co_flat_map_yields_or_returns_any_number() -> None:
    job, orders, payments = streams()
    orders.connect(payments).flat_map(Letters()).collect(uid="said")
    with run(job, orders=[Order("a", "ab", 0)]) as test:
        test.push(payments=[Payment("a", 0, 1), Payment("a", 7, 1)])
        assert [row["what"] for row in test.said] == ["a", "b", "7"]


def test_each_input_is_asked_only_for_the_columns_that_are_read() -> None:
    job, orders, payments = streams()
    joined = orders.key_by("order_id").connect(payments.key_by("order")).process(Few(), uid="few")
    joined.collect()
    described = describe(job.build())
    exchanges = {tuple(e["columns"]): (e["input"], e["key"]) for e in described["exchanges"]}
    assert exchanges == {
        ("order_id", "item"): ("left", ["order_id"]),
        ("order", "cents"): ("right", ["order"]),
    }


def test_what_can_not_be_connected_is_refused_in_a_sentence() -> None:
    job, orders, payments = streams()
    _, others, _ = streams()
    with pytest.raises(GraphError, match="'orders' belongs to another job"):
        payments.connect(others)
    with pytest.raises(GraphError, match=r"expected a KeyedStream, not a Stream: key_by\(\.\.\.\) both"):
        orders.key_by("order_id").connect(payments)  # type: ignore[arg-type]
    with pytest.raises(GraphError, match="expected a Stream, not a KeyedStream"):
        orders.connect(payments.key_by("order"))  # type: ignore[arg-type]
    by_id = orders.key_by("order_id")
    with pytest.raises(GraphError, match="would never be equal: order_id string on the left, cents int64"):
        by_id.connect(payments.key_by("cents"))
    with pytest.raises(GraphError, match="not as many columns: order_id string on the left, order string, "):
        by_id.connect(payments.key_by("order", "cents"))
    untimed = job.from_elements(Payment("a", 5, 0), uid="untimed")
    with pytest.raises(GraphError, match="one of 'orders' and 'untimed' has event time"):
        by_id.connect(untimed.key_by("order"))
    by_cents = payments.key_by(col("cents").cast(str).alias("cents_text"))
    with pytest.raises(GraphError, match=r"its key is declared int, but key column 'order_id' is string"):
        by_id.connect(by_cents).process(OfInt())
    with pytest.raises(GraphError, match="expected an object of a class derived from KeyedCoProcess"):
        by_id.connect(by_cents).process(Label())  # type: ignore[arg-type]
    with pytest.raises(GraphError, match="expected an object of a class derived from CoMap"):
        orders.connect(payments).map(Letters())  # type: ignore[arg-type]
    with pytest.raises(GraphError, match="takes Order with 'item' as string, but the column is"):
        payments.select(order_id="a", item=1, ts=2).key_by("order_id").connect(by_cents).process(Match())
    with pytest.raises(GraphError, match=r"derived from CoProcess; .* key_by\(\.\.\.\) both, for a KeyedCo"):
        orders.connect(payments).process(Match())  # type: ignore[arg-type]


class HasItem(NamedTuple):
    order_id: str
    item: str


class HasCents(NamedTuple):
    order: str
    cents: int


class Few(KeyedCoProcess[str, HasItem, HasCents, Said]):
    def process_left(self, record: HasItem, ctx: Ctx) -> None: ...

    def process_right(self, record: HasCents, ctx: Ctx) -> None: ...


class OfInt(KeyedCoProcess[int, Order, Payment, Said]):
    def process_left(self, record: Order, ctx: Ctx) -> None: ...

    def process_right(self, record: Payment, ctx: Ctx) -> None: ...
