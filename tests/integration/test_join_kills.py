"""Outer joins from Kafka to Kafka, their process killed again and again: of an interval join each pair, and
each row without a partner, is there once; the changes of a regular join make a table that is the join."""

from __future__ import annotations

import json
import random
import time
from collections import Counter, defaultdict
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, KafkaError, Producer, TopicPartition

from onceflow.connectors.kafka.embedded import EmbeddedKafka

pytestmark = pytest.mark.kafka
JOBS = Path(__file__).parent / "jobs"
KEYS, WITHIN_MS, EVER_MS = 200, 50, 1 << 40
MANY_KEYS, LONG_MS, LONG_TEXT = 10_000, 6_000, 4_000
"""There are so many keys that few of them change from one checkpoint to the next; the rows of so long a time
take more than the memory of three slots."""
IN_MEMORY: tuple[str, ...] = ()
ON_DISK = ("--state-backend", "rocksdb", "--state-memory", "16MB")
Row = tuple[int, int | None, int | None]


@pytest.mark.parametrize(
    ("seed", "rows", "kills"),
    [(1, 6_000, 2), *(pytest.param(n, 40_000, 10, marks=pytest.mark.soak) for n in (2, 3))],
)
def test_each_pair_is_there_once_whatever_is_killed(
    seed: int,
    rows: int,
    kills: int,
    start_job: Any,
    engine: Any,
    broker: EmbeddedKafka,
    new_topic: Callable[..., str],
    tmp_path: Path,
) -> None:
    topics, pick = [new_topic(name, 2) for name in ("left", "right", "pairs")], random.Random(seed)
    events = [produced(broker.bootstrap_servers, topic, rows, pick, KEYS, text="") for topic in topics[:2]]
    arguments = (broker.bootstrap_servers, *topics, f"{WITHIN_MS} ms")
    run_killed(start_job, tmp_path, "interval_pairs.py", arguments, kills, pick)
    expected = nested_loops(events[0], events[1], WITHIN_MS)
    found = (json.loads(value) for value in engine.read_topic(broker.bootstrap_servers, topics[2]))
    assert Counter((row["key"], row["n"], row["n_right"]) for row in found) == expected
    alone = sum(None in row for row in expected)
    print(f"{kills} kills, {expected.total()} rows, {alone} of them without a partner")


@pytest.mark.parametrize(
    ("seed", "rows", "kills"),
    [(6, 8_000, 2), *(pytest.param(n, 20_000, 10, marks=pytest.mark.soak) for n in (7, 8))],
)
def test_so_is_each_pair_of_a_join_on_disk_whose_checkpoints_hold_what_has_changed(
    seed: int,
    rows: int,
    kills: int,
    start_job: Any,
    engine: Any,
    broker: EmbeddedKafka,
    new_topic: Callable[..., str],
    tmp_path: Path,
) -> None:
    topics, pick = [new_topic(name, 2) for name in ("left", "right", "pairs")], random.Random(seed)
    servers, text = broker.bootstrap_servers, "x" * LONG_TEXT
    events = [produced(servers, topic, rows, pick, MANY_KEYS, text=text) for topic in topics[:2]]
    (scratch := tmp_path / "scratch").mkdir()
    arguments = (broker.bootstrap_servers, *topics, f"{LONG_MS} ms")
    found_events = run_killed(
        start_job, tmp_path, "interval_pairs.py", arguments, kills, pick, ON_DISK, scratch
    )
    completed = [event for event in found_events if event["event"] == "checkpoint_completed"]
    assert any(event["written_bytes"] < event["bytes"] for event in completed), "they build on each other"
    assert not [path for path in scratch.rglob("*") if path.is_file()], "files of who was killed"
    expected = nested_loops(events[0], events[1], LONG_MS)
    found = (json.loads(value) for value in engine.read_topic(broker.bootstrap_servers, topics[2]))
    assert Counter((row["key"], row["n"], row["n_right"]) for row in found) == expected
    print(f"{kills} kills, {expected.total()} rows")


