"""A Delta table, files, then a topic, as one stream: killed in each, and between them."""

from __future__ import annotations

import json
import os
import signal
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from confluent_kafka import Producer
from deltalake import write_deltalake

from onceflow.connectors.kafka.embedded import EmbeddedKafka

pytestmark = [pytest.mark.kafka, pytest.mark.spark]
PROGRAM = Path(__file__).parent / "jobs" / "hybrid_counts.py"
USERS, FILES, LINES, LIVE = 7, 20, 1_000, 3_000


def records(first: int, count: int) -> list[str]:
    return [json.dumps({"user": f"u{n % USERS}", "n": 1}) for n in range(first, first + count)]


def seen(folder: Path) -> Counter[tuple[str, int]]:
    rows: Counter[tuple[str, int]] = Counter()
    for path in folder.glob("out-*.jsonl"):
        rows.update((row["user"], row["n"]) for row in map(json.loads, path.read_text().splitlines()))
    return rows


def has_rows(folder: Path, count: int) -> Callable[[], bool]:
    return lambda: seen(folder).total() >= count


def expected(count: int) -> Counter[tuple[str, int]]:
    users = Counter(f"u{n % USERS}" for n in range(count))
    return Counter((user, n) for user, last in users.items() for n in range(1, last + 1))


def test_what_comes_while_history_is_read_is_read_after_it_each_once(
    start_job: Any, engine: Any, tmp_path: Path, broker: EmbeddedKafka, new_topic: Callable[..., str]
) -> None:
    source, output, topic = tmp_path / "in", tmp_path / "out", new_topic("live", partitions=3)
    source.mkdir()
    for file in range(FILES // 2):
        rows = pa.Table.from_pylist(list(map(json.loads, records(file * LINES, LINES))))
        write_deltalake(str(source / "table"), rows, mode="append", partition_by=["user"])
    for file in range(FILES // 2, FILES):
        (source / f"{file:04d}.jsonl").write_text("\n".join(records(file * LINES, LINES)) + "\n")
    history = FILES * LINES
    producer = Producer({"bootstrap.servers": broker.bootstrap_servers})

    def produce(first: int, count: int) -> None:
        for value in records(first, count):
            producer.produce(topic, value)
        assert producer.flush(30) == 0

    arguments = (str(source), str(output), broker.bootstrap_servers, topic)
    settings = {"program": PROGRAM, "interval": "100 ms"}
    produce(0, 50)  # before the first start: not ours
    # Slowly, so that history is not over when the job is killed, however busy this machine is.
    job = start_job(tmp_path / "ck", *arguments, "1000/s", master="local[2]", **settings)
    engine.wait_for(has_rows(output, 1), job)
    produce(history, LIVE)
    os.kill(job.slots()[1], signal.SIGKILL)
    job.wait_event("restarted")
    engine.wait_for(has_rows(output, seen(output).total() + 1), job)
    job.kill_group()
    job.wait()
    assert seen(output).total() < history, "killed in the middle of history"
    again = start_job(tmp_path / "ck", *arguments, master="threads[3]", parallelism=3, **settings)
    engine.wait_for(has_rows(output, history), again)
    again.kill_group()
    again.wait()
    last = start_job(tmp_path / "ck", *arguments, **settings)
    produce(history + LIVE, LIVE)
    engine.wait_for(has_rows(output, history + 2 * LIVE), last)
    last.send(signal.SIGTERM)
    assert last.wait(120) == 0, last.story()
    assert seen(output) == expected(history + 2 * LIVE)
    progress = engine.manifests(tmp_path / "ck")[-1]["splits"]["seen"]
    assert {each["split"]["split_id"] for each in progress} == {f"2/{topic}-{p}" for p in range(3)}
