"""All ways of producing on a real broker: the same records arrive, and none is lost without a word."""

from __future__ import annotations

import json
import sys
import time
import uuid
from collections.abc import Callable, Iterator
from typing import Any

import pyarrow as pa
import pytest
from confluent_kafka import Consumer, TopicPartition
from confluent_kafka.admin import AdminClient
from tenacity import retry, retry_if_exception_type, stop_after_delay

from onceflow.connectors.kafka.client import PRODUCE_SCHEMA, LedgerEntry, LedgerKey
from onceflow.connectors.kafka.embedded import EmbeddedKafka
from onceflow.connectors.kafka.options import KafkaOptions
from onceflow.connectors.kafka.produce.batch_limit import BatchTooLargeError
from onceflow.connectors.kafka.produce.direct import DirectRoute
from onceflow.connectors.kafka.produce.librdkafka_batches import BulkRoute
from onceflow.connectors.kafka.produce.per_record import OneByOneRoute
from onceflow.connectors.kafka.transactions.librdkafka_client import LibrdkafkaClient
from onceflow.connectors.kafka.transactions.producer import LibrdkafkaProducer
from onceflow.connectors.kafka.transactions.producer_settings import ProducerSettings
from onceflow.connectors.kafka.transactions.sink_topics import LEDGER_TOPIC
from onceflow.runtime.errors import Fatal, OnceflowError, Retryable

pytestmark = pytest.mark.kafka

Open = Callable[..., LibrdkafkaProducer]


ROUTES: dict[Any, type] = {"direct": DirectRoute, "bulk": BulkRoute, "one by one": OneByOneRoute}


@pytest.fixture(params=ROUTES)
def open_producer(broker: EmbeddedKafka, request: pytest.FixtureRequest) -> Iterator[Open]:
    opened: list[Any] = []
    route = request.param

    def make(**librdkafka: Any) -> LibrdkafkaProducer:
        settings = {name.replace("_", "."): value for name, value in librdkafka.items()}
        options = KafkaOptions(broker.bootstrap_servers, settings)
        client = LibrdkafkaClient(options, ProducerSettings(route=route))
        client.ensure_ledger_topic(LEDGER_TOPIC)
        ledger = LedgerKey(f"bulk-{uuid.uuid4().hex}", LEDGER_TOPIC)
        young = retry(retry=retry_if_exception_type(Retryable), stop=stop_after_delay(30), reraise=True)
        producer: LibrdkafkaProducer = young(client.open_producer)(ledger)  # the broker has just started
        assert isinstance(producer._route, ROUTES[route])
        opened.extend([producer, client])
        return producer

    yield make
    for each in opened:
        each.discard() if isinstance(each, LibrdkafkaProducer) else each.close()


def rows_of(*rows: dict[str, Any]) -> pa.RecordBatch:
    return pa.RecordBatch.from_pylist(list(rows), PRODUCE_SCHEMA)


def numbered(topic: str, count: int, partitions: int = 1, first: int = 0) -> pa.RecordBatch:
    """Sorted by partition, as the sink does it."""
    rows = [{"topic": topic, "partition": n % partitions, "value": b"%d" % n} for n in range(first, count)]
    return rows_of(*sorted(rows, key=lambda row: row["partition"]))


def commit(producer: LibrdkafkaProducer, *batches: pa.RecordBatch) -> int:
    producer.begin()
    for batch in batches:
        producer.produce(batch)
    delivered = producer.flush()
    producer.send_ledger(LedgerEntry(1, ""))
    producer.commit()
    return delivered


def committed(servers: str, topic: str, at_least: int = 0) -> list[Any]:
    """(partition, key, value, headers, timestamp) in the order of each partition. The broker says that a
    transaction is committed before all its markers are written: waits for so many records."""
    consumer = Consumer(
        {
            "bootstrap.servers": servers,
            "log_level": 0,
            "group.id": uuid.uuid4().hex,
            "enable.partition.eof": True,
        }
    )
    partitions = set(consumer.list_topics(topic, timeout=240).topics[topic].partitions)
    consumer.assign([TopicPartition(topic, p, 0) for p in partitions])
    found: list[Any] = []
    ended: set[int] = set()
    deadline = time.monotonic() + 120
    while ended != partitions or len(found) < at_least:
        assert time.monotonic() < deadline, f"{len(found)} records were found"
        message = consumer.poll(1.0)
        if message is not None and message.error():
            ended.add(message.partition())
        elif message is not None:
            ended.discard(message.partition())
            at = message.timestamp()[1]
            found.append((message.partition(), message.key(), message.value(), message.headers(), at))
    consumer.close()
    return sorted(found, key=lambda record: record[0])


