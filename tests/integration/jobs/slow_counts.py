"""Counts the events of each key by a function that takes a millisecond, which the topic is much faster than.

onceflow run slow_counts.py ... --unaligned -- SERVERS INPUT_TOPIC OUTPUT_TOPIC
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from dataclasses import dataclass

from onceflow import Ctx, Job, KeyedProcess, ValueState
from onceflow.connectors.formats import Json
from onceflow.connectors.kafka import KafkaSource
from onceflow.sinks.kafka import KafkaSink


@dataclass(frozen=True)
class Event:
    key: int
    n: int


@dataclass(frozen=True)
class Counted:
    key: int
    n: int
    count: int


class SlowCount(KeyedProcess[int, Event, Counted]):
    count = ValueState("count", int)

    def open(self, ctx: object) -> None:
        self._never = threading.Event()

    def process(self, event: Event, ctx: Ctx) -> Iterator[Counted]:
        self._never.wait(0.001)
        count = (self.count.get() or 0) + 1
        self.count.set(count)
        yield Counted(event.key, event.n, count)


def build(arguments: list[str]) -> Job:
    servers, topic, output = arguments
    job = Job("slow-counts")
    events = job.source(
        KafkaSource(bootstrap_servers=servers, topics=[topic], value=Json(Event), until="latest"),
        uid="events",
    )
    counted = events.key_by("key").process(SlowCount(), uid="count")
    counted.sink_to(KafkaSink(bootstrap_servers=servers, topic=output), uid="counted")
    return job
