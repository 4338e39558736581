"""A job from Kafka to Kafka that can't keep up, its barriers unaligned, killed again and again at changing
parallelism: each event is counted once, and the events of a key in their order."""

from __future__ import annotations

import json
import random
from collections import defaultdict
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition

from onceflow.connectors.kafka.embedded import EmbeddedKafka

pytestmark = pytest.mark.kafka
PROGRAM = Path(__file__).parent / "jobs" / "slow_counts.py"
KEYS = 50


@pytest.mark.parametrize(
    ("seed", "rows", "kills", "master"),
    [
        (1, 6_000, 2, "threads[3]"),
        *(pytest.param(n, 60_000, 12, "threads[3]", marks=pytest.mark.soak) for n in (2, 3)),
        pytest.param(4, 30_000, 5, "local[3]", marks=[pytest.mark.soak, pytest.mark.spark]),
    ],
)
def test_each_event_counts_once_whatever_is_killed(
    seed: int,
    rows: int,
    kills: int,
    master: str,
    start_job: Any,
    broker: EmbeddedKafka,
    new_topic: Callable[..., str],
    tmp_path: Path,
) -> None:
    pick = random.Random(seed)
    servers, topic, output = broker.bootstrap_servers, new_topic("events", 2), new_topic("counted", 2)
    produced = produce(servers, topic, rows, pick)
    in_flight, killed = 0, 0
    while True:
        job = start_job(
            tmp_path / "ck",
            servers,
            topic,
            output,
            program=PROGRAM,
            interval="100 ms",
            parallelism=pick.choice([1, 2, 3]),
            master=master,
            options=["--unaligned"],
        )
        since = 0
        for _ in range(pick.randrange(1, 4) if killed < kills else 0):
            done = job.wait_event("checkpoint_completed", after=since, timeout=180)
            since = job.events.index(done) + 1
            in_flight += done["in_flight_bytes"] > 0
        if killed == kills:
            break
        if not in_flight:  # on a busy machine the first checkpoints may come before the rows do
            job.wait_event("checkpoint_completed", lambda e: e["in_flight_bytes"] > 0, after=since)
            in_flight += 1
        job.kill_group()
        job.wait()
        killed += 1
    assert job.wait(300) == 0, job.story()
    assert in_flight >= killed // 2, "there was something to overtake"
    found = consume(servers, output)
    assert {key: [n for _, n in sorted(counted)] for key, counted in found.items()} == produced
    assert all(sorted(c for c, _ in found[key]) == list(range(1, len(found[key]) + 1)) for key in found)
    print(f"{killed} kills, {rows} rows, {in_flight} checkpoints seen with rows in flight")


def produce(servers: str, topic: str, rows: int, pick: random.Random) -> dict[int, list[int]]:
    """The numbers of each key's events, in their order: all of a key are in one partition."""
    producer = Producer({"bootstrap.servers": servers, "log_level": 0})
    made: dict[int, list[int]] = defaultdict(list)
    for n in range(rows):
        key = pick.randrange(KEYS)
        made[key].append(n)
        producer.produce(topic, json.dumps({"key": key, "n": n}), partition=key % 2)
        producer.poll(0)
    assert producer.flush(30) == 0
    return dict(made)


def consume(servers: str, topic: str) -> dict[int, list[tuple[int, int]]]:
    """(count, number) of all that a read_committed consumer sees, by key."""
    settings = {"group.id": "judge", "isolation.level": "read_committed", "enable.partition.eof": True}
    consumer = Consumer({"bootstrap.servers": servers, "log_level": 0, **settings})
    consumer.assign([TopicPartition(topic, partition, 0) for partition in range(2)])
    found: dict[int, list[tuple[int, int]]] = defaultdict(list)
    ended = 0
    while ended < 2:
        message = consumer.poll(10)
        assert message is not None
        if message.error():
            ended += 1
            continue
        value = json.loads(message.value())
        found[value["key"]].append((value["count"], value["n"]))
    consumer.close()
    return dict(found)