@pytest.mark.soak
@pytest.mark.parametrize("seed", [4, 5])
def test_the_table_of_a_regular_join_is_the_join_whatever_is_killed(
    seed: int, start_job: Any, broker: EmbeddedKafka, new_topic: Callable[..., str], tmp_path: Path
) -> None:
    topics, pick = [new_topic(name, 2) for name in ("left", "right", "pairs")], random.Random(seed)
    events = [produced(broker.bootstrap_servers, topic, 12_000, pick, 4_000) for topic in topics[:2]]
    run_killed(start_job, tmp_path, "regular_pairs.py", (broker.bootstrap_servers, *topics), 10, pick)
    expected = nested_loops(events[0], events[1], EVER_MS)
    table, deletes = table_of(broker.bootstrap_servers, topics[2])
    assert Counter((row["key"], row["n"], row["n_right"]) for row in table) == expected
    alone = sum(None in row for row in expected)
    print(f"10 kills, {expected.total()} rows, {alone} of them without a partner, {deletes} deletes")
    assert deletes > 1_000


def run_killed(
    start_job: Any,
    folder: Path,
    program: str,
    arguments: tuple[str, ...],
    kills: int,
    pick: random.Random,
    options: tuple[str, ...] = IN_MEMORY,
    scratch: Path | None = None,
) -> list[dict[str, Any]]:
    """Kill a job so often, each time after some checkpoints, and let it end; the events of all that.
    `scratch`: where RocksDB's files are made, if it has some: they are seen."""
    events: list[dict[str, Any]] = []
    for killed in range(kills + 1):
        job = start_job(
            folder / "ck",
            *arguments,
            program=JOBS / program,
            interval="50 ms",
            parallelism=pick.choice([1, 2, 3]),
            master="threads[3]",
            options=options,
            env={} if scratch is None else {"TMPDIR": str(scratch)},
        )
        if killed < kills:
            since = 0
            for _ in range(pick.randrange(1, 4)):
                since = job.events.index(job.wait_event("checkpoint_completed", after=since)) + 1
            job.kill_group()
            job.wait()
            events += job.events
    if scratch is not None:
        deadline = time.monotonic() + 240
        while not list(scratch.rglob("*.sst")):
            assert time.monotonic() < deadline, job.story()
            job.wait_event("checkpoint_completed", after=len(job.events))
    assert job.wait(240) == 0, job.story()
    return events + job.events


def table_of(servers: str, topic: str) -> tuple[list[dict[str, Any]], int]:
    """The last value of each key, but for those that are deleted; and how many deletes there are."""
    settings = {"group.id": "judge", "isolation.level": "read_committed", "enable.partition.eof": True}
    consumer = Consumer({"bootstrap.servers": servers, "enable.auto.commit": False, **settings})
    consumer.assign([TopicPartition(topic, partition, 0) for partition in range(2)])
    table: dict[bytes, bytes | None] = {}
    deletes, at_end = 0, set[int]()
    while len(at_end) < 2:
        for message in consumer.consume(10_000, 0.2):
            if message.error() is None:
                table[message.key()] = message.value()
                deletes += message.value() is None
            else:
                assert message.error().code() == KafkaError._PARTITION_EOF, message.error()
                at_end.add(message.partition())
    consumer.close()
    return [json.loads(value) for value in table.values() if value is not None], deletes


def produced(
    servers: str, topic: str, rows: int, pick: random.Random, keys: int, **more: str
) -> list[tuple[int, int, int]]:
    """(key, number, event time) of each row, out of order by less than the slack."""
    producer = Producer({"bootstrap.servers": servers, "log_level": 0})
    made = [(pick.randrange(keys), n, n + pick.randrange(15)) for n in range(rows)]
    for key, n, ts in made:
        producer.produce(topic, json.dumps({"key": key, "n": n, "ts": ts, **more}), partition=n % 2)
        producer.poll(0)
    assert producer.flush(30) == 0
    return made


def nested_loops(
    left: list[tuple[int, int, int]], right: list[tuple[int, int, int]], within_ms: int
) -> Counter[Row]:
    by_key: dict[int, tuple[list[tuple[int, int]], list[tuple[int, int]]]] = defaultdict(lambda: ([], []))
    for side, events in enumerate((left, right)):
        for key, n, ts in events:
            by_key[key][side].append((n, ts))
    found: Counter[Row] = Counter()
    for key, (ours, theirs) in by_key.items():
        pairs = [(n, m) for n, ts in ours for m, other in theirs if abs(other - ts) <= within_ms]
        found.update((key, n, m) for n, m in pairs)
        met = {n for n, _ in pairs}, {m for _, m in pairs}
        found.update((key, n, None) for n, _ in ours if n not in met[0])
        found.update((key, None, m) for m, _ in theirs if m not in met[1])
    return found
