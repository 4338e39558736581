"""Evictors in programs: what functions of whole windows get, and what is refused."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pytest

from onceflow import (
    Evictor,
    Job,
    WatermarkStrategy,
    WindowBounds,
    count,
    count_window,
    every_rows,
    evict_count,
    evict_delta,
    evict_time,
    global_window,
    sliding,
    tumbling,
)
from onceflow.runtime.errors import GraphError, JobFailedError


@dataclass(frozen=True)
class Price:
    share: str
    price: int
    ts: int


@dataclass(frozen=True)
class Kept:
    prices: list[int]


def kept(share: str, window: WindowBounds | None, prices: list[Price]) -> Iterator[Kept]:
    yield Kept([price.price for price in prices])


class Cheap(Evictor[Price]):
    """Keeps those that cost less than 15."""

    def keeps(self, records: list[Price], timestamps: list[int]) -> list[bool]:
        assert [record.ts for record in records] == timestamps
        return [record.price < 15 for record in records]


def apart(price: Price, last: Price) -> float:
    return abs(price.price - last.price)


def prices_of(job: Job) -> Any:
    rows = [Price("a", 10, 0), Price("a", 11, 10), Price("a", 16, 20), Price("a", 12, 30)]
    return job.from_elements(*rows, watermarks=WatermarkStrategy.monotonous("ts")).key_by("share")


@pytest.mark.parametrize(
    ("evictor", "left"),
    [
        (evict_count(2), [16, 12]),
        (evict_time(20), [16, 12]),
        (evict_time(21), [11, 16, 12]),
        (evict_delta(2, "price"), [11, 12]),
        (evict_delta(3, apart), [10, 11, 12]),
        (Cheap(), [10, 11, 12]),
    ],
)
def test_a_function_gets_what_is_left(evictor: Any, left: list[int]) -> None:
    job = Job("prices")
    rows = prices_of(job).window(tumbling("1 s")).evictor(evictor).process(kept).collect()
    job.run(master="threads[1]")
    assert rows == [Kept(left)]


def test_all_windows_and_triggers_take_one() -> None:
    job = Job("prices")
    prices = prices_of(job)
    sliding_rows = prices.window(sliding(20, 10)).evictor(evict_count(1)).process(kept).collect()
    fours = prices.window(count_window(4)).evictor(evict_count(2)).process(kept).collect()
    last = prices.window(global_window()).trigger(every_rows(2), results="accumulating")
    so_far = last.evictor(evict_count(3)).process(kept).collect()
    named = prices.window(tumbling("1 s")).evictor(evict_count(1)).late_to("late").process(kept)
    one, late = named.collect(), named.side_output("late").collect()
    job.run(master="threads[1]")
    assert [row.prices for row in sliding_rows] == [[10], [11], [16], [12], [12]]
    assert fours == [Kept([16, 12])]
    assert so_far == [Kept([10, 11]), Kept([11, 16, 12])]
    assert (one, late) == ([Kept([12])], [])


def test_a_function_that_fails_is_named() -> None:
    def fails(price: Price, last: Price) -> float:
        raise RuntimeError("no")

    job = Job("prices")
    prices_of(job).window(tumbling("1 s")).evictor(evict_delta(3, fails)).process(kept).collect()
    with pytest.raises(JobFailedError, match=r"fails failed on .*a window of 4 records.*RuntimeError: no"):
        job.run(master="threads[1]")


@pytest.mark.parametrize(
    ("make", "sentence"),
    [
        (lambda w: w.evictor(Cheap), "or an object of a class derived from Evictor"),
        (
            lambda w: w.evictor(evict_count(1)).aggregate(n=count()),
            "use .process(fn), or leave the evictor out",
        ),
        (lambda w: w.evictor(evict_count(1)).reduce(lambda a, b: a), "use .process(fn), or leave"),
        (lambda w: w.evictor(evict_delta(1, "share")), "it is string: give a number"),
        (lambda w: w.evictor(evict_delta(1, "prise")), "there is no column 'prise' (did you mean 'price'?)"),
        (lambda w: w.evictor(evict_delta(1, lambda price: 0)), "can't be called with a record and the last"),
    ],
)
def test_mistakes(make: Any, sentence: str) -> None:
    with pytest.raises(GraphError) as raised:
        make(prices_of(Job("prices")).window(tumbling("1 s")))
    assert sentence in str(raised.value)


def test_what_is_old_is_told_by_event_time() -> None:
    windows = Job("prices").from_elements(Price("a", 1, 0)).key_by("share").window(count_window(2))
    with pytest.raises(GraphError, match="needs event time: pass watermarks= to the source"):
        windows.evictor(evict_time("1 s"))
