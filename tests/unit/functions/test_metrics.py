"""Metrics of the user's own: what they count, and what comes of those of several subtasks."""

from __future__ import annotations

import msgspec
import pytest

from onceflow.runtime.clock import ManualClock
from onceflow.runtime.errors import UsageError
from onceflow.runtime.functions.metrics import FunctionMetrics, MetricRegistry, Reading, summed


def test_what_several_subtasks_count_comes_together() -> None:
    slots = []
    for subtask in (0, 1):
        clock = ManualClock()
        registry = MetricRegistry(clock)
        metrics = FunctionMetrics(registry, "enrich")
        metrics.counter("lookups").inc()
        metrics.counter("lookups").inc(2)
        metrics.gauge("queued").set(5 + subtask)
        took = metrics.histogram("took_ms", bounds=[1, 10])
        for took_ms in (1, 5, 100):
            with took.time():
                clock.advance(took_ms)
        sent = msgspec.json.encode(registry.read())
        slots.append(msgspec.json.decode(sent, type=list[Reading]))
    assert summed([*slots, []]) == {
        "enrich": {
            "lookups": 6,
            "queued": {"0": 5.0, "1": 6.0},
            "took_ms": {"count": 6, "sum": 212.0, "buckets": {"1.0": 2, "10.0": 4, "+Inf": 6}},
        }
    }


def test_a_wrong_name_kind_or_step_is_refused() -> None:
    metrics = FunctionMetrics(MetricRegistry(ManualClock()), "enrich")
    metrics.counter("n")
    with pytest.raises(UsageError, match="'enrich': metric 'n' is a counter already"):
        metrics.gauge("n")
    with pytest.raises(UsageError, match="metric 'a-b': use letters"):
        metrics.gauge("a-b")
    with pytest.raises(UsageError, match="goes up only, not by -1"):
        metrics.counter("n").inc(-1)
