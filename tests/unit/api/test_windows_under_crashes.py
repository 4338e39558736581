"""Windows that no other simulation has, in whole jobs whose slots and driver are killed at any step."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pytest

from onceflow import (
    Job,
    WatermarkStrategy,
    at_watermark,
    count,
    count_window,
    cumulative,
    every_rows,
    evict_count,
    processing_time,
    sum_,
    tumbling,
)
from onceflow.connectors.formats import Json
from onceflow.runtime.operators.windows.count_operator import CountOperator
from onceflow.runtime.operators.windows.keyed_pane_operator import KeyedPaneOperator
from onceflow.runtime.operators.windows.pane_operator import PaneOperator
from onceflow.runtime.operators.windows.span_operator import SpanOperator
from onceflow.runtime.operators.windows.triggered_operator import TriggeredOperator
from onceflow.runtime.operators.windows.window_operator import WindowOperator
from onceflow.runtime.testing.mutation import Mutant, mutated
from onceflow.sinks.kafka import KafkaSink
from onceflow.testing import SimulationError, simulate


@dataclass(frozen=True)
class Purchase:
    user: str
    amount: int
    ts: int


@dataclass(frozen=True)
class Last:
    user: str
    amount: int


def last(user: str, window: Any, purchases: list[Purchase]) -> Iterator[Last]:
    yield Last(user, sum(each.amount for each in purchases))


PURCHASES = [Purchase("ab"[n % 2], n, 700 * n - 3_000 * (n % 5 == 4)) for n in range(30)]


def windows_of(kind: str) -> Job:
    job = Job(kind, max_parallelism=8)
    slack = "0 s" if kind == "late" else "1 h"
    times = WatermarkStrategy.bounded_out_of_orderness(slack, event_time="ts")
    by_user = job.from_elements(*PURCHASES[:1], watermarks=times, uid="purchases").key_by("user")
    numbers = {"n": count(), "total": sum_("amount")}
    match kind:
        case "count":
            rows = by_user.window(count_window(4)).aggregate(**numbers)
        case "cumulative":
            rows = by_user.window(cumulative("10 s", "2 s")).aggregate(**numbers)
        case "by-the-clock":  # long, since the same input gives other windows each time
            by_clock = by_user.window(processing_time(tumbling("365000 d"))).aggregate(**numbers)
            rows = by_clock.select("user", "n", "total")
        case "evicted":
            rows = by_user.window(tumbling("20 s")).evictor(evict_count(9)).process(last)
        case "late":  # which rows are late hangs on how they come; what all changes add up to does not
            windows = by_user.window(tumbling("5 s")).allowed_lateness("1 h")
            rows = windows.trigger(at_watermark(late=every_rows(2)), results="retracting").aggregate(
                **numbers
            )
        case _:
            early = by_user.window(cumulative("10 s", "2 s")).trigger(every_rows(2), results="discarding")
            rows = early.aggregate(**numbers)
    if kind == "late":  # the simulation stands in the place of the sink
        key = ("user", "window_start")
        sink = KafkaSink("localhost:1", "rows", key=key, key_format=Json(), upsert=True)
        rows.sink_to(sink, uid="rows")
    else:
        rows.print(uid="rows")
    return job


KINDS = ["count", "cumulative", "by-the-clock", "evicted", "late", "triggered"]


@pytest.mark.parametrize("kind", KINDS)
def test_windows_send_the_same_whatever_is_killed(kind: str) -> None:
    report = simulate(windows_of(kind), {"purchases": PURCHASES}, seeds=12)
    assert sum(report.crashes.values()) > 3
    assert report.rows["rows"] > 1


def begin_anew(self: object, states: object) -> None:
    """An operator that starts again has no windows any more."""


OPERATORS = (CountOperator, KeyedPaneOperator, PaneOperator, SpanOperator, TriggeredOperator, WindowOperator)


@pytest.mark.parametrize("kind", KINDS)
def test_windows_that_are_lost_are_found(kind: str) -> None:
    mutant = Mutant("windows are lost", [(operator, "restore", begin_anew) for operator in OPERATORS])
    with mutated(mutant), pytest.raises(SimulationError):
        simulate(windows_of(kind), {"purchases": PURCHASES}, seeds=40)
