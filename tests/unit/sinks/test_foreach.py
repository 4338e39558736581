"""foreach and foreach_batch: what the function is given, when, and what is said when it fails."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import polars as pl
import pyarrow as pa
import pytest

from onceflow import BatchContext, Job
from onceflow.connectors.staged_rows import BATCH_ROWS_MAX
from onceflow.runtime.api.stream import Stream
from onceflow.runtime.errors import GraphError, JobFailedError
from onceflow.runtime.graph.plan import describe


@dataclass(frozen=True)
class Purchase:
    user: str
    amount: int


@dataclass(frozen=True)
class Other:
    name: str


ROWS = [Purchase("ann", 1), Purchase("bob", 2)]


def run(use: Callable[[Stream[Purchase]], None]) -> None:
    job = Job("foreach")
    use(job.from_records(ROWS))
    job.run(master="threads[2]")


def test_each_record_comes_in_its_order() -> None:
    seen: list[Purchase] = []
    run(lambda s: s.foreach(seen.append))
    assert seen == ROWS


def test_a_batch_is_what_the_annotation_says() -> None:
    seen: dict[str, Any] = {}

    def arrow(batch: pa.RecordBatch) -> None:
        seen["arrow"] = batch.to_pylist()

    def frame(batch: pl.DataFrame) -> None:
        seen["frame"] = batch["amount"].sum()

    def typed(batch: list[Purchase]) -> None:
        seen["typed"] = batch

    def untyped(batch: list) -> None:  # type: ignore[type-arg]
        seen["untyped"] = [row.amount for row in batch]

    def any_of_them(batch, told=None):  # type: ignore[no-untyped-def]
        seen["any"] = type(batch)

    def all_of_them(stream: Stream[Purchase]) -> None:
        for function in (arrow, frame, typed, untyped, any_of_them):
            stream.foreach_batch(function)

    run(all_of_them)
    assert seen == {
        "arrow": [{"user": "ann", "amount": 1}, {"user": "bob", "amount": 2}],
        "frame": 3,
        "typed": ROWS,
        "untyped": [1, 2],
        "any": pa.RecordBatch,
    }


def test_a_batch_has_a_name_of_its_own() -> None:
    told: list[BatchContext] = []

    def take(batch: pa.RecordBatch, context: BatchContext) -> None:
        told.append(context)

    job = Job("foreach")
    job.from_records(pa.table({"n": list(range(BATCH_ROWS_MAX + 5))})).foreach_batch(take, uid="out")
    job.run(master="threads[1]")
    assert len({context.batch_id for context in told}) == len(told) > 1
    assert [context.part for context in told] == list(range(len(told)))
    first = told[0]
    assert (first.uid, first.job, first.subtask, first.checkpoint_id) == ("out", "foreach", 0, 1)
    assert first.batch_id.endswith(".out.1.0.0")


def test_a_function_that_fails_is_named_with_the_record() -> None:
    def breaks(purchase: Purchase) -> None:
        raise ValueError("no bobs")

    def breaks_too(batch: list[Purchase]) -> None:
        raise ValueError("no bobs")

    for use, sentence in (
        (
            lambda s: s.foreach(breaks),
            r"breaks failed on the record Purchase\(user='ann', amount=1\) \(at .*no bobs",
        ),
        (lambda s: s.foreach_batch(breaks_too), r"breaks_too failed on batch \S+ of 2 rows \(at .*no bobs"),
    ):
        with pytest.raises(JobFailedError, match=sentence):
            run(use)


def takes_other(other: Other) -> None: ...


def takes_others(others: list[Other]) -> None: ...


def takes_text(text: list[str]) -> None: ...


def takes_three(a: pa.RecordBatch, b: BatchContext, c: int) -> None: ...


def words() -> Iterator[str]:
    yield "a"


@pytest.mark.parametrize(
    ("use", "sentence"),
    [
        (lambda s: s.foreach(takes_other), "takes Other, but the stream has no column 'name'"),
        (lambda s: s.foreach_batch(takes_others), "takes Other, but the stream has no column 'name'"),
        (lambda s: s.foreach_batch(takes_text), r"takes list\[str\]; expected a list of records"),
        (
            lambda s: s.foreach_batch(takes_three),
            "takes_three takes a, b, c; foreach_batch gives a batch, and",
        ),
        (lambda s: s.foreach(3), "3 is a int: expected a function"),
    ],
)
def test_each_mistake_has_its_sentence(use: Callable[[Stream[Any]], None], sentence: str) -> None:
    with pytest.raises(GraphError, match=sentence):
        use(Job("foreach").from_records(ROWS))


def test_the_plan_says_that_it_is_at_least_once() -> None:
    job = Job("foreach")
    job.from_records(words).foreach(print)
    source, sink = describe(job.build())["chains"][0]["operators"]
    assert "exactly once if words yields the same records each time" in source["note"]
    assert sink["note"] == (
        "at least once: print is called when a checkpoint is durable; after a failure records may come again"
    )
