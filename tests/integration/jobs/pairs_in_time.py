"""Joins two topics of events with the same key by event time, with those without a partner.

onceflow run pairs_in_time.py ... -- SERVERS LEFT_TOPIC RIGHT_TOPIC OUTPUT_TOPIC KIND SPAN RATE

SPAN is how far apart they are at most, or how long windows are, as KIND says.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import product
from typing import Any

from onceflow import CoGroup, GroupWindow, Job, WatermarkStrategy, col, tumbling
from onceflow.connectors.formats import Json
from onceflow.connectors.kafka import KafkaSource
from onceflow.sinks.kafka import KafkaSink


@dataclass(frozen=True)
class Event:
    key: int
    n: int
    ts: int
    text: str


@dataclass(frozen=True)
class Pair:
    key: int
    n: int | None
    n_right: int | None
    text: str | None


class Pairs(CoGroup[Event, Event, Pair]):
    """What the window join sends."""

    def group(self, left: list[Event], right: list[Event], window: GroupWindow) -> Iterator[Pair]:
        for ours, other in product(left or [None], right or [None]):
            text = None if ours is None else ours.text
            yield Pair(window.key, ours and ours.n, other and other.n, text)


KINDS: dict[str, Callable[[Any, Any, str], Any]] = {
    "interval": lambda left, right, span: left.interval_join(right, f"-{span}", span, how="full", uid="join"),
    "window": lambda left, right, span: left.window_join(right, tumbling(span), how="full", uid="join"),
    "groups": lambda left, right, span: left.co_group(right, tumbling(span), Pairs(), uid="join"),
    "temporal": lambda left, right, span: left.temporal_join(right, how="left", uid="join"),
}


def build(arguments: list[str]) -> Job:
    servers, left, right, output, kind, span, rate = arguments
    job, times = Job("pairs"), WatermarkStrategy.bounded_out_of_orderness("20 ms", event_time="ts")
    sides = [
        job.source(
            KafkaSource(bootstrap_servers=servers, topics=[topic], value=Json(Event), until="latest"),
            watermarks=times,
            uid=uid,
            rate_limit=rate,
        ).key_by("key")
        for uid, topic in (("left", left), ("right", right))
    ]
    rows = KINDS[kind](*sides, span).select("key", "n", "n_right", bytes=col("text").str.len_bytes())
    rows.sink_to(KafkaSink(bootstrap_servers=servers, topic=output), uid="pairs")
    return job
