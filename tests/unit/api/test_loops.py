"""`stream.iterate(...)`: what it makes, and what it refuses."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import pytest

from onceflow import Job, WatermarkStrategy, col, count, tumbling
from onceflow.runtime.errors import GraphError


@dataclass(frozen=True)
class Number:
    n: int
    steps: int


@dataclass(frozen=True)
class Maybe:
    n: int | None
    steps: int


def maybe_none(number: Number) -> Maybe:
    return Maybe(number.n, number.steps)


def numbers(*given: int) -> tuple[Job, Any]:
    job = Job("numbers")
    return job, job.from_elements(*[Number(n, 0) for n in given], uid="numbers")


def collatz(number: Number) -> Number:
    half = number.n // 2 if number.n % 2 == 0 else 3 * number.n + 1
    return Number(half, number.steps + 1)


def to_one(loop: Any) -> tuple[Any, Any]:
    return loop.filter(col("n") > 1).map(collatz), loop.filter(col("n") == 1)


@pytest.mark.parametrize("parallelism", [1, 2])
def test_rows_go_round_until_the_body_lets_them_out_and_then_the_job_ends(parallelism: int) -> None:
    job, stream = numbers(*range(1, 40))
    rows = stream.iterate(to_one, uid="collatz").collect()
    job.run(master=f"threads[{parallelism}]")
    assert len(rows) == 39
    assert max(row.steps for row in rows) == 111  # of 27


def test_rows_may_go_round_through_an_exchange_and_grow_in_number() -> None:
    """Two children of each row but the last generation's; each generation by key in other subtasks."""

    def children(number: Number) -> Iterator[Number]:
        if number.steps < 7:
            yield Number(2 * number.n, number.steps + 1)
            yield Number(2 * number.n + 1, number.steps + 1)

    job, stream = numbers(1)
    rows = stream.iterate(
        lambda loop: (loop.key_by("n").reduce(last).flat_map(children), loop), uid="tree"
    ).collect()
    job.run(master="threads[2]")
    assert sorted(row.n for row in rows) == list(range(1, 256))


def last(so_far: Number, number: Number) -> Number:
    return number


def same(number: Number) -> Number:
    return number


def test_a_function_before_a_loop_and_one_in_it_have_their_records() -> None:
    """The first wants to know where its records came from; behind the head of a loop nobody knows."""
    job, stream = numbers(*range(1, 20))

    def body(loop: Any) -> tuple[Any, Any]:
        moved = loop.filter(col("n") > 1).map(collatz).key_by("n").reduce(last)
        return moved, loop.filter(col("n") == 1)

    rows = stream.map(same).iterate(body, uid="collatz").key_by("n").reduce(last).collect()
    job.run(master="threads[2]")
    assert len(rows) == 19


def test_the_plan_says_what_goes_back_where() -> None:
    job, stream = numbers(1)
    stream.iterate(to_one, uid="collatz").print()
    names = {uid: node.name for chain in job.build().chains for uid, node in chain.nodes.items()}
    assert names["collatz"] == "iterate"
    assert names["collatz.back"] == "back to collatz"


def in_another_job(loop: Any) -> tuple[Any, Any]:
    _, other = numbers(1)
    return other, loop


def with_a_loop(loop: Any) -> tuple[Any, Any]:
    return loop.iterate(to_one, uid="inner"), loop


@pytest.mark.parametrize(
    ("body", "said"),
    [
        (lambda loop: loop, "must return two streams, those of the rows that go round again and of the rows"),
        (in_another_job, "belongs to another job"),
        (lambda loop: (loop.select("n"), loop), "the streams have different columns"),
        (with_a_loop, "there is a loop in it, 'inner': make one loop of them"),
    ],
)
def test_a_body_that_is_none_is_refused(body: Callable[[Any], Any], said: str) -> None:
    _, stream = numbers(1)
    with pytest.raises(GraphError, match=re.escape(said)):
        stream.iterate(body, uid="loop")


def test_what_goes_round_has_to_come_from_the_loop() -> None:
    _, stream = numbers(1)
    with pytest.raises(
        GraphError, match="'numbers', whose rows are to go round, does not come from the loop"
    ):
        stream.iterate(lambda loop: (stream, loop), uid="loop")


def test_a_column_that_may_be_null_only_on_the_way_back_is_refused() -> None:
    _, stream = numbers(1)
    with pytest.raises(GraphError, match=r"column 'n' may be null in what goes round again"):
        stream.iterate(lambda loop: (loop.map(maybe_none), loop), uid="loop")


def test_there_is_no_event_time_in_a_loop_nor_behind_it() -> None:
    job = Job("timed")
    times = WatermarkStrategy.bounded_out_of_orderness("1 s", event_time="steps")
    stream = job.from_elements(Number(1, 0), watermarks=times, uid="numbers")
    behind = stream.iterate(to_one, uid="loop")
    with pytest.raises(GraphError, match="event time"):
        behind.key_by("n").window(tumbling("1 s")).aggregate(n=count())
