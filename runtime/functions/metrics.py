"""Metrics of the user's own: `ctx.metrics.counter("lookups").inc()`; served beside the job's.

They are of the attempt: a restart begins anew, and what it reads again counts again. The slot's thread
writes, the thread that shows life reads.
"""

from __future__ import annotations

import re
from bisect import bisect_left
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, TypeVar

import msgspec

from onceflow.runtime.clock import Clock
from onceflow.runtime.errors import UsageError

BUCKETS_MS = (1.0, 2.0, 5.0, 10.0, 20.0, 50.0, 100.0, 200.0, 500.0, 1_000.0, 2_000.0, 5_000.0, 10_000.0)
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
M = TypeVar("M", "Counter", "Gauge", "Histogram")


class Reading(msgspec.Struct, frozen=True):
    """A metric of one subtask as it is. `value`: of a histogram the sum of what was observed."""

    uid: str
    name: str
    kind: str
    value: float
    buckets: dict[str, int] = {}
    """For a histogram: how many were at most so much, by the bound as text; "+Inf": all."""


class Counter:
    """Counts up."""

    def __init__(self) -> None:
        self.value = 0

    def inc(self, by: int = 1) -> None:
        """Count so many more."""
        if by < 0:
            raise UsageError(f"a counter goes up only, not by {by}: a gauge may go down")
        self.value += by

    def read(self, uid: str, name: str) -> Reading:
        return Reading(uid, name, "counter", self.value)


class Gauge:
    """Is what it was set to last."""

    def __init__(self) -> None:
        self.value = 0.0

    def set(self, value: float) -> None:
        self.value = float(value)

    def read(self, uid: str, name: str) -> Reading:
        return Reading(uid, name, "gauge", self.value)


class Histogram:
    """How what was observed is spread."""

    def __init__(self, clock: Clock, bounds: Sequence[float] = BUCKETS_MS) -> None:
        self._clock = clock
        self._bounds = sorted(float(bound) for bound in bounds)
        self._counts = [0] * (len(self._bounds) + 1)
        self._sum = 0.0

    def observe(self, value: float) -> None:
        self._counts[bisect_left(self._bounds, value)] += 1
        self._sum += value

    @contextmanager
    def time(self) -> Iterator[None]:
        """Observe how long the block takes, in ms, also if it raises."""
        began_ms = self._clock.monotonic_ms()
        try:
            yield
        finally:
            self.observe(self._clock.monotonic_ms() - began_ms)

    def read(self, uid: str, name: str) -> Reading:
        total, buckets = 0, {}
        for bound, count in zip([*map(str, self._bounds), "+Inf"], list(self._counts), strict=True):
            total += count
            buckets[bound] = total
        return Reading(uid, name, "histogram", self._sum, buckets)


class MetricRegistry:
    """The user's metrics of one slot."""

    def __init__(self, clock: Clock) -> None:
        self.clock = clock
        self._metrics: dict[tuple[str, str], Counter | Gauge | Histogram] = {}

    def register(self, uid: str, name: str, metric: M) -> M:
        """The metric of this name, which may be there already. Raises UsageError for a name that Prometheus
        has not, or that is another kind's."""
        if not _NAME.fullmatch(name):
            raise UsageError(f"operator {uid!r}: metric {name!r}: use letters, digits and '_'")
        found: Any = self._metrics.setdefault((uid, name), metric)
        if type(found) is not type(metric):
            kind = type(found).__name__.lower()
            raise UsageError(f"operator {uid!r}: metric {name!r} is a {kind} already: name another")
        return found

    def read(self) -> list[Reading]:
        """All as they are; from any thread."""
        return [metric.read(uid, name) for (uid, name), metric in list(self._metrics.items())]


class FunctionMetrics:
    """What `ctx.metrics` is: makes the metrics of one operator, by name."""

    def __init__(self, registry: MetricRegistry, uid: str) -> None:
        self._registry = registry
        self._uid = uid

    def counter(self, name: str) -> Counter:
        """Summed over the subtasks where it is shown."""
        return self._registry.register(self._uid, name, Counter())

    def gauge(self, name: str) -> Gauge:
        """Shown for each subtask."""
        return self._registry.register(self._uid, name, Gauge())

    def histogram(self, name: str, bounds: Sequence[float] = BUCKETS_MS) -> Histogram:
        """`observe(value)`, or `with histogram.time():` for a duration in ms; summed over the subtasks."""
        return self._registry.register(self._uid, name, Histogram(self._registry.clock, bounds))


def summed(slots: Sequence[Sequence[Reading]]) -> dict[str, dict[str, Any]]:
    """What the subtasks have, by uid and name: a number for a counter, {"subtask": value} for a gauge,
    {"count", "sum", "buckets"} for a histogram."""
    totals: dict[str, dict[str, Any]] = {}
    for subtask, readings in enumerate(slots):
        for one in readings:
            of_uid = totals.setdefault(one.uid, {})
            match one.kind:
                case "counter":
                    of_uid[one.name] = of_uid.get(one.name, 0) + int(one.value)
                case "gauge":
                    of_uid.setdefault(one.name, {})[str(subtask)] = one.value
                case _:
                    total = of_uid.setdefault(one.name, {"count": 0, "sum": 0.0, "buckets": {}})
                    total["count"] += one.buckets["+Inf"]
                    total["sum"] += one.value
                    for bound, count in one.buckets.items():
                        total["buckets"][bound] = total["buckets"].get(bound, 0) + count
    return totals
