"""The speed of fetching alone: records per CPU-second, of the bulk fetcher and of the one per message.

    python benchmarks/fetch.py --records 4000000 --runs 3

Loads the embedded broker, then reads all of it with the reader's own settings, each fetcher in turn in
a process of its own, runs interleaved. CPU is that of the whole process, librdkafka's threads included,
from the first record on; the columns are made, nothing is decoded.
"""

from __future__ import annotations

import argparse
import gc
import json
import multiprocessing
import resource
import statistics
import tempfile
import time
from collections.abc import Mapping
from dataclasses import dataclass
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

from confluent_kafka import Consumer, KafkaError, Producer, TopicCollection, TopicPartition
from confluent_kafka.admin import AdminClient
from rich.console import Console
from rich.table import Table

from onceflow.connectors.kafka.embedded import EmbeddedKafka
from onceflow.connectors.kafka.fetch.choose import open_fetcher
from onceflow.connectors.kafka.fetch.direct_reading import AS_USERS_DO
from onceflow.connectors.kafka.fetch.per_message import MessageFetcher
from onceflow.connectors.kafka.fetched import Fetcher, Wanted
from onceflow.connectors.kafka.reader_splits import SplitTable
from onceflow.connectors.kafka.source.reader_options import DEFAULTS
from onceflow.connectors.kafka.split import KafkaSplit

PARTITIONS = 4
TOPIC = "fetch"
KINDS = ("direct", "bulk", "messages")
_BATCH = 2_500
_TIMEOUT_S = 120.0


@dataclass(frozen=True, slots=True)
class Measurement:
    """One reading of the whole topic."""

    records: int
    fetches: int
    cpu_s: float
    thread_cpu_s: float
    """CPU seconds of the fetching thread alone."""
    wall_s: float
    rss_mb: int


