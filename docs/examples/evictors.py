"""Which rows of a window a function of it gets: evictors there are, and one of one's own."""

from collections.abc import Iterator
from dataclasses import dataclass

from onceflow import (
    Evictor,
    Job,
    WatermarkStrategy,
    WindowBounds,
    evict_count,
    evict_delta,
    evict_time,
    tumbling,
)


@dataclass(frozen=True)
class Price:
    share: str
    price: int
    ts: int  # event time, ms


@dataclass(frozen=True)
class Prices:
    prices: list[int]


class NoDoubles(Evictor[Price]):
    """Leaves out a price that was there before."""

    def keeps(self, records: list[Price], timestamps: list[int]) -> list[bool]:
        prices = [record.price for record in records]
        return [price not in prices[:n] for n, price in enumerate(prices)]


def prices_of(
    share: str, window: WindowBounds, prices: list[Price]
) -> Iterator[Prices]:
    yield Prices([price.price for price in prices])


job = Job("prices")
prices = job.from_elements(
    *[Price("a", price, 10 * n) for n, price in enumerate([10, 11, 10, 16, 12])],
    watermarks=WatermarkStrategy.monotonous("ts"),
)
windows = prices.key_by("share").window(tumbling("1 s"))
last_two = windows.evictor(evict_count(2)).process(prices_of).collect()
latest = windows.evictor(evict_time(25)).process(prices_of).collect()
near = windows.evictor(evict_delta(2, "price")).process(prices_of).collect()
different = windows.evictor(NoDoubles()).process(prices_of).collect()
job.run(master="threads[1]")
assert last_two == [Prices([16, 12])]
assert latest == [Prices([10, 16, 12])]
assert near == [Prices([11, 12])]
assert different == [Prices([10, 11, 16, 12])]
