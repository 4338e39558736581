"""A job on Kafka is started from a savepoint of one that goes on for ever, and ends where it is told."""

from __future__ import annotations

import json
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer

from onceflow import Job
from onceflow.connectors.formats import Json
from onceflow.connectors.kafka import KafkaSource
from onceflow.runtime.checkpoint.log_view import read_log
from onceflow.runtime.checkpoint.savepoints.taking import copy_savepoint
from onceflow.runtime.checkpoint.store_url import open_store
from onceflow.runtime.clock import SystemClock
from onceflow.sinks.files import FileSink
from onceflow.testing.background_job import BackgroundJob

pytestmark = pytest.mark.kafka
TIME_MS = 1_700_000_000_000
PARTITIONS, DEADLINE_S = 2, 120


@dataclass(frozen=True)
class Number:
    n: int


def produce(servers: str, topic: str, *numbers: int) -> None:
    """The n-th record is of n s after TIME_MS."""
    producer = Producer({"bootstrap.servers": servers, "log_level": 0})
    for n in numbers:
        at, text = TIME_MS + n * 1_000, json.dumps({"n": n})
        producer.produce(topic, text, partition=n % PARTITIONS, timestamp=at)
    assert producer.flush(60) == 0


def copying(servers: str, topic: str, out: Path) -> Job:
    job = Job("copy")
    source = KafkaSource(bootstrap_servers=servers, topics=[topic], value=Json(Number))
    job.source(source, uid="numbers").sink_to(FileSink(str(out), format="jsonl"), uid="out")
    return job


def written(out: Path) -> list[int]:
    lines = [line for file in out.rglob("*.jsonl") for line in file.read_text().splitlines()]
    return sorted(json.loads(line)["n"] for line in lines)


def test_it_ends_at_a_time_at_what_is_there_and_where_another_job_has_come(
    broker: Any, new_topic: Any, tmp_path: Path
) -> None:
    servers, topic = broker.bootstrap_servers, new_topic("numbers", PARTITIONS)
    produce(servers, topic, *range(10))
    first = BackgroundJob(copying(servers, topic, tmp_path / "first"), str(tmp_path / "ck"))
    deadline_s = time.monotonic() + DEADLINE_S
    while written(tmp_path / "first") != [*range(10)]:
        assert time.monotonic() < deadline_s, "it has not read what is there"
    first.stop()
    store, saved = open_store(str(tmp_path / "ck")), str(tmp_path / "saved")
    copy_savepoint(store, open_store(saved), SystemClock(), read_log(store).completed()[-1][1].checkpoint_id)
    produce(servers, topic, *range(10, 20))

    def run(name: str, until: str) -> list[int]:
        job = copying(servers, topic, tmp_path / name)
        options: dict[str, Any] = {"start_from": saved, "restart": "none", "until": until}
        job.run(str(tmp_path / f"ck-{name}"), master="threads[1]", **options)
        return written(tmp_path / name)

    assert run("by-time", f"{TIME_MS + 13_000}") == [10, 11, 12]
    assert run("latest", "latest") == [*range(10, 20)]
    assert run("as-far", str(tmp_path / "ck-by-time")) == [10, 11, 12]
    assert run("nothing", saved) == []
