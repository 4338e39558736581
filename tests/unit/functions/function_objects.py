"""Function objects of the tests of their life: each writes into a file what happens to it."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import polars as pl

from onceflow import (
    AggregateFunction,
    Ctx,
    FunctionContext,
    Job,
    KeyedProcess,
    WatermarkStrategy,
    secret,
    tumbling,
)


@dataclass(frozen=True)
class Item:
    user: str
    n: int


class Noting:
    """Notes open, the first call and close with the object that it happened to."""

    def __init__(self, notes: Path, name: str = "", fails_at: int = -1, close_fails: bool = False) -> None:
        self.notes, self.name = notes, name or type(self).__name__
        self.fails_at, self.close_fails = fails_at, close_fails
        self.has_been_called = False

    def open(self, ctx: FunctionContext) -> None:
        assert not hasattr(self, "ctx"), "an instance is opened once"
        self.ctx = ctx
        self.note("open")

    def called(self, n: int = 0) -> None:
        if not self.has_been_called:
            self.has_been_called = True
            self.note("called")
        if n == self.fails_at:
            raise ValueError(f"with {self.ctx.params['token'].reveal()}")

    def close(self) -> None:
        self.note("close")
        if self.close_fails:
            raise OSError("the connection was reset")

    def note(self, what: str) -> None:
        ctx = self.ctx
        noted = [what, self.name, ctx.uid, ctx.subtask, ctx.attempt, id(self), threading.get_ident()]
        with self.notes.open("a") as file:
            file.write(json.dumps(noted) + "\n")


class Map(Noting):
    def __call__(self, item: Item) -> Item:
        self.called(item.n)
        return Item(item.user, item.n + self.ctx.params["plus"])


class Filter(Noting):
    def __call__(self, item: Item) -> bool:
        self.called()
        return True


class FlatMap(Noting):
    def __call__(self, item: Item) -> Iterator[Item]:
        self.called()
        yield item


class Batches(Noting):
    def __call__(self, batch: pl.DataFrame) -> pl.DataFrame:
        self.called()
        return batch


class Key(Noting):
    def __call__(self, item: Item) -> str:
        self.called()
        return item.user


class Reduce(Noting):
    def __call__(self, one: Item, other: Item) -> Item:
        self.called()
        return Item(one.user, max(one.n, other.n))


class Process(Noting, KeyedProcess[str, Item, Item]):
    def process(self, item: Item, ctx: Ctx) -> Iterator[Item]:
        self.called()
        yield item


class Count(Noting, AggregateFunction[Item, int, int]):
    def create_accumulator(self) -> int:
        return 0

    def add(self, item: Item, accumulator: int) -> int:
        self.called()
        return accumulator + 1

    def get_result(self, accumulator: int) -> int:
        return accumulator

    def merge(self, one: int, other: int) -> int:
        return one + other


class Foreach(Noting):
    def __call__(self, item: Item) -> None:
        self.called()


def every_kind(notes: Path, **of_map: Any) -> Job:
    """A job with a function object wherever there can be one."""
    job = Job("lives", params={"plus": 1, "token": secret(env="LIVES_TOKEN")})
    strategy = WatermarkStrategy.bounded_out_of_orderness("0 s", event_time="n")
    items = job.from_elements(*(Item(f"k{n % 5}", n) for n in range(40)), watermarks=strategy).rebalance()
    mapped = items.map(Map(notes, **of_map), uid="map").filter(Filter(notes), uid="filter")
    mapped = mapped.flat_map(FlatMap(notes).__call__, uid="flat-map")
    rows = mapped.map_batches(Batches(notes), Item, uid="batches")
    rows.key_by(Key(notes)).process(Process(notes), uid="process").collect(uid="processed")
    rows.key_by("user").reduce(Reduce(notes), uid="reduce").foreach(Foreach(notes), uid="foreach")
    counts = rows.key_by("user").window(tumbling("1 s")).aggregate(n=Count(notes), uid="window")
    counts.collect(uid="counts")
    reduced = (
        rows.key_by("user").window(tumbling("1 s")).reduce(Reduce(notes, "WindowReduce"), uid="windowed")
    )
    reduced.collect(uid="reduced")
    return job


def noted(notes: Path) -> list[dict[str, Any]]:
    names = ("what", "name", "uid", "subtask", "attempt", "object", "thread")
    return [dict(zip(names, json.loads(line), strict=True)) for line in notes.read_text().splitlines()]