def load(servers: str, records: int, size: int) -> None:
    """`records` values of `size` bytes."""
    producer = Producer(
        {"bootstrap.servers": servers, "queue.buffering.max.messages": 1_000_000, "linger.ms": 20}
    )
    value = (b'{"user":"u%06d","amount":1234,"ts":1700000000000,"pad":"' % 7).ljust(size - 2, b"x") + b'"}'
    for number in range(records // _BATCH):
        producer.produce_batch(TOPIC, [{"value": value}] * _BATCH, partition=number % PARTITIONS)
        while len(producer) > 400_000:
            producer.poll(0.05)
    if producer.flush(_TIMEOUT_S):
        raise SystemExit("the broker does not take the input")


def read(answer: Connection, servers: str, kind: str, options: Mapping[str, Any]) -> None:
    """Reads all there is; a process of its own."""
    settings: dict[str, Any] = {
        "bootstrap.servers": servers,
        "group.id": "fetch",
        "auto.offset.reset": "error",
        "enable.auto.commit": False,
        "enable.auto.offset.store": False,
        "enable.partition.eof": True,
        "check.crcs": True,
        **DEFAULTS,
        **options["librdkafka"],
    }
    consumer = Consumer(settings)
    splits = SplitTable()
    topic_id = str(describe(servers).topic_id)
    splits.add([KafkaSplit(TOPIC, topic_id, partition, 0) for partition in range(PARTITIONS)])
    wanted, most = Wanted(), options["poll_records_max"]
    fetcher: Fetcher = MessageFetcher(consumer, splits, wanted)
    if kind != "messages":
        direct = AS_USERS_DO if kind == "direct" else None
        fetcher = open_fetcher(consumer, settings, splits, wanted, most, direct=direct)
        if isinstance(fetcher, MessageFetcher):
            raise SystemExit("there is no bulk fetcher here: librdkafka can't be called directly")
    gc.collect()
    gc.freeze()
    gc.disable()  # as a slot does while it steps
    fetcher.assign([TopicPartition(TOPIC, partition, 0) for partition in range(PARTITIONS)])
    records = fetches = 0
    ends: set[int] = set()
    began = cpu = thread_cpu = 0.0
    while len(ends) < PARTITIONS:
        fetched = fetcher.fetch(10, most)
        if len(fetched) and not fetches:
            began, cpu, thread_cpu = time.perf_counter(), time.process_time(), time.thread_time()
        records += len(fetched)
        fetches += bool(len(fetched))
        ends.update(n.split for n in fetched.notices if n.error.code() == KafkaError._PARTITION_EOF)
    answer.send(
        Measurement(
            records,
            fetches,
            time.process_time() - cpu,
            time.thread_time() - thread_cpu,
            time.perf_counter() - began,
            resource.getrusage(resource.RUSAGE_SELF).ru_maxrss >> 10,
        )
    )
    fetcher.close()
    consumer.close()


def describe(servers: str) -> Any:
    """The topic."""
    client = AdminClient({"bootstrap.servers": servers})
    return client.describe_topics(TopicCollection([TOPIC]))[TOPIC].result(_TIMEOUT_S)


def run_once(servers: str, kind: str, options: Mapping[str, Any]) -> Measurement:
    """One reading in a new process."""
    context = multiprocessing.get_context("spawn")
    answer, there = context.Pipe()
    process = context.Process(target=read, args=(there, servers, kind, options))
    process.start()
    there.close()
    try:
        if not answer.poll(_TIMEOUT_S):
            raise SystemExit(f"the {kind} fetcher did not come to the end")
        measurement: Measurement = answer.recv()
    finally:
        process.join(10)
        process.kill()
    return measurement


def report(runs: Mapping[str, list[Measurement]]) -> None:
    """Medians, and the ratio."""
    table = Table("fetcher", "k/CPU-s", "k/CPU-s own thread", "k/s", "records per fetch", "RSS MB")
    rates = {}
    for kind, measured in runs.items():
        rates[kind] = statistics.median(m.records / m.cpu_s / 1000 for m in measured)
        cells = (
            rates[kind],
            statistics.median(m.records / m.thread_cpu_s / 1000 for m in measured),
            statistics.median(m.records / m.wall_s / 1000 for m in measured),
            statistics.median(m.records / m.fetches for m in measured),
            max(m.rss_mb for m in measured),
        )
        table.add_row(kind, *(f"{cell:,.0f}" for cell in cells))
    Console().print(table)
    for kind in [kind for kind in rates if kind != "messages" and "messages" in rates]:
        print(f"{kind} to messages: {rates[kind] / rates['messages']:.2f}")


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--records", type=int, default=4_000_000)
    parser.add_argument("--size", type=int, default=100, help="bytes of a value")
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--fetchers", default=",".join(KINDS))
    parser.add_argument("--poll-records-max", type=int, default=10_000)
    parser.add_argument("--librdkafka", type=json.loads, default={}, help="settings, as a JSON object")
    parser.add_argument("--bootstrap-servers", help="a broker that is loaded already")
    options = parser.parse_args()
    given = {"librdkafka": options.librdkafka, "poll_records_max": options.poll_records_max}
    kinds = options.fetchers.split(",")
    runs: dict[str, list[Measurement]] = {kind: [] for kind in kinds}
    with tempfile.TemporaryDirectory(prefix="onceflow-fetch-") as name:
        if options.bootstrap_servers:
            measure(options.bootstrap_servers, options.runs, given, runs)
        else:
            with EmbeddedKafka(Path(name) / "kafka") as kafka:
                kafka.create_topic(TOPIC, PARTITIONS)
                load(kafka.bootstrap_servers, options.records, options.size)
                measure(kafka.bootstrap_servers, options.runs, given, runs)
    report(runs)


def measure(servers: str, count: int, options: Mapping[str, Any], runs: dict[str, list[Measurement]]) -> None:
    """Interleaved, so that a noisy minute hits all."""
    for _ in range(count):
        for kind, measured in runs.items():
            measured.append(run_once(servers, kind, options))


if __name__ == "__main__":
    main()
