"""Triggers in a program: what is refused when it is built, and what the plan and the state say of them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pytest

from onceflow import (
    Job,
    Trigger,
    TriggerResult,
    ValueState,
    WatermarkStrategy,
    at_watermark,
    col,
    count,
    delta,
    every,
    every_processing_time,
    every_rows,
    global_window,
    purging,
    tumbling,
)
from onceflow.runtime.errors import GraphError
from onceflow.runtime.operators.assigners.firings import Firings, Results
from onceflow.runtime.operators.describe import windows_of


@dataclass(frozen=True)
class Purchase:
    user: str
    amount: int
    ts: int


class Own(Trigger[Purchase]):
    seen = ValueState("seen", int)

    def on_element(self, element: Purchase, *_: Any) -> TriggerResult:
        return TriggerResult.FIRE if element.amount > 3 else TriggerResult.CONTINUE


ROWS = [Purchase("ann", n, 1_000 * n) for n in range(6)]


def windows(window: Any = None, has_event_time: bool = True) -> tuple[Job, Any]:
    job = Job("job")
    watermarks = WatermarkStrategy.monotonous("ts") if has_event_time else None
    rows = job.from_elements(*ROWS, watermarks=watermarks)
    return job, rows.key_by("user").window(window or tumbling("1 h"))


def test_a_program_with_a_trigger_of_its_own_sends_what_it_fires() -> None:
    job, windowed = windows()
    rows = windowed.trigger(Own(), results="accumulating").aggregate(n=count()).collect()
    job.run(master="threads[1]")
    assert [row["n"] for row in rows] == [5, 6]


def test_a_stream_without_event_time_has_global_windows() -> None:
    job, windowed = windows(global_window(), has_event_time=False)
    rows = windowed.trigger(purging(every_rows(4))).aggregate(n=count()).collect()
    by_clock = windowed.trigger(every_processing_time("1 h"), results="discarding")
    clock = by_clock.aggregate(n=count()).collect()
    job.run(master="threads[1]")
    assert rows == [{"user": "ann", "n": 4}]
    assert clock == [{"user": "ann", "n": 6}]


def test_results_that_retract_need_a_sink_that_takes_changes() -> None:
    job, windowed = windows()
    windowed.trigger(every_rows(2)).aggregate(n=count()).print()
    with pytest.raises(GraphError, match='results="accumulating"'):
        job.build()


def test_wrong_uses_are_refused_with_a_sentence() -> None:
    _, windowed = windows()
    with pytest.raises(GraphError, match=r"what is purged can't be sent again"):
        windowed.trigger(purging(every_rows(2)), results="accumulating")
    with pytest.raises(GraphError, match=r"results='all'\): use one of 'retracting', 'accumulating'"):
        windowed.trigger(every_rows(2), results="all")
    with pytest.raises(GraphError, match=r"but its results were said to be 'discarding': say it once"):
        windowed.trigger(purging(every_rows(2))).allowed_lateness("1 s", results="retracting")
    with pytest.raises(GraphError, match=r"or an object of a class derived from Trigger"):
        windowed.trigger(Own)
    with pytest.raises(GraphError, match=r"never ends, so it would never send anything"):
        windows(global_window())[1].aggregate(n=count())
    with pytest.raises(GraphError, match=r"needs event time: pass watermarks= to the source"):
        windows(global_window(), has_event_time=False)[1].trigger(every("1 s")).aggregate(n=count())


def test_the_default_trigger_changes_nothing_and_lateness_keeps_what_was_said() -> None:
    _, windowed = windows()
    assert windowed.trigger(at_watermark())._firings == Firings()
    late = windowed.trigger(every_rows(2), results="discarding").allowed_lateness("1 s")
    assert late._firings == Firings(1_000, Results.DISCARDING, every_rows(2))


def test_plan_and_state_say_the_trigger() -> None:
    firings = Firings(0, Results.ACCUMULATING, every_rows(2))
    assert firings.title == ", fires every 2 rows, accumulating"
    assert windows_of(tumbling(10), firings).trigger == "fires every 2 rows"
    assert Firings(5, Results.ACCUMULATING, Own()).title == ", fires by Own, 5 ms of lateness, accumulating"


def test_a_delta_of_an_expression_is_a_trigger_like_others() -> None:
    """Expressions can't be compared: a comparison of the two triggers was a TypeError."""
    job = Job("deltas")
    times = WatermarkStrategy.bounded_out_of_orderness("1 s", event_time="ts")
    windows = job.from_elements(*ROWS, watermarks=times).key_by("user").window(tumbling("10 s"))
    early = delta(col("amount") + col("ts"), 2_000)
    sums = windows.trigger(at_watermark(early=early), results="accumulating").aggregate(n=count())
    sums.print(uid="sums")
    job.build()
