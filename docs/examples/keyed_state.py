"""The kinds of state, timers by the clock, and reduce for when one record for each key is enough."""

import operator
from collections.abc import Iterator
from dataclasses import dataclass

from onceflow import (
    AggregateFunction,
    AggregatingState,
    Ctx,
    Job,
    KeyedProcess,
    ListState,
    MapState,
    ReducingState,
    Timer,
    ValueState,
)


@dataclass(frozen=True)
class Purchase:
    user: str
    item: str
    price: int


@dataclass(frozen=True)
class Basket:
    user: str
    items: int
    most_wanted: str
    total: int
    mean: float


class Mean(AggregateFunction[int, list[int], float]):
    def create_accumulator(self) -> list[int]:
        return [0, 0]

    def add(self, value: int, accumulator: list[int]) -> list[int]:
        return [accumulator[0] + value, accumulator[1] + 1]

    def merge(self, accumulator_a: list[int], accumulator_b: list[int]) -> list[int]:
        return [a + b for a, b in zip(accumulator_a, accumulator_b, strict=True)]

    def get_result(self, accumulator: list[int]) -> float:
        return accumulator[0] / accumulator[1]


class Baskets(KeyedProcess[str, Purchase, Basket]):
    last = ValueState("last", str)
    total = ReducingState("total", int, operator.add)
    mean = AggregatingState("mean", Mean())
    items = ListState("items", str)
    counts = MapState(
        "counts", str, int, ttl="1 d", ttl_refresh="read", ttl_time="processing"
    )

    def process(self, record: Purchase, ctx: Ctx) -> None:
        if self.last.get("") == record.item:
            return  # a second click
        self.last.set(record.item)
        self.total.add(record.price)
        self.mean.add(record.price)
        self.items.add(record.item)
        self.counts.put(record.item, self.counts.get(record.item, 0) + 1)
        ctx.timers.processing_time(ctx.processing_time + 60_000)

    def on_timer(self, fired: Timer, ctx: Ctx) -> Iterator[Basket]:
        if self.items.get():  # of several timers the first one finds something
            most_wanted, _ = max(self.counts.items(), key=lambda entry: entry[1])
            yield Basket(
                ctx.key,
                len(self.items.get()),
                most_wanted,
                self.total.get() or 0,
                self.mean.get() or 0.0,
            )
        for state in (self.last, self.total, self.mean, self.items, self.counts):
            state.clear()


job = Job("baskets")
by_user = job.from_elements(
    Purchase("ann", "tea", 3), Purchase("ann", "cup", 5), Purchase("ann", "tea", 3)
).key_by("user")
baskets = by_user.process(
    Baskets()
).collect()  # at the end of bounded input all timers fire
dearest = by_user.reduce(
    lambda one, other: one if one.price > other.price else other
).collect()
job.run(master="threads[1]")
assert baskets == [Basket("ann", 3, "tea", 11, 11 / 3)]
assert [purchase.item for purchase in dearest] == ["tea", "cup", "cup"]
