"""What producing in transactions costs: records per CPU-second, librdkafka's threads included.

    python benchmarks/produce.py --records 1000000 --runs 3

The three routes of the sink in turn, on the embedded broker: values of `--value-bytes` with keys, sorted by
partition, `--batch` rows at a time, a transaction every `--transaction` records.
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
import time
import uuid
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from onceflow.connectors.kafka.client import PRODUCE_SCHEMA, LedgerEntry, LedgerKey
from onceflow.connectors.kafka.embedded import EmbeddedKafka
from onceflow.connectors.kafka.options import KafkaOptions
from onceflow.connectors.kafka.transactions.librdkafka_client import LibrdkafkaClient
from onceflow.connectors.kafka.transactions.producer import LibrdkafkaProducer
from onceflow.connectors.kafka.transactions.producer_settings import ProducerSettings
from onceflow.connectors.kafka.transactions.sink_topics import LEDGER_TOPIC

PARTITIONS = 4
ROUTES: Any = ("direct", "bulk", "one by one")


def batch(topic: str, rows: int, value_bytes: int) -> pa.RecordBatch:
    columns = [
        pa.array([topic] * rows),
        pa.array(np.sort(np.arange(rows, dtype=np.int32) % PARTITIONS)),
        pa.array([b"user%06d" % n for n in range(rows)], pa.large_binary()),
        pa.array([b"x" * (value_bytes - 10) + b"%010d" % n for n in range(rows)], pa.large_binary()),
        pa.nulls(rows, PRODUCE_SCHEMA.field("headers").type),
        pa.nulls(rows, pa.int64()),
    ]
    return pa.RecordBatch.from_arrays(columns, schema=PRODUCE_SCHEMA)


def run(
    options: argparse.Namespace, producer: LibrdkafkaProducer, rows: pa.RecordBatch
) -> tuple[float, float]:
    """Thousands of records per CPU-second and per second."""
    wall, cpu = time.perf_counter(), time.process_time()
    sent = 0
    for number in range(1, options.records // options.transaction + 1):
        producer.begin()
        while sent < number * options.transaction:
            producer.produce(rows)
            sent += rows.num_rows
        producer.flush()
        producer.send_ledger(LedgerEntry(number, ""))
        producer.commit()
    return sent / (time.process_time() - cpu) / 1000, sent / (time.perf_counter() - wall) / 1000


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--records", type=int, default=1_000_000)
    parser.add_argument("--batch", type=int, default=10_000)
    parser.add_argument("--transaction", type=int, default=100_000)
    parser.add_argument("--value-bytes", type=int, default=100, help="10 at least")
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--librdkafka", action="append", default=[], help="a setting, NAME=VALUE")
    options = parser.parse_args()
    settings = dict(setting.split("=", 1) for setting in options.librdkafka)
    found: dict[Any, list[tuple[float, float]]] = {route: [] for route in ROUTES}
    with tempfile.TemporaryDirectory(prefix="onceflow-bench-") as name, EmbeddedKafka(Path(name)) as kafka:
        rows = batch(kafka.create_topic("out", PARTITIONS), options.batch, options.value_bytes)
        for _ in range(options.runs):
            for route in ROUTES:
                client = LibrdkafkaClient(
                    KafkaOptions(kafka.bootstrap_servers, settings), ProducerSettings(route=route)
                )
                client.ensure_ledger_topic(LEDGER_TOPIC)
                producer = client.open_producer(LedgerKey(f"bench-{uuid.uuid4().hex}", LEDGER_TOPIC))
                found[route].append(run(options, producer, rows))
                producer.discard()
                client.close()
    for route, runs in found.items():
        cpu, wall = (statistics.median(column) for column in zip(*runs, strict=True))
        print(f"{route:12} {cpu:8,.0f} k records/CPU-s {wall:8,.0f} k records/s   {len(runs)} runs")


if __name__ == "__main__":
    main()
