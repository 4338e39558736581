"""The three kinds of state, timers by the clock, and reduce for when one record for each key is enough."""

from collections.abc import Iterator
from dataclasses import dataclass

from onceflow import Ctx, Job, KeyedProcess, ListState, MapState, Timer, ValueState


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


class Baskets(KeyedProcess[str, Purchase, Basket]):
    total = ValueState("total", int)
    items = ListState("items", str)
    counts = MapState(
        "counts", str, int, ttl="1 d", ttl_refresh="read", ttl_time="processing"
    )

    def process(self, record: Purchase, ctx: Ctx) -> None:
        self.total.set((self.total.get() or 0) + record.price)
        self.items.add(record.item)
        self.counts.put(record.item, self.counts.get(record.item, 0) + 1)
        ctx.timers.processing_time(ctx.processing_time + 60_000)

    def on_timer(self, fired: Timer, ctx: Ctx) -> Iterator[Basket]:
        if self.items.get():  # of several timers the first one finds something
            most_wanted, _ = max(self.counts.items(), key=lambda entry: entry[1])
            yield Basket(
                ctx.key, len(self.items.get()), most_wanted, self.total.get() or 0
            )
        for state in (self.total, self.items, self.counts):
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
assert baskets == [Basket("ann", 3, "tea", 11)]
assert [purchase.item for purchase in dearest] == ["tea", "cup", "cup"]
