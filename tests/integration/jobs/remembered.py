"""What users have bought, without an end and without output: a process function with each kind of state, and
windows. The n-th record is `purchase(n)`. With "met" as its argument also a join with visits.

onceflow run remembered.py ... [-- met]
"""

from __future__ import annotations

from dataclasses import dataclass

from onceflow import (
    Ctx,
    Job,
    KeyedProcess,
    ListState,
    MapState,
    ValueState,
    WatermarkStrategy,
    count,
    sum_,
    tumbling,
)

USERS = 100


@dataclass(frozen=True)
class Purchase:
    n: int
    user: str
    item: str
    price: int
    ts: int


@dataclass(frozen=True)
class Best:
    item: str
    price: int


@dataclass(frozen=True)
class Visit:
    number: int
    visitor: str
    ts: int


def visit(n: int) -> Visit:
    return Visit(n, f"user-{n % USERS}", 10 * n)


def purchase(n: int) -> Purchase:
    return Purchase(n, f"user-{n * 7919 % USERS}", f"item-{n * 7 % 5}", n * 37 % 100, n)


class Remembered(KeyedProcess[str, Purchase, Purchase]):
    best = ValueState("best", Best)
    items = MapState("items", str, int)
    recent = ListState("recent", int)

    def process(self, record: Purchase, ctx: Ctx) -> None:
        best = self.best.get()
        if best is None or record.price > best.price:
            self.best.set(Best(record.item, record.price))
        self.items.put(record.item, self.items.get(record.item, 0) + 1)
        recent = [*self.recent.get(), record.n][-3:]
        self.recent.clear()
        for n in recent:
            self.recent.add(n)
        ctx.timers.event_time(86_400_000)


def build(arguments: list[str]) -> Job:
    job = Job("remembered")
    times = WatermarkStrategy.bounded_out_of_orderness("1 s", event_time="ts")
    bought = job.data_generator(purchase, rate="4000/s", watermarks=times, uid="bought").key_by("user")
    bought.process(Remembered(), uid="remembered").foreach(print, uid="nothing")
    totals = bought.window(tumbling("1 d")).aggregate(n=count(), spent=sum_("price"), uid="totals")
    totals.foreach(print, uid="no_totals")
    if "met" in arguments:
        visits = job.data_generator(visit, rate="400/s", watermarks=times, uid="visits").key_by("visitor")
        met = bought.interval_join(visits, lower="0 s", upper="1 s", uid="met")
        met.select("n", "number").foreach(print, uid="no_pairs")
    return job
