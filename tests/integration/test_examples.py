"""The examples from Kafka to Kafka on a real broker, each against its answer computed from the input."""

from __future__ import annotations

import json
import random
import re
from collections import Counter, defaultdict
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, KafkaError, Producer, TopicPartition

pytestmark = pytest.mark.kafka

ROOT = Path(__file__).parents[2]
START_MS = 1_700_000_000_000
Row = dict[str, Any]


@pytest.fixture
def run_example(broker: Any, new_topic: Any, onceflow: Any, tmp_path: Path) -> Callable[..., list[Row]]:
    """`run_example("word_count", rows, partition_of)`: the output of the example over these input rows."""

    def run(
        name: str,
        rows: Sequence[Row],
        partition_of: Callable[[Row], int],
        *arguments: str,
        host: str = "threads[2]",
    ) -> list[Row]:
        source, output = new_topic("in", 3), new_topic("out", 2)
        produce(broker.bootstrap_servers, source, rows, partition_of)
        command = ["run", str(ROOT / "examples" / f"{name}.py"), "--master", host, "--parallelism", "2"]
        command += ["--checkpoint-dir", str(tmp_path / "checkpoints"), "--checkpoint-interval", "100 ms"]
        command += ["--", "--bootstrap-servers", broker.bootstrap_servers, "--input", source]
        command += ["--output", output, "--until", "latest", *arguments]
        done = onceflow(*command, timeout=480)
        assert done.returncode == 0, done.stdout + done.stderr
        return consume(broker.bootstrap_servers, output)

    return run


def produce(servers: str, topic: str, rows: Sequence[Row], partition_of: Callable[[Row], int]) -> None:
    producer = Producer({"bootstrap.servers": servers, "log_level": 0, "linger.ms": 5})
    for row in rows:
        producer.produce(topic, json.dumps(row).encode(), partition=partition_of(row) % 3)
        producer.poll(0)
    assert producer.flush(30) == 0


def consume(servers: str, topic: str) -> list[Row]:
    """All committed values."""
    consumer = Consumer(
        {
            "bootstrap.servers": servers,
            "log_level": 0,
            "group.id": "examples",
            "isolation.level": "read_committed",
            "enable.partition.eof": True,
            "enable.auto.commit": False,
        }
    )
    try:
        partitions = consumer.list_topics(topic, timeout=240).topics[topic].partitions
        consumer.assign([TopicPartition(topic, number, 0) for number in partitions])
        values: list[Row] = []
        ended: set[int] = set()
        while len(ended) < len(partitions):
            message = consumer.poll(20)
            assert message is not None, "the broker does not answer"
            error = message.error()
            if error is None:
                values.append(json.loads(message.value()))
            else:
                assert error.code() == KafkaError._PARTITION_EOF, error
                ended.add(message.partition())
        return values
    finally:
        consumer.close()


def test_word_count(run_example: Any) -> None:
    chance = random.Random(7)
    words = ["once", "and", "Only", "once", "über", "flow"]
    lines = [
        {
            "text": " ".join(chance.choices(words, k=chance.randrange(6))),
            "ts": START_MS + n * 37 + chance.randrange(900),
        }
        for n in range(2_000)
    ]
    expected: Counter[tuple[str, int]] = Counter()
    for line in lines:
        for word in re.findall(r"\w+", line["text"].lower()):
            expected[word, line["ts"] // 5_000 * 5_000] += 1
    counts = run_example("word_count", lines, lambda line: len(line["text"]), "--window", "5 s")
    assert all(row["window_end"] == row["window_start"] + 5_000 for row in counts)
    assert len(counts) == len(expected)
    assert {(row["word"], row["window_start"]): row["count"] for row in counts} == expected


@pytest.mark.parametrize("host", ["threads[2]", pytest.param("local[2]", marks=pytest.mark.spark)])
def test_fire_detection(run_example: Any, host: str) -> None:
    def reading(sensor: str, celsius: float, second: int) -> Row:
        return {"sensor": sensor, "celsius": celsius, "ts": START_MS + second * 1_000}

    rows = [reading("calm", 20.0 + n % 3, n) for n in range(60)]
    rows += [reading("burns", 21.0 if n < 30 else 90.0 + n, n) for n in range(60)]
    rows += [reading("false-alarm", 95.0 if n == 40 else 20.0, n) for n in range(60)]
    rows += [reading("twice", 80.0 if n in (*range(10, 17), *range(40, 47)) else 20.0, n) for n in range(60)]
    rows += [reading("at-the-end", 20.0 if n < 58 else 70.0, n) for n in range(60)]
    chance = random.Random(5)
    rows.sort(key=lambda row: row["ts"] + chance.randrange(900))  # out of order by less than a second
    alerts = run_example("fire_detection", rows, lambda row: sum(map(ord, row["sensor"])), host=host)
    found = sorted((a["sensor"], (a["since"] - START_MS) // 1_000, a["celsius"]) for a in alerts)
    assert found == [("at-the-end", 58, 70.0), ("burns", 30, 125.0), ("twice", 10, 80.0), ("twice", 40, 80.0)]


def test_windowed_totals(run_example: Any) -> None:
    chance = random.Random(3)
    events = [
        {
            "user": f"u{chance.randrange(50):07}",
            "type": "purchase",
            "amount": chance.randrange(100_000),
            "ts": START_MS + n * 11 + chance.randrange(500),
            "item": "i000001",
            "ok": True,
        }
        for n in range(5_000)
    ]
    expected: dict[tuple[str, int], list[int]] = defaultdict(list)
    for event in events:
        expected[event["user"], event["ts"] // 10_000 * 10_000 + 10_000].append(event["amount"])
    totals = run_example("windowed_totals", events, lambda event: event["amount"])
    assert len(totals) == len(expected)
    assert {(row["user"], row["window_end"]): (row["count"], row["total"]) for row in totals} == {
        key: (len(amounts), sum(amounts)) for key, amounts in expected.items()
    }
    assert list(totals[0]) == ["user", "window_end", "count", "total"]
