"""on_error=: what becomes of a record for which a function raises."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import polars as pl
import pydantic
import pytest

from onceflow import (
    Ctx,
    Job,
    KeyedProcess,
    ListState,
    MapState,
    Retryable,
    SideOutput,
    Timer,
    ValueState,
    WatermarkStrategy,
    col,
    errors_to,
    secret,
)
from onceflow.runtime.errors import GraphError, UserFunctionError
from onceflow.testing import run, simulate


@dataclass(frozen=True)
class Item:
    user: str
    n: int


@dataclass
class Mutable:
    seen: int


@dataclass(frozen=True)
class Number:
    n: int


class Small(pydantic.BaseModel):
    n: int = pydantic.Field(lt=6)


BAD = {2, 5, 6}
ITEMS = [Item(f"u{n % 2}", n) for n in range(8)]
GOOD = [item for item in ITEMS if item.n not in BAD]


def check(item: Item) -> Item:
    if item.n in BAD:
        raise ValueError(f"no {item.n}")
    return item


def keep(item: Item) -> bool:
    return bool(check(item))


def twice(item: Item) -> Iterator[Item]:
    yield item
    yield check(item)


def batch(rows: pl.DataFrame) -> pl.DataFrame:
    for n in rows["n"]:
        check(Item("", n))
    return rows


class Process(KeyedProcess[str, Item, Item]):
    """Does all that it can before it raises: nothing of it may be seen."""

    count = ValueState("count", int)
    values = ListState("values", int)
    entries = MapState("entries", int, int)
    inner = ValueState("inner", Mutable)
    side = SideOutput("side", Item)

    def process(self, item: Item, ctx: Ctx) -> Iterator[Item]:
        self.count.set((self.count.get() or 0) + 1)
        self.values.add(item.n)
        self.entries.put(item.n, item.n)
        self.entries.remove(item.n - 4)
        inner = self.inner.get() or Mutable(0)
        inner.seen += 1
        self.inner.set(inner)
        ctx.timers.delete_event_time(90 + item.n - 2)
        ctx.timers.event_time(90 + item.n)
        ctx.emit(self.side, item)
        yield item
        check(item)

    def on_timer(self, fired: Timer, ctx: Ctx) -> Iterator[Item]:
        inner = self.inner.get()
        assert inner is not None
        entries = sorted(self.entries.keys())
        yield Item(f"{ctx.key} {self.count.get()} {self.values.get()} {entries} {inner.seen}", fired.time)


def job(kind: str, on_error: Any, params: Any = None) -> Job:
    made = Job("policies", params=params)
    strategy = WatermarkStrategy.bounded_out_of_orderness("0 s", event_time="n")
    items = made.from_elements(*ITEMS, watermarks=strategy, uid="items")
    match kind:
        case "map":
            stream = items.map(check, on_error=on_error, uid="step")
        case "filter":
            stream = items.filter(keep, on_error=on_error, uid="step")
        case "flat_map":
            stream = items.flat_map(twice, on_error=on_error, uid="step")
        case "map_batches":
            stream = items.map_batches(batch, Item, on_error=on_error, uid="step")
        case _:
            stream = items.key_by("user").process(Process(), on_error=on_error, uid="step")
            stream.side_output("side").collect(uid="side")
    if on_error not in ("fail", "drop"):
        stream.side_output("failed").collect(uid="failed")
    stream.collect(uid="good")
    return made


KINDS = ("map", "filter", "flat_map", "map_batches", "process")


def expected(kind: str, sink: str = "good") -> list[Item]:
    """What comes out where the records that fail were never there."""
    with run(job(kind, "fail"), items=GOOD) as running:
        return sorted(running.finish().records(sink, Item), key=str)


@pytest.mark.parametrize("kind", KINDS)
def test_the_others_are_as_if_a_failed_record_had_not_been(kind: str) -> None:
    """For a KeyedProcess also its state, timers, and what it yielded and sent before it raised."""
    for on_error in ("drop", errors_to("failed")):
        with run(job(kind, on_error), items=ITEMS) as running:
            running.finish()
            assert sorted(running.records("good", Item), key=str) == expected(kind)
            if kind == "process":
                assert sorted(running.records("side", Item), key=str) == expected(kind, "side")
            if on_error == "drop":
                continue
            failed = running.rows("failed")
            assert sorted(row["record"]["n"] for row in failed) == sorted(BAD)


@pytest.mark.parametrize("kind", KINDS)
def test_a_failed_record_comes_with_its_error(kind: str) -> None:
    with run(job(kind, errors_to("failed")), items=ITEMS) as running:
        row = min(running.rows("failed"), key=lambda row: row["record"]["n"])
    assert row["record"] == {"user": "u0", "n": 2}
    assert (row["operator"], row["error"]) == ("step", "ValueError: no 2")
    assert row["traceback"].startswith("Traceback (most recent call last):\n")
    assert row["traceback"].endswith("ValueError: no 2\n")
    assert "in check" in row["traceback"]
    assert "stateless.py" not in row["traceback"].split("in check")[0] or kind == "filter"


@pytest.mark.parametrize("kind", KINDS)
def test_fail_is_what_happens_without_a_word(kind: str) -> None:
    with pytest.raises(UserFunctionError, match=r"operator 'step': .* failed on .*ValueError: no 2"):
        run(job(kind, "fail"), items=ITEMS).finish()


@pytest.mark.parametrize("kind", KINDS)
def test_a_crash_anywhere_gives_the_same_output(kind: str) -> None:
    report = simulate(job(kind, errors_to("failed")), {"items": ITEMS}, seeds=25)
    assert report.rows["failed"] == len(BAD)
    assert report.rows["good"] == len(expected(kind))


def test_what_no_record_is_to_blame_for_fails_the_attempt_all_the_same() -> None:
    def away(item: Item) -> Item:
        raise Retryable("the service is away")

    made = Job("away")
    made.from_elements(*ITEMS, uid="items").map(away, on_error="drop", uid="step").collect()
    with pytest.raises(Retryable, match=r"operator 'step': .*away failed on .*the service is away"):
        run(made, items=ITEMS)

    def wrong(item: Item) -> Item:
        return 3  # type: ignore[return-value]

    made = Job("wrong")
    made.from_elements(*ITEMS, uid="items").map(wrong, on_error="drop", uid="step").collect()
    with pytest.raises(UserFunctionError, match="operator 'step'"):
        run(made, items=ITEMS)


def test_event_time_and_columns_of_failed_records_are_those_of_the_rows() -> None:
    """All columns, although the function reads one; and windows over them fire on the same watermark."""
    made = Job("windows")
    strategy = WatermarkStrategy.bounded_out_of_orderness("0 s", event_time="n")

    def positive(number: Number) -> bool:
        return 1 / number.n > 0

    items = made.from_elements(*ITEMS, watermarks=strategy, uid="items")
    stream = items.filter(positive, on_error=errors_to("failed"))
    failed = stream.side_output("failed")
    failed.select(col("record").struct.field("user"), "error").key_by("user").reduce(lambda a, b: a).collect(
        uid="f"
    )
    stream.select("n").collect(uid="good")
    with run(made, items=ITEMS) as running:
        assert running.rows("f") == [{"user": "u0", "error": "ZeroDivisionError: division by zero"}]
        assert len(running.rows("good")) == 7


def test_a_record_that_the_type_does_not_take_has_failed() -> None:
    def small(item: Small) -> bool:
        return True

    made = Job("types")
    stream = made.from_elements(*ITEMS, uid="items").filter(small, on_error=errors_to("failed"))
    stream.side_output("failed").collect(uid="failed")
    stream.collect(uid="good")
    with run(made, items=ITEMS) as running:
        assert sorted(row["record"]["n"] for row in running.rows("failed")) == [6, 7]
        assert len(running.rows("good")) == 6


def test_secrets_are_in_no_failed_record() -> None:
    def fail(item: Item) -> Item:
        raise ValueError("with hunter2")

    made = Job("secret", params={"token": secret()})
    stream = made.from_elements(*ITEMS, uid="items").map(fail, on_error=errors_to("failed"))
    stream.side_output("failed").collect(uid="failed")
    stream.collect(uid="good")
    with run(made, params={"token": "hunter2"}, items=ITEMS) as running:
        assert {row["error"] for row in running.rows("failed")} == {"ValueError: with ***"}
        assert "hunter2" not in str(running.rows("failed"))


def test_what_would_be_lost_in_silence_is_refused() -> None:
    items = Job("refused").from_elements(*ITEMS)
    with pytest.raises(GraphError, match='on_error=\'dorp\': write "fail", "drop", or errors_to'):
        items.map(check, on_error="dorp")
    with pytest.raises(GraphError, match="on_error= is for a function"):
        items.filter(col("n") > 1, on_error="drop")
    with pytest.raises(GraphError, match="its class has a side output 'side'"):
        items.key_by("user").process(Process(), on_error=errors_to("side"))
    with pytest.raises(GraphError, match="a side output needs a name"):
        errors_to("")
    made = Job("loose")
    made.from_elements(*ITEMS).map(check, uid="step", on_error=errors_to("failed")).collect()
    with pytest.raises(
        GraphError, match=r"the failed records of 'step' .* go nowhere: take them by .side_output"
    ):
        made.build()


def test_a_function_over_a_side_output_has_its_columns() -> None:
    made = Job("behind")
    stream = made.from_elements(*ITEMS, uid="items").map(check, on_error=errors_to("failed"))

    def note(row: Any) -> bool:
        return row.error.startswith("ValueError")

    stream.side_output("failed").filter(note, uid="noted").rebalance().collect(uid="f")
    stream.collect(uid="good")
    with run(made, items=ITEMS) as running:
        assert len(running.rows("f")) == len(BAD)
