"""job.data_generator(...): at its rate, and refused where it can't be made."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest

from onceflow import Job, WatermarkStrategy, count, tumbling
from onceflow.connectors.generator.source import GeneratorReader, generator_source
from onceflow.runtime.clock import ManualClock
from onceflow.runtime.contracts import ReaderContext
from onceflow.runtime.errors import UsageError, UserFunctionError


@dataclass(frozen=True)
class Purchase:
    user: str
    amount: int
    ts: int


def purchase(n: int) -> Purchase:
    return Purchase(f"u{n % 3}", n, 1_000 * n)


def no_annotation(n):  # type: ignore[no-untyped-def]
    return n


def breaks(n: int) -> Purchase:
    if n == 3:
        raise ValueError("no threes")
    return purchase(n)


def wrong(n: int) -> Purchase:
    return Purchase("a", "b", n)  # type: ignore[arg-type]


def opened(
    of: Any, clock: ManualClock, rate: float | None = None, count: int | None = None
) -> GeneratorReader:
    source = generator_source(of, rate, count, 0, None, None)
    reader = source.open_reader(ReaderContext("job", "made", 0, 1, clock))
    reader.add_splits(source.open_enumerator("job", clock).initial_splits())
    return reader


def made_in(reader: GeneratorReader) -> int:
    """How many there are now."""
    total = 0
    while (fetch := reader.poll(0, 1_000)) is not None:
        total += fetch.records.num_rows
    return total


def test_records_come_at_their_rate_and_go_on_at_it_after_a_restore() -> None:
    clock = ManualClock()
    reader = opened(Purchase, clock, rate=100)
    assert made_in(reader) == 4, "one of each split"
    for _ in range(10):
        clock.advance(1_000)
        assert made_in(reader) == 100
    source = generator_source(Purchase, 100, None, 0, None, None)
    again = source.open_reader(ReaderContext("job", "made", 0, 2, clock))
    again.add_splits(reader.snapshot())
    assert made_in(again) == 4
    clock.advance(1_000)
    assert made_in(again) == 100


def test_a_function_makes_each_record_once() -> None:
    job = Job("made")
    rows = job.data_generator(purchase, count=10).collect()
    job.run(master="threads[2]")
    assert sorted(rows, key=lambda row: row.amount) == [purchase(n) for n in range(10)]


def test_the_column_with_event_time_moves_on_so_that_windows_fire() -> None:
    job = Job("made")
    watermarks = WatermarkStrategy.monotonous("ts")
    made = job.data_generator(Purchase, rate="100000/s", count=1_000, watermarks=watermarks)
    rows = made.key_by("user").window(tumbling("5 ms")).aggregate(n=count()).collect()
    job.run(master="threads[2]")
    assert sum(row["n"] for row in rows) == 1_000
    assert len({row["window_start"] for row in rows}) == 2


def test_an_endless_one_is_not_bounded() -> None:
    assert not generator_source(Purchase, 10, None, 0, None, None).is_bounded
    assert generator_source(Purchase, 10, 0, 0, None, None).is_bounded


def test_what_goes_wrong_in_the_function_is_named() -> None:
    with pytest.raises(UserFunctionError, match=r"breaks failed on record 3 .*no threes"):
        made_in(opened(breaks, ManualClock(), count=20))
    with pytest.raises(
        UserFunctionError, match="wrong made record 0: field 'amount' is declared int but is 'b'"
    ):
        made_in(opened(wrong, ManualClock(), count=20))


Make = Callable[[], object]
MISTAKES: list[tuple[Make, str]] = [
    (lambda: generator_source(Purchase, 0, None, 0, None, None), 'rate=0 is no rate: write .*"100/s"'),
    (lambda: generator_source(Purchase, "fast", None, 0, None, None), "rate='fast' is no rate"),
    (lambda: generator_source(Purchase, None, -1, 0, None, None), "count=-1: it is a number of records"),
    (lambda: generator_source(3, None, None, 0, None, None), "type=3: give a dataclass"),
    (lambda: generator_source(int, None, None, 0, None, None), "type=<class 'int'>: give a dataclass"),
    (
        lambda: generator_source(no_annotation, None, None, 0, None, None),
        "what no_annotation makes is not known",
    ),
    (lambda: generator_source(purchase, None, None, 0, {"user": ["a"]}, None), "fields= is for a type"),
    (lambda: generator_source(Purchase, None, None, 0, {"usr": ["a"]}, None), "did you mean 'user'"),
]


@pytest.mark.parametrize(("make", "sentence"), MISTAKES)
def test_each_mistake_has_its_sentence(make: Make, sentence: str) -> None:
    with pytest.raises(UsageError, match=sentence):
        make()
