"""Join orders with payments by the order's id, within an hour. Unpaid orders go to a topic of their own.

onceflow run examples/join.py --checkpoint-dir /tmp/join -- --bootstrap-servers localhost:9092 \
    --orders orders --payments payments --paid paid --unpaid unpaid
"""

import argparse
from collections.abc import Iterator
from dataclasses import dataclass

from onceflow import Ctx, Job, KeyedProcess, SideOutput, Timer, ValueState, WatermarkStrategy
from onceflow.connectors.formats import Json
from onceflow.connectors.kafka import KafkaSource
from onceflow.sinks.kafka import KafkaSink

WITHIN_MS = 60 * 60 * 1_000


@dataclass(frozen=True, slots=True)
class Order:
    order_id: str
    item: str
    ts: int  # event time, ms


@dataclass(frozen=True, slots=True)
class Payment:
    order_id: str
    cents: int
    ts: int


@dataclass(frozen=True, slots=True)
class Either:
    """A record of either side: what a union of the two can carry."""

    order_id: str
    order: Order | None = None
    payment: Payment | None = None


@dataclass(frozen=True, slots=True)
class Paid:
    order_id: str
    item: str
    cents: int
    waited_ms: int


def of_order(order: Order) -> Either:
    return Either(order.order_id, order=order)


def of_payment(payment: Payment) -> Either:
    return Either(payment.order_id, payment=payment)


class Join(KeyedProcess[str, Either, Paid]):
    """Keeps the side that comes first until the other comes, or until event time has gone on by an hour."""

    order = ValueState("order", Order)
    payment = ValueState("payment", Payment)
    unpaid = SideOutput("unpaid", Order)

    def process(self, either: Either, ctx: Ctx) -> Iterator[Paid]:
        if either.order is not None:
            self.order.set(either.order)
            ctx.timers.event_time(either.order.ts + WITHIN_MS)
        if either.payment is not None:
            self.payment.set(either.payment)
            ctx.timers.event_time(either.payment.ts + WITHIN_MS)
        order, payment = self.order.get(), self.payment.get()
        if order is not None and payment is not None and abs(payment.ts - order.ts) <= WITHIN_MS:
            self.forget(ctx)
            yield Paid(order.order_id, order.item, payment.cents, payment.ts - order.ts)

    def on_timer(self, fired: Timer, ctx: Ctx) -> None:
        order = self.order.get()
        if order is not None:
            ctx.emit(self.unpaid, order)
        self.forget(ctx)

    def forget(self, ctx: Ctx) -> None:
        for side in (self.order, self.payment):
            if (kept := side.get()) is not None:
                ctx.timers.delete_event_time(kept.ts + WITHIN_MS)
                side.clear()


def build(arguments: list[str]) -> Job:
    options = parse(arguments)
    servers, until = options.bootstrap_servers, options.until
    job = Job("join")
    times = WatermarkStrategy.bounded_out_of_orderness("5 s", event_time="ts", idle_after="1 min")
    orders = KafkaSource(bootstrap_servers=servers, topics=[options.orders], value=Json(Order), until=until)
    payments = KafkaSource(
        bootstrap_servers=servers, topics=[options.payments], value=Json(Payment), until=until
    )
    joined = (
        job.source(orders, watermarks=times, uid="orders")
        .map(of_order)
        .union(job.source(payments, watermarks=times, uid="payments").map(of_payment))
        .key_by("order_id")
        .process(Join(), uid="join")
    )
    paid = KafkaSink(bootstrap_servers=servers, topic=options.paid, key="order_id")
    unpaid = KafkaSink(bootstrap_servers=servers, topic=options.unpaid, key="order_id")
    joined.sink_to(paid, uid="paid")
    joined.side_output("unpaid").sink_to(unpaid, uid="unpaid")
    return job


def parse(arguments: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="join.py", description=__doc__)
    parser.add_argument("--bootstrap-servers", default="localhost:9092")
    parser.add_argument("--orders", default="orders", help="topic with orders")
    parser.add_argument("--payments", default="payments", help="topic with payments")
    parser.add_argument("--paid", default="paid", help="topic for what was paid in time")
    parser.add_argument("--unpaid", default="unpaid", help="topic for what was not")
    parser.add_argument("--until", choices=["latest"], help="stop at what is there now; else run on")
    return parser.parse_args(arguments)
