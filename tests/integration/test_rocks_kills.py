"""Process functions and sessions whose state is in RocksDB, from Kafka to Kafka, their process killed again
and again: each result is there once, though checkpoints hold only what has changed, and no killed process's
files stay."""

from __future__ import annotations

import json
import random
from collections import Counter, defaultdict
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer

from onceflow.connectors.kafka.embedded import EmbeddedKafka
from tests.integration.job_process import JobProcess
from tests.integration.killed_runs import run_killed

pytestmark = pytest.mark.kafka
JOBS = Path(__file__).parent / "jobs"
GAP_MS = 3_000
KEYS = 6_000
MEMORY = "16MB"
"""A third of what the keys remember, or less."""
Visits = dict[int, list[int]]
"""The times of each key's records, in order."""


def counts(visits: Visits) -> Counter[Any]:
    """What running_counts sends."""
    expected = Counter((key, n, False) for key, times in visits.items() for n in range(1, len(times) + 1))
    expected.update((key, len(times), True) for key, times in visits.items())
    return expected


def sessions(visits: Visits) -> Counter[Any]:
    """What running_sessions sends."""
    expected: Counter[Any] = Counter()
    for key, times in visits.items():
        cuts = [n for n in range(1, len(times)) if times[n] - times[n - 1] > GAP_MS]
        for first, end in pairwise([0, *cuts, len(times)]):
            expected[key, times[first], times[end - 1] + GAP_MS, end - first, True] += 1
    return expected


@pytest.mark.parametrize(("program", "expects"), [("running_counts", counts), ("running_sessions", sessions)])
@pytest.mark.parametrize(
    ("seed", "rows", "kills"),
    [(1, 7_000, 2), *(pytest.param(n, 40_000, 20, marks=pytest.mark.soak) for n in (2, 3))],
)
def test_each_result_is_there_once_whatever_is_killed(
    program: str,
    expects: Callable[[Visits], Counter[Any]],
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
    servers, source, output = broker.bootstrap_servers, new_topic("visits", 2), new_topic("counts", 2)
    visits = produced(servers, source, rows, pick)
    (scratch := tmp_path / "scratch").mkdir()

    def start() -> JobProcess:
        job: JobProcess = start_job(
            tmp_path / "ck",
            servers,
            source,
            output,
            program=JOBS / f"{program}.py",
            interval="100 ms",
            parallelism=pick.choice([1, 2, 3]),
            master="threads[3]",
            options=("--state-backend", "rocksdb", "--state-memory", MEMORY),
            env={"TMPDIR": str(scratch)},
        )
        return job

    told = run_killed(start, kills, pick, checkpoints=(1, 4))
    assert len(incremental(told)) > kills / 2
    expected = expects(visits)
    found: Counter[Any] = Counter(
        tuple(json.loads(value).values()) for value in engine.read_topic(servers, output)
    )
    assert found == expected, (len(expected - found), len(found - expected))
    assert [path for path in scratch.rglob("*") if path.is_file()] == [], "files of who was killed"
    print(f"{kills} kills, {found.total()} rows")


def incremental(events: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The checkpoints that name files of others."""
    completed = [event for event in events if event["event"] == "checkpoint_completed"]
    return [event for event in completed if event["written_bytes"] < event["bytes"]]


def produced(servers: str, topic: str, rows: int, pick: random.Random) -> Visits:
    """The records that there are."""
    producer = Producer({"bootstrap.servers": servers, "log_level": 0})
    visits: Visits = defaultdict(list)
    for n in range(rows):
        key = pick.randrange(KEYS)
        visits[key].append(n)
        producer.produce(topic, json.dumps({"key": key, "ts": n}), partition=n % 2)
        producer.poll(0)
    assert producer.flush(30) == 0
    return visits
