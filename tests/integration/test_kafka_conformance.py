"""KafkaSource and KafkaSink against the contract suites, on a real broker."""

from __future__ import annotations

import json
import uuid
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import Any

import pyarrow as pa
import pytest
from confluent_kafka import Consumer, KafkaError, Producer, TopicPartition

from onceflow.connectors.formats import Json
from onceflow.connectors.kafka import KafkaSource
from onceflow.connectors.kafka.embedded import EmbeddedKafka
from onceflow.runtime.checkpoint.memory_store import MemoryStore
from onceflow.runtime.checkpoint.staged_files import AttemptStagedFiles
from onceflow.runtime.clock import SystemClock
from onceflow.runtime.contracts import SinkContext, SinkWriter, Source
from onceflow.runtime.records import Records
from onceflow.runtime.testing.conformance import SINK_CHECKS, SOURCE_CHECKS, SinkUnderTest
from onceflow.sinks.kafka import KafkaSink

pytestmark = pytest.mark.kafka

SCHEMA = pa.schema([("n", pa.int64())])


def visible_rows(broker: EmbeddedKafka, topic: str) -> list[int]:
    """What a read_committed consumer sees up to the last stable offset."""
    consumer = Consumer(
        {
            "bootstrap.servers": broker.bootstrap_servers,
            "log_level": 0,
            "group.id": f"judge-{uuid.uuid4().hex}",
            "isolation.level": "read_committed",
            "enable.partition.eof": True,
            "fetch.wait.max.ms": 50,
        }
    )
    consumer.assign([TopicPartition(topic, 0, 0)])
    rows: list[int] = []
    try:
        while True:
            message = consumer.poll(30)
            assert message is not None, "the broker says nothing for 30 s"
            error = message.error()
            if error is not None:
                assert error.code() == KafkaError._PARTITION_EOF, error
                return rows
            rows.append(json.loads(message.value())["n"])
    finally:
        consumer.close()


@pytest.fixture
def open_writers() -> Iterator[ExitStack]:
    with ExitStack() as stack:
        yield stack


@pytest.mark.parametrize("check", SINK_CHECKS, ids=lambda check: check.__name__)
def test_kafka_sink(
    check: Callable[[SinkUnderTest], None], broker: EmbeddedKafka, new_topic: Any, open_writers: ExitStack
) -> None:
    topic, lineage, store = new_topic("sink"), uuid.uuid4().hex[:16], MemoryStore()
    sink = KafkaSink(bootstrap_servers=broker.bootstrap_servers, topic=topic, value=Json())

    def open_writer(subtask: int, parallelism: int, attempt: int, restored: int) -> SinkWriter:
        files = AttemptStagedFiles(store, attempt, "out", subtask)
        writer = sink.open_writer(
            SinkContext(
                "job", lineage, "out", subtask, parallelism, attempt, restored, files, SystemClock(), SCHEMA
            )
        )
        open_writers.callback(writer.close)
        return writer

    def records(n: int) -> Records:
        return Records(pa.RecordBatch.from_pylist([{"n": n}], SCHEMA))

    check(SinkUnderTest(open_writer, records, lambda: visible_rows(broker, topic)))


@pytest.mark.parametrize("check", SOURCE_CHECKS, ids=lambda check: check.__name__)
def test_kafka_source(check: Callable[[Source], None], broker: EmbeddedKafka, new_topic: Any) -> None:
    """Three partitions, one of them empty."""
    topic = new_topic("source", partitions=3)
    producer = Producer({"bootstrap.servers": broker.bootstrap_servers, "log_level": 0})
    for n in range(30):
        producer.produce(topic, json.dumps({"n": n}).encode(), partition=n % 2)
    assert producer.flush(30) == 0
    check(
        KafkaSource(
            bootstrap_servers=broker.bootstrap_servers, topics=[topic], value=Json(SCHEMA), until="latest"
        )
    )
