"""Watermark alignment on a real broker: a topic of today waits for one that begins yesterday."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pytest
from confluent_kafka import Producer

from onceflow import Ctx, Job, KeyedProcess, ValueState, WatermarkStrategy
from onceflow.connectors.formats import Json
from onceflow.connectors.kafka import KafkaSource
from onceflow.runtime.contracts.batch_size import RECORDS_FIRST

pytestmark = pytest.mark.kafka

HOUR_MS = 3_600_000
START_MS = 1_700_000_000_000
RECENT_MS = START_MS + 23 * HOUR_MS
DRIFT_MS = HOUR_MS // 2
PARTITIONS = 2
OLD, RECENT = 24_000, 20_000


@dataclass(frozen=True)
class Event:
    topic: str
    all: int
    ts: int


@dataclass(frozen=True)
class Seen:
    number: int
    topic: str
    ts: int


class InOrder(KeyedProcess[int, Event, Seen]):
    """Numbers the records of both topics, in the order in which they come."""

    count = ValueState("count", int)

    def process(self, event: Event, ctx: Ctx) -> Iterator[Seen]:
        number = self.count.get() or 0
        self.count.set(number + 1)
        yield Seen(number, event.topic, event.ts)


def fill(servers: str, topic: str, name: str, first_ms: int, span_ms: int, count: int) -> None:
    producer = Producer({"bootstrap.servers": servers, "queue.buffering.max.messages": 2 * count})
    for n in range(count):
        event = {"topic": name, "all": 0, "ts": first_ms + n * span_ms // count}
        producer.produce(topic, json.dumps(event).encode(), partition=n % PARTITIONS)
    assert producer.flush(120) == 0


def early(servers: str, topics: dict[str, str], is_aligned: bool) -> tuple[int, set[str]]:
    """How many records of today were there while yesterday's were more than the drift (and an hour, since
    what is on its way counts, too) away, and the reasons that the job gave for waiting."""
    job = Job("aligned")
    times = WatermarkStrategy.monotonous("ts")
    if is_aligned:
        times = times.with_watermark_alignment(DRIFT_MS)
    streams = [
        job.source(
            KafkaSource(bootstrap_servers=servers, topics=topic, value=Json(Event), until="latest"),
            watermarks=times,
            uid=name,
            rate_limit="6000/s" if name == "old" else None,  # so that nothing but alignment holds today's
        )
        for name, topic in topics.items()
    ]
    rows = streams[0].union(streams[1]).key_by("all").process(InOrder(), uid="in-order").collect()
    heard = Heard()
    job.run(master="threads[2]", reporter=heard)
    assert len(rows) == OLD + RECENT, "each record once"
    reached_ms, found = START_MS, 0
    for row in sorted(rows, key=lambda row: row.number):
        if row.topic == "old":
            reached_ms = max(reached_ms, row.ts)
        found += row.topic == "recent" and row.ts - reached_ms > DRIFT_MS + HOUR_MS
    return found, heard.paused


class Heard:
    """A Reporter that keeps which splits were said to be paused."""

    def __init__(self) -> None:
        self.paused: set[str] = set()

    def event(self, name: str, fields: Any) -> None: ...

    def progress(self, progress: Any) -> None:
        self.paused |= {reason for reason in progress.waiting if "paused" in reason}

    def close(self) -> None: ...


def test_records_of_today_wait_for_those_of_yesterday(broker: Any, new_topic: Any) -> None:
    servers = broker.bootstrap_servers
    topics = {name: new_topic(name, PARTITIONS) for name in ("old", "recent")}
    fill(servers, topics["old"], "old", START_MS, 24 * HOUR_MS, OLD)
    fill(servers, topics["recent"], "recent", RECENT_MS, HOUR_MS, RECENT)
    aligned, paused = early(servers, topics, is_aligned=True)
    assert aligned <= PARTITIONS * RECORDS_FIRST, "nobody knows where a partition is before its first records"
    assert any("source 'recent'" in reason for reason in paused), paused
    not_aligned, _ = early(servers, topics, is_aligned=False)
    assert not_aligned > RECENT // 2, "else this test shows nothing"
