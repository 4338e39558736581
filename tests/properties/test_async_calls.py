"""`map_async` against a plain map: any records, capacity and failures, whatever crashes.

The simulation draws the order of answers, parallelism and crashes from a seed of each example. What is wrong
with calls in flight is found by the mutants of simulation/test_async_calls.py.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from onceflow import Job, WatermarkStrategy, count, tumbling
from onceflow.runtime.errors import OnceflowError
from onceflow.runtime.operators.async_calls.async_operator import AsyncOperator
from onceflow.runtime.testing.mutation import Mutant, mutated
from onceflow.runtime.testing.violations import Violation
from onceflow.testing import SimulationError, run, simulate


@dataclass(frozen=True)
class Order:
    id: int
    ts: int


@dataclass(frozen=True)
class Priced:
    id: int
    item: int
    cents: int


@dataclass
class Ask:
    """Answers with the price; of orders whose number can be divided by `fails`, each other call fails."""

    fails: int
    calls: Counter[int] = field(default_factory=Counter)

    async def __call__(self, order: Order) -> Priced:
        self.calls[order.id] += 1
        if self.fails and order.id % self.fails == 0 and self.calls[order.id] % 2:
            raise OSError("away")
        return Priced(order.id, order.id % 3, order.id * 100)


@dataclass(frozen=True)
class Case:
    ordered: bool
    capacity: int
    fails: int

    def job(self) -> Job:
        job = Job("prices", max_parallelism=8)
        times = WatermarkStrategy.bounded_out_of_orderness("1 h", event_time="ts")
        orders = job.from_elements(Order(0, 0), watermarks=times, uid="orders")
        ask, at_once = Ask(self.fails), self.capacity
        found = orders.map_async(ask, ordered=self.ordered, capacity=at_once, retries=9, uid="ask")
        found.collect(uid="priced")
        counted = found.key_by("item").window(tumbling("50 ms")).aggregate(orders=count(), uid="count")
        counted.collect(uid="counted")
        return job


def check(case: Case, orders: list[Order], splits: int, seed: int) -> None:
    with run(case.job(), parallelism=1, orders=orders) as test:
        test.finish()
        priced = [row["id"] for row in test.rows("priced")]
        counted = Counter[tuple[int, int]]()
        for row in test.rows("counted"):
            counted[row["item"], row["window_start"]] += row["orders"]
    if case.ordered:
        assert priced == [order.id for order in orders]
    assert Counter(priced) == Counter(order.id for order in orders)
    assert counted == Counter((order.id % 3, order.ts // 50 * 50) for order in orders)
    inputs = {"orders": {f"s{n}": orders[n::splits] for n in range(splits)}}
    simulate(case.job(), inputs, seeds=[seed])


CASES = st.builds(Case, st.booleans(), st.integers(1, 5), st.integers(0, 3))
ORDERS = st.lists(st.builds(Order, st.integers(0, 20), st.integers(0, 300)), min_size=1, max_size=25)
MANY = [Order(n, n * 10) for n in range(25)]


@settings(max_examples=15, deadline=None)
@given(CASES, ORDERS, st.integers(1, 3), st.integers(1, 1_000))
@example(Case(True, 3, 2), MANY, 2, 1)
@example(Case(False, 2, 1), MANY, 2, 3)
def test_each_record_is_answered_once(case: Case, orders: list[Order], splits: int, seed: int) -> None:
    check(case, orders, splits, seed)


def check_all(seeds: range) -> None:
    for seed in seeds:
        check(Case(False, 3, 0), MANY, 2, seed)


def _overtaken(self: AsyncOperator) -> bool:
    return False


def test_answers_that_a_watermark_overtakes_are_found() -> None:
    mutant = Mutant("a watermark overtakes", [(AsyncOperator, "holds", property(_overtaken))])
    found = pytest.raises((SimulationError, OnceflowError, Violation, AssertionError))
    with mutated(mutant), found:
        check_all(range(1, 9))
