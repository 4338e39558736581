"""Stream.split in programs: streams by name, what the plan says, and what is refused."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pytest

from onceflow import Job, WatermarkStrategy, col, count, tumbling
from onceflow.runtime.errors import GraphError, JobFailedError


@dataclass(frozen=True)
class Payment:
    id: int
    amount: int | None
    ts: int


def payments_of(job: Job) -> Any:
    rows = [Payment(n, amount, n) for n, amount in enumerate([5, 500, None, 50])]
    return job.from_elements(*rows, watermarks=WatermarkStrategy.monotonous("ts"))


def size_of(payment: Payment) -> str | None:
    return None if payment.amount is None else "large" if payment.amount > 100 else "small"


def test_streams_by_condition() -> None:
    job = Job("payments")
    streams = payments_of(job).split(
        {"large": col("amount") > 100, "medium": col("amount") > 10, "unread": col("amount") > 1},
        default="rest",
    )
    assert list(streams) == ["large", "medium", "unread", "rest"]
    large, rest = streams["large"].collect(), streams["rest"].collect()
    medium = streams["medium"].key_by("id").window(tumbling("1 s")).aggregate(n=count()).collect()
    job.run(master="threads[2]")
    assert large == [Payment(1, 500, 1)]
    assert rest == [Payment(2, None, 2)]
    assert [(row["id"], row["n"]) for row in medium] == [(3, 1)]


def test_streams_by_function() -> None:
    job = Job("payments")
    streams = payments_of(job).split(size_of, into=["large", "small"])
    small = streams["small"].map(lambda payment: payment, returns=Payment).collect()
    large = streams["large"].select("id").collect()
    job.run(master="threads[1]")
    assert (small, large) == ([Payment(0, 5, 0), Payment(3, 50, 3)], [{"id": 1}])


def test_the_plan_says_what_becomes_of_the_others() -> None:
    payments = payments_of(Job("payments"))
    dropped = payments.split({"large": col("amount") > 100})["large"]
    assert dropped._input.step.name == "split into large; others are dropped"
    kept = payments.split(size_of, into=["large", "small"], default="unknown")["unknown"]
    assert kept._input.step.name == "split into large, small; others to unknown"


@pytest.mark.parametrize(
    ("make", "sentence"),
    [
        (lambda s: s.split({}), "its streams have no names: write {name: condition, ...}"),
        (lambda s: s.split(size_of), 'say what size_of returns: into=["large", "small"]'),
        (lambda s: s.split(size_of, into="large"), "say what size_of returns"),
        (lambda s: s.split({"a": col("amount") > 1}, into=["a"]), "into= is for a function: leave it out"),
        (lambda s: s.split({"a": True}), 'a condition is a polars expression: write col("amount") > 100'),
        (lambda s: s.split({"a": col("amount")}), "a filter needs true or false"),
        (lambda s: s.split({"a": col("amuont") > 1}), "did you mean 'amount'"),
        (lambda s: s.split({"a": col("amount") > 1}, default="a"), "two streams are called 'a': rename one"),
        (lambda s: s.split({1: col("amount") > 1}), "1 is not the name of a stream: give a string"),
        (lambda s: s.split(5), "give conditions by name, or a function of a record that names its stream"),
    ],
)
def test_mistakes(make: Any, sentence: str) -> None:
    with pytest.raises(GraphError) as raised:
        make(payments_of(Job("payments")))
    assert sentence in str(raised.value)


@pytest.mark.parametrize(
    ("returned", "sentence"),
    [
        ("larg", r"returned 'larg' for .* \(did you mean 'large'\?\): return 'large' or None"),
        (["x"], r"returned \['x'\]"),
    ],
)
def test_a_name_that_there_is_not_ends_the_job(returned: Any, sentence: str) -> None:
    job = Job("payments")
    payments_of(job).split(lambda payment: returned, into=["large"])["large"].collect()
    with pytest.raises(JobFailedError, match=sentence):
        job.run(master="threads[1]")


def test_updates_and_deletes_are_not_torn_apart() -> None:
    job = Job("payments")
    windows = payments_of(job).key_by("id").window(tumbling("1 s")).allowed_lateness("1 s")
    windows.aggregate(n=count()).split({"many": col("n") > 1})["many"].print()
    with pytest.raises(GraphError, match=r"would send the updates and deletes of .* to different streams"):
        job.build()
