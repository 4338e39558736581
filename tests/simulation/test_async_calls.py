"""Calls in flight, with slots and driver killed or frozen at any step: each record comes out once, in time.

Answers come in the order that the seed draws. Each mutant is one of the ways in which calls in flight go
wrong: they are not in the checkpoint, they are in it once more, a watermark or the end overtakes them.
"""

from __future__ import annotations

from dataclasses import dataclass

import pytest

from onceflow import Job, WatermarkStrategy, count, tumbling
from onceflow.runtime.errors import OnceflowError
from onceflow.runtime.operators.async_calls.async_operator import AsyncOperator
from onceflow.runtime.operators.async_calls.calls_in_flight import CallsInFlight
from onceflow.runtime.operators.async_calls.frozen_calls import TABLE, FrozenCalls
from onceflow.runtime.operators.operator import FrozenState
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
    item: str
    cents: int


INPUT = {
    "orders": {split: [Order(n, n * 10) for n in range(first, 40, 2)] for first, split in enumerate("ab")}
}


async def priced(order: Order) -> Priced:
    return Priced(order.id, f"i{order.id % 3}", order.id * 100)


def prices(ordered: bool, fn: object = priced) -> Job:
    """Each order asks for its price; then they are counted by item and time, which a row that a watermark has
    overtaken misses."""
    job = Job("prices", max_parallelism=8)
    times = WatermarkStrategy.bounded_out_of_orderness("20 ms", event_time="ts")
    orders = job.from_elements(Order(0, 0), watermarks=times, uid="orders")
    found = orders.map_async(fn, ordered=ordered, capacity=3, uid="ask")  # type: ignore[arg-type, var-annotated]
    found.collect(uid="priced")
    found.key_by("item").window(tumbling("50 ms")).aggregate(orders=count()).collect(uid="counted")
    return job


@pytest.mark.parametrize("ordered", [True, False])
def test_each_record_is_answered_once_and_in_time_whatever_is_killed(ordered: bool) -> None:
    report = simulate(prices(ordered), INPUT, seeds=15)
    assert report.rows == {"priced": 40, "counted": 24}
    assert len(report.crashes) >= 5, "of many kinds"


def test_a_checkpoint_holds_what_is_in_flight_and_is_asked_again_at_any_parallelism() -> None:
    gate: list[bool] = []

    class Away:
        def __call__(self, order: Order) -> Priced:
            if not gate:
                raise OSError("away")
            return Priced(order.id, "i", 1)

    job = Job("away")
    orders = job.from_elements(Order(0, 0), uid="orders")
    orders.map_async(Away(), capacity=2, retries=5, timeout=None, uid="ask").collect(uid="out")
    with run(job, parallelism=3) as test:
        test.push(orders=[Order(n, n) for n in range(7)])
        assert sorted(row["record"]["id"] for row in test.state("ask", TABLE)) == list(range(7))
        gate.append(True)
        test.crash(parallelism=2).advance_clock("1 min")
        assert sorted(row["id"] for row in test.rows("out")) == list(range(7))
        test.finish()


def _forgets(self: AsyncOperator) -> FrozenState:
    empty = FrozenCalls([], self._config.schema, self._config.has_event_time, self._key_groups)
    return FrozenState(self._key_groups, {TABLE: empty})


def _keeps_what_has_gone(self: CallsInFlight, call: object) -> None:
    _original_send(self, call)  # type: ignore[arg-type]
    self._gone = [*getattr(self, "_gone", []), call]  # type: ignore[attr-defined]


_original_send = CallsInFlight._send


def _with_what_has_gone(self: CallsInFlight) -> list[object]:
    return [*getattr(self, "_gone", [])[-1:], *self._unsent.values()]


MUTANTS = [
    Mutant("in flight is forgotten", [(AsyncOperator, "snapshot", _forgets)]),
    Mutant(
        "what has gone out is in the checkpoint",
        [(CallsInFlight, "_send", _keeps_what_has_gone), (CallsInFlight, "in_order", _with_what_has_gone)],
    ),
    Mutant("a watermark overtakes", [(AsyncOperator, "holds", property(lambda self: False))]),
    Mutant("nothing is held", [(AsyncOperator, "begin_hold", lambda self: None)]),
]


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.title)
def test_calls_that_go_wrong_are_found(mutant: Mutant) -> None:
    with mutated(mutant), pytest.raises((SimulationError, OnceflowError, Violation, AssertionError)):
        simulate(prices(ordered=False), INPUT, seeds=8)
