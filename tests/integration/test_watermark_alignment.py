"""Watermark alignment on a real broker: a topic of today waits for one that begins yesterday."""

from __future__ import annotations

import json
import time
from dataclasses import dataclass
from typing import Any

import pytest
from confluent_kafka import Producer

from onceflow import Job, WatermarkStrategy
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
    ts: int


@dataclass(frozen=True)
class Seen:
    topic: str
    ts: int
    read_ns: int


def seen(event: Event) -> Seen:
    """Chained to its source, so that it is called for a record when that is read. (Behind a shuffle, records
    of one topic may overtake those of the other in the channels, however the splits are aligned.)"""
    return Seen(event.topic, event.ts, time.monotonic_ns())


def fill(servers: str, topic: str, name: str, first_ms: int, span_ms: int, count: int) -> None:
    producer = Producer({"bootstrap.servers": servers, "queue.buffering.max.messages": 2 * count})
    for n in range(count):
        event = {"topic": name, "ts": first_ms + n * span_ms // count}
        producer.produce(topic, json.dumps(event).encode(), partition=n % PARTITIONS)
    assert producer.flush(120) == 0


def early(servers: str, topics: dict[str, str], is_aligned: bool) -> tuple[int, Heard]:
    """How many records of today were read while yesterday's were more than the drift (and an hour, since
    what a slot knows of the others is old) away, and what the job said."""
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
        ).map(seen)
        for name, topic in topics.items()
    ]
    rows = streams[0].union(streams[1]).collect()
    heard = Heard()
    job.run(master="threads[2]", reporter=heard)
    assert len(rows) == OLD + RECENT, "each record once"
    reached_ms, found = START_MS, 0
    for row in sorted(rows, key=lambda row: row.read_ns):
        if row.topic == "old":
            reached_ms = max(reached_ms, row.ts)
        found += row.topic == "recent" and row.ts - reached_ms > DRIFT_MS + HOUR_MS
    return found, heard


class Heard:
    """A Reporter that keeps which splits were said to be paused, and what happened."""

    def __init__(self) -> None:
        self.paused: set[str] = set()
        self.events: list[str] = []

    def event(self, name: str, fields: Any) -> None:
        self.events.append(name)

    def progress(self, progress: Any) -> None:
        self.paused |= {reason for reason in progress.waiting if "paused" in reason}

    def close(self) -> None: ...


def test_records_of_today_wait_for_those_of_yesterday(broker: Any, new_topic: Any) -> None:
    servers = broker.bootstrap_servers
    topics = {name: new_topic(name, PARTITIONS) for name in ("old", "recent")}
    fill(servers, topics["old"], "old", START_MS, 24 * HOUR_MS, OLD)
    fill(servers, topics["recent"], "recent", RECENT_MS, HOUR_MS, RECENT)
    aligned, heard = early(servers, topics, is_aligned=True)
    told = f"{heard.paused}, {heard.events}"
    assert any("source 'recent'" in reason for reason in heard.paused), told
    # Nobody knows where a partition is before its first records.
    assert aligned <= PARTITIONS * RECORDS_FIRST, told
    not_aligned, _ = early(servers, topics, is_aligned=False)
    assert not_aligned > RECENT // 2, "else this test shows nothing"