def test_every_kind_of_record_arrives_as_it_is(
    broker: EmbeddedKafka, new_topic: Callable[..., str], open_producer: Open
) -> None:
    one, two = new_topic(partitions=3), new_topic(partitions=2)
    plain = rows_of(
        {"topic": one, "partition": 0, "key": b"k", "value": b"v" * 70_000},
        {"topic": one, "partition": 0, "key": None, "value": b"no key"},
        {"topic": one, "partition": 2, "key": b"deleted", "value": None},
        {"topic": one, "partition": 2, "key": b"", "value": b""},
        {"topic": two, "partition": 1, "key": b"a\0b", "value": b"\0\xff"},
        {"topic": one, "partition": 1, "key": b"back", "value": b"to the first topic"},
    )
    headers = [{"key": "h", "value": b"1\0"}, {"key": "ü", "value": None}, {"key": "h", "value": b""}]
    rich = rows_of(
        {"topic": two, "partition": 0, "value": b"with", "headers": headers, "timestamp": 1_000},
        {"topic": two, "partition": 0, "value": b"without", "headers": None, "timestamp": None},
        {"topic": two, "partition": 0, "key": b"", "value": None, "headers": [], "timestamp": 2_000},
    )
    chosen = rows_of({"topic": two, "partition": -1, "key": b"k", "value": b"anywhere"})
    before_ms = time.time_ns() // 1_000_000
    delivered = commit(open_producer(), plain.slice(1), plain.slice(0, 1), rich, chosen, numbered(one, 0))
    assert delivered == 10
    found = committed(broker.bootstrap_servers, one, 5)
    assert [record[:3] for record in found] == [
        (0, None, b"no key"),
        (0, b"k", b"v" * 70_000),
        (1, b"back", b"to the first topic"),
        (2, b"deleted", None),
        (2, b"", b""),
    ]
    assert all(record[4] >= before_ms for record in found)
    in_two = {record[2]: record for record in committed(broker.bootstrap_servers, two, 5)}
    assert in_two[b"\0\xff"][:2] == (1, b"a\0b")
    assert in_two[b"anywhere"][1] == b"k"
    assert in_two[b"with"][3:] == ([("h", b"1\0"), ("ü", None), ("h", b"")], 1_000)
    assert in_two[b"without"][3] is None
    assert in_two[b"without"][4] >= before_ms
    assert in_two[None][1:2] + in_two[None][3:] == (b"", None, 2_000)


def test_full_queue_keeps_order_and_loses_nothing(
    broker: EmbeddedKafka, new_topic: Callable[..., str], open_producer: Open
) -> None:
    topic = new_topic(partitions=2)
    producer = open_producer(queue_buffering_max_messages=300, linger_ms=50)
    stamped = numbered(topic, 6_000, 2, first=5_000)
    stamped = stamped.set_column(5, PRODUCE_SCHEMA.field(5), pa.array([7] * len(stamped), pa.int64()))
    assert commit(producer, numbered(topic, 5_000, 2), stamped) == 6_000
    found = committed(broker.bootstrap_servers, topic, 6_000)
    for partition in range(2):
        values = [int(record[2]) for record in found if record[0] == partition]
        assert values == list(range(partition, 6_000, 2))


def test_report_that_is_taken_while_the_caller_is_busy_counts(
    broker: EmbeddedKafka, new_topic: Callable[..., str], open_producer: Open
) -> None:
    """The serving thread polls between two calls of the caller's, as often as a transaction is long."""
    topic = new_topic(partitions=2)
    producer = open_producer()
    for sent in (1_000, 3_000):
        producer.begin()
        for rows in range(0, sent, 1_000):
            producer.produce(numbered(topic, rows + 1_000, 2, first=rows))
            deadline = time.monotonic() + 120
            while len(producer._producer):  # what was not delivered, or whose report nobody has taken
                assert time.monotonic() < deadline
                producer._poll(0.01)
        assert producer.flush() == sent
        producer.send_ledger(LedgerEntry(1, ""))
        producer.commit()


def test_rows_in_any_order_keep_the_order_of_each_partition(
    broker: EmbeddedKafka, new_topic: Callable[..., str], open_producer: Open
) -> None:
    topic = new_topic(partitions=2)
    rows = rows_of(*({"topic": topic, "partition": n % 2, "value": b"%d" % n} for n in range(1_000)))
    assert commit(open_producer(), rows) == 1_000
    found = committed(broker.bootstrap_servers, topic, 1_000)
    for partition in range(2):
        values = [int(record[2]) for record in found if record[0] == partition]
        assert values == list(range(partition, 1_000, 2))


