"""Jobs of the tests of onceflow.testing."""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass

from onceflow import (
    Ctx,
    Job,
    KeyedProcess,
    SideOutput,
    Timer,
    ValueState,
    WatermarkStrategy,
    col,
    count,
    sum_,
    tumbling,
)
from onceflow.connectors.formats import Json
from onceflow.connectors.kafka import KafkaSource
from onceflow.sinks.kafka import KafkaSink

NOWHERE = "127.0.0.1:1"
"""Nobody is there: a test that asked would hang or fail."""


@dataclass(frozen=True)
class Purchase:
    user: str
    type: str
    amount: int
    ts: int


@dataclass(frozen=True)
class Seen:
    user: str
    count: int


@dataclass(frozen=True)
class Silence:
    user: str
    since: int


class Visits(KeyedProcess[str, Purchase, Seen]):
    """Counts the records of a user; says when one has been silent for 10 s of event time, or of the clock."""

    visits = ValueState("visits", int)
    last = ValueState("last", int)
    silent = SideOutput("silent", Silence)

    def process(self, record: Purchase, ctx: Ctx) -> Iterator[Seen]:
        count = (self.visits.get() or 0) + 1
        self.visits.set(count)
        self.last.set(record.ts)
        ctx.timers.event_time(record.ts + 10_000)
        ctx.timers.processing_time(ctx.processing_time + 60_000)
        yield Seen(record.user, count)

    def on_timer(self, fired: Timer, ctx: Ctx) -> None:
        if fired.is_processing_time:
            ctx.emit(self.silent, Silence(ctx.key, -1))
        elif self.last.get() == fired.time - 10_000:
            ctx.emit(self.silent, Silence(ctx.key, fired.time))


def source(topic: str = "events", slack: str = "2 s") -> KafkaSource:
    return KafkaSource(bootstrap_servers=NOWHERE, topics=[topic], value=Json(Purchase))


def sink(topic: str = "totals") -> KafkaSink:
    return KafkaSink(bootstrap_servers=NOWHERE, topic=topic)


def totals(slack: str = "2 s") -> Job:
    """Per-user totals of ten seconds, as in the README."""
    job = Job("totals")
    watermarks = WatermarkStrategy.bounded_out_of_orderness(slack, event_time="ts")
    stream = job.source(source(), watermarks=watermarks, uid="purchases").filter(col("type") != "refund")
    windows = stream.key_by("user").window(tumbling("10 s")).late_to("late")
    made = windows.aggregate(count=count(), total=sum_("amount"), uid="per-user")
    made.sink_to(sink(), uid="user-totals")
    made.side_output("late").sink_to(sink("late"), uid="late")
    return job


def with_dice() -> Job:
    """A function that throws dice: no replay gives its output again."""
    job = Job("dice")

    def throw(purchase: Purchase) -> Seen:
        return Seen(purchase.user, random.randrange(1 << 40))

    stream = job.source(source(), uid="purchases").map(throw, uid="throw")
    stream.sink_to(sink(), uid="thrown")
    return job


def of_order() -> Job:
    """A difference of what comes, without event time: what it is depends on the order of the splits."""
    job = Job("difference")

    def less(one: Purchase, other: Purchase) -> Purchase:
        return Purchase(one.user, one.type, other.amount - one.amount, other.ts)

    stream = job.source(source(), uid="purchases").key_by("user").reduce(less, uid="difference")
    stream.sink_to(sink(), uid="differences")
    return job


def failing() -> Job:
    """A function that fails on its first record."""
    job = Job("failing")

    def divide(purchase: Purchase) -> Seen:
        return Seen(purchase.user, 1 // purchase.ts)

    job.source(source(), uid="purchases").map(divide, uid="divide").sink_to(sink(), uid="out")
    return job


def timestamped() -> Job:
    """Event time is Kafka's."""
    job = Job("timestamped")
    watermarks = WatermarkStrategy.bounded_out_of_orderness("0 s")
    windows = (
        job.source(source(), watermarks=watermarks, uid="purchases").key_by("user").window(tumbling("10 s"))
    )
    windows.aggregate(n=count(), uid="counts").sink_to(sink(), uid="out")
    return job
