"""An outer interval join from Kafka to Kafka, its process killed again and again: each pair, and each row
without a partner, is there once."""

from __future__ import annotations

import json
import random
from collections import Counter, defaultdict
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer

from onceflow.connectors.kafka.embedded import EmbeddedKafka

pytestmark = pytest.mark.kafka
PROGRAM = Path(__file__).parent / "jobs" / "interval_pairs.py"
KEYS, WITHIN_MS = 200, 50
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
    pick = random.Random(seed)
    servers, topics = broker.bootstrap_servers, [new_topic("left", 2), new_topic("right", 2)]
    output = new_topic("pairs", 2)
    events = [produced(servers, topic, rows, pick) for topic in topics]
    arguments = (servers, *topics, output)
    killed = 0
    while True:
        job = start_job(
            tmp_path / "ck",
            *arguments,
            program=PROGRAM,
            interval="50 ms",
            parallelism=pick.choice([1, 2, 3]),
            master="threads[3]",
        )
        if killed == kills:
            break
        since = 0
        for _ in range(pick.randrange(1, 4)):
            since = job.events.index(job.wait_event("checkpoint_completed", after=since)) + 1
        job.kill_group()
        job.wait()
        killed += 1
    assert job.wait(240) == 0, job.story()
    expected = nested_loops(*events)
    found = (json.loads(value) for value in engine.read_topic(servers, output))
    assert Counter((row["key"], row["n"], row["n_right"]) for row in found) == expected
    alone = sum(None in row for row in expected)
    print(f"{killed} kills, {expected.total()} rows, {alone} of them without a partner")


def produced(servers: str, topic: str, rows: int, pick: random.Random) -> list[tuple[int, int, int]]:
    """(key, number, event time) of each row, out of order by less than the slack."""
    producer = Producer({"bootstrap.servers": servers, "log_level": 0})
    made = [(pick.randrange(KEYS), n, n + pick.randrange(15)) for n in range(rows)]
    for key, n, ts in made:
        producer.produce(topic, json.dumps({"key": key, "n": n, "ts": ts}), partition=n % 2)
        producer.poll(0)
    assert producer.flush(30) == 0
    return made


def nested_loops(left: list[tuple[int, int, int]], right: list[tuple[int, int, int]]) -> Counter[Row]:
    by_key: dict[int, tuple[list[tuple[int, int]], list[tuple[int, int]]]] = defaultdict(lambda: ([], []))
    for side, events in enumerate((left, right)):
        for key, n, ts in events:
            by_key[key][side].append((n, ts))
    found: Counter[Row] = Counter()
    for key, (ours, theirs) in by_key.items():
        pairs = [(n, m) for n, ts in ours for m, other in theirs if abs(other - ts) <= WITHIN_MS]
        found.update((key, n, m) for n, m in pairs)
        met = {n for n, _ in pairs}, {m for _, m in pairs}
        found.update((key, n, None) for n, _ in ours if n not in met[0])
        found.update((key, None, m) for m, _ in theirs if m not in met[1])
    return found