def test_record_that_the_client_refuses_is_fatal_and_nothing_is_visible(
    broker: EmbeddedKafka, new_topic: Callable[..., str], open_producer: Open
) -> None:
    topic = new_topic()
    producer = open_producer(message_max_bytes=2_000)
    producer.begin()
    large = rows_of(*({"topic": topic, "partition": 0, "value": b"x" * size} for size in (10, 3_000, 10)))
    with pytest.raises(Fatal, match=rf"topic '{topic}' is too large: key b'', 30\d\d bytes, .* takes 2000 "):
        producer.produce(large)
    producer.abort()
    assert committed(broker.bootstrap_servers, topic) == []


def test_record_that_the_broker_refuses_fails_the_flush_and_could_not_be_committed(
    broker: EmbeddedKafka, new_topic: Callable[..., str], open_producer: Open
) -> None:
    """The broker's limit is below the client's: only the delivery report tells."""
    topic = new_topic(config={"max.message.bytes": "2000"}, partitions=2)
    producer = open_producer()
    producer.begin()
    producer.produce(numbered(topic, 100, 2))
    producer.produce(rows_of({"topic": topic, "partition": 1, "value": b"x" * 5_000}))
    refused = (
        rf"topic '{topic}' (is too large: key b'', 50\d\d bytes, .* takes less|takes no batch of 5\d+ bytes)"
    )
    with pytest.raises((Fatal, BatchTooLargeError), match=refused):  # it may be in a batch with others
        producer.flush()
    with pytest.raises(OnceflowError):  # even if nobody had looked at the reports
        producer.commit()
    assert committed(broker.bootstrap_servers, topic) == []


def test_topic_deleted_meanwhile_is_refused_or_fails_the_flush_and_could_not_be_committed(
    broker: EmbeddedKafka, new_topic: Callable[..., str], open_producer: Open
) -> None:
    topic, other = new_topic(), new_topic()
    producer = open_producer(topic_metadata_refresh_interval_ms=100, topic_metadata_propagation_max_ms=100)
    assert commit(producer, numbered(topic, 10)) == 10
    admin = AdminClient({"bootstrap.servers": broker.bootstrap_servers, "log_level": 0})
    admin.delete_topics([topic])[topic].result()
    producer.begin()

    def send() -> str:
        for _ in range(100):  # until the client has heard of it, its queue takes them
            try:
                producer.produce(numbered(other, 10))
                producer.produce(numbered(topic, 10))
            except OnceflowError:
                return "refused"
            try:
                producer.flush()
            except OnceflowError:
                return "failed"
        return "delivered"

    how = send()
    assert how != "delivered"
    if how == "failed":
        with pytest.raises(OnceflowError):
            producer.commit()
    else:
        producer.abort()
    assert committed(broker.bootstrap_servers, other) == []


def test_unknown_partition_is_refused_and_does_not_block_the_flush(
    broker: EmbeddedKafka, new_topic: Callable[..., str], open_producer: Open
) -> None:
    topic = new_topic(partitions=2)
    producer = open_producer()
    assert commit(producer, numbered(topic, 2, 2)) == 2  # now the client knows the topic
    producer.begin()
    with pytest.raises(Retryable, match="UNKNOWN_PARTITION"):
        producer.produce(rows_of({"topic": topic, "partition": 7, "value": b"x"}))
    assert producer.flush() == 0
    producer.abort()


def test_count_is_of_this_transaction_only(
    broker: EmbeddedKafka, new_topic: Callable[..., str], open_producer: Open
) -> None:
    topic = new_topic(partitions=3)
    producer = open_producer()
    for number in range(1, 6):
        assert commit(producer, numbered(topic, 100 * number, 3)) == 100 * number
        assert producer.doubt() is None
    assert len(committed(broker.bootstrap_servers, topic, 1_500)) == 1_500


def test_bulk_route_still_sees_broken_connections(
    broker: EmbeddedKafka, new_topic: Callable[..., str], open_producer: Open
) -> None:
    """Statistics come by the same queue as the reports: none may be dropped."""
    producer = open_producer()
    topic = new_topic()
    samples = set()
    for _ in range(20):
        assert commit(producer, numbered(topic, 50)) == 50
        assert producer.doubt() is None
        samples.add(producer._watch.sample_us)
    assert len(samples) == 20, json.dumps(sorted(samples))


def test_nothing_keeps_the_producer_once_it_is_discarded(
    broker: EmbeddedKafka, new_topic: Callable[..., str], open_producer: Open
) -> None:
    """Else its threads would call for its brokers as long as the process lives, with each failure more."""
    producer = open_producer()
    commit(producer, numbered(new_topic(), 10))
    held = producer._producer
    producer.discard()
    deadline = time.monotonic() + 120
    while sys.getrefcount(held) > 2:  # ours, and the argument; a call that is under way may have one, too
        assert time.monotonic() < deadline
        time.sleep(0.01)
