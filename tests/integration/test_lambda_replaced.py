"""Years in a table and the stream behind them: each purchase counts once, whatever the table's end."""

from __future__ import annotations

import json
import random
from collections import defaultdict
from datetime import date, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from confluent_kafka import Producer

from examples.lambda_replaced import sum_up
from tests.integration.test_examples import consume

pytestmark = [pytest.mark.kafka, pytest.mark.spark, pytest.mark.timeout(600)]
EXAMPLE = Path(__file__).parents[2] / "examples" / "lambda_replaced.py"
PARTITIONS, RECORDS = 3, 3_000
FIRST_DAY, YEARS = date(2019, 1, 1), 7


def test_a_table_becomes_state_and_the_stream_takes_over_at_the_exact_offset(
    spark: Any, broker: Any, new_topic: Any, onceflow: Any, tmp_path: Path
) -> None:
    source, output, chance = new_topic("in", PARTITIONS), new_topic("out", 2), random.Random(11)
    producer = Producer({"bootstrap.servers": broker.bootstrap_servers, "log_level": 0})
    placed: list[dict[str, Any]] = []
    ends: dict[int, int] = defaultdict(int)
    for _ in range(RECORDS):
        partition = chance.choices(range(PARTITIONS), [1, 2, 3])[0]
        day = str(FIRST_DAY + timedelta(days=len(placed) * YEARS * 365 // RECORDS))
        row = {"user": f"user-{chance.randrange(200)}", "cents": chance.randrange(10_000), "day": day}
        producer.produce(source, json.dumps(row).encode(), partition=partition)
        placed.append({**row, "topic": source, "partition": partition, "offset": ends[partition]})
        ends[partition] += 1
    assert producer.flush(60) == 0
    cut = {0: 100, 1: 700, 2: 1_100}
    history = [row for row in placed if row["offset"] < cut[row["partition"]]]
    table, savepoint = str(tmp_path / "purchases.parquet"), str(tmp_path / "summed")
    pq.write_table(pa.Table.from_pylist(history), table)
    days = [date.fromisoformat(row["day"]) for row in history]
    assert max(days) - min(days) > timedelta(days=5 * 365), "the table has five years"

    offsets = sum_up(spark, table, savepoint)
    assert offsets == {source: {str(partition): end for partition, end in cut.items()}}
    command = [
        "run",
        str(EXAMPLE),
        "--master",
        "threads[2]",
        "--checkpoint-dir",
        str(tmp_path / "checkpoints"),
    ]
    command += ["--from", savepoint, "--reset-offsets", f"purchases={json.dumps(offsets)}", "--"]
    command += ["--bootstrap-servers", broker.bootstrap_servers, "--input", source, "--output", output]
    done = onceflow(*command, "--until", "latest", timeout=240)
    assert done.returncode == 0, done.stdout + done.stderr

    spent = consume(broker.bootstrap_servers, output)
    assert len(spent) == RECORDS - len(history)
    expected: dict[str, tuple[int, int]] = {}
    for row in placed:
        purchases, cents = expected.get(row["user"], (0, 0))
        expected[row["user"]] = purchases + 1, cents + row["cents"]
    last = {row["user"]: row for row in sorted(spent, key=lambda row: row["purchases"])}
    assert len(last) == 200
    assert {user: (row["purchases"], row["cents"]) for user, row in last.items()} == expected
