"""The traps of transactional Kafka output, each on a real broker, and what the user is told."""

from __future__ import annotations

import contextlib
import json
import threading
import time
import uuid
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any

import pyarrow as pa
import pytest
from confluent_kafka import Consumer, ConsumerGroupTopicPartitions, Producer, TopicPartition
from confluent_kafka.admin import AdminClient

from onceflow.connectors.formats import Raw
from onceflow.connectors.kafka.client import LedgerEntry, LedgerKey
from onceflow.connectors.kafka.embedded import EmbeddedKafka
from onceflow.connectors.kafka.options import KafkaOptions
from onceflow.connectors.kafka.testing.fault_proxy import Api, Course, FaultProxy, Request
from onceflow.connectors.kafka.transactions.librdkafka_client import LibrdkafkaClient
from onceflow.connectors.kafka.transactions.owner import OwnerTransactions
from onceflow.connectors.kafka.transactions.producer_settings import ProducerSettings
from onceflow.connectors.kafka.transactions.sink_topics import LEDGER_TOPIC
from onceflow.connectors.kafka.transactions.sink_writer import KafkaSinkWriter
from onceflow.connectors.kafka.transactions.staged_writer import StagedSettings, StagedWriter
from onceflow.runtime.checkpoint.memory_store import MemoryStore
from onceflow.runtime.checkpoint.staged_files import AttemptStagedFiles
from onceflow.runtime.clock import SystemClock
from onceflow.runtime.contracts import Committable, SinkContext
from onceflow.runtime.errors import DataLossError, Fatal, Fenced, Retryable, UsageError
from onceflow.runtime.records import Records
from onceflow.sinks.kafka import KafkaSink

pytestmark = pytest.mark.kafka

Row = dict[str, Any]


class Job:
    """One job's sink on one broker; every attempt opens a writer from what was staged last."""

    def __init__(self, servers: str, topic: str, **sink: Any) -> None:
        self.servers = servers
        self.sink = KafkaSink(servers, topic, key="user", **sink)
        self.lineage = uuid.uuid4().hex[:12]
        self.store = MemoryStore(self.lineage)
        self.attempts = 0
        self.waits: list[str] = []
        self._writers: list[KafkaSinkWriter] = []

    @property
    def ledger(self) -> LedgerKey:
        return LedgerKey(f"traps.out.{self.lineage}.0", LEDGER_TOPIC)

    def context(self, restored: int) -> SinkContext:
        self.attempts += 1
        files = AttemptStagedFiles(self.store, self.attempts, "out", 0)
        return SinkContext(
            "traps",
            self.lineage,
            "out",
            0,
            1,
            self.attempts,
            restored,
            files,
            SystemClock(),
            pa.schema([]),
            self.waits.append,
        )

    def open(self, restored: int = 0) -> KafkaSinkWriter:
        writer = self.sink.open_writer(self.context(restored))
        self._writers.append(writer)
        return writer

    def start(self, restored: Committable | None = None) -> KafkaSinkWriter:
        writer = self.open(restored.checkpoint_id if restored else 0)
        writer.recover([restored] if restored else [])
        return writer

    def close(self) -> None:
        for writer in self._writers:
            writer.close()


@pytest.fixture
def make_job() -> Iterator[Callable[..., Job]]:
    jobs: list[Job] = []

    def make(servers: str, topic: str, **sink: Any) -> Job:
        jobs.append(Job(servers, topic, **sink))
        return jobs[-1]

    yield make
    for job in jobs:
        job.close()


def records(*numbers: int) -> Records:
    return Records(pa.RecordBatch.from_pydict({"user": [f"u{n}" for n in numbers], "n": list(numbers)}))


def stage(writer: KafkaSinkWriter, checkpoint_id: int, *numbers: int) -> Committable:
    writer.write(records(*numbers))
    return writer.pre_commit(checkpoint_id).stage()


def visible(servers: str, topic: str, settings: dict[str, Any] | None = None) -> list[Any]:
    """What a read_committed reader sees up to the end; raises if the end is not reached in 30 s."""
    ours = {"group.id": uuid.uuid4().hex, "enable.partition.eof": True, "enable.auto.commit": False}
    consumer = Consumer(
        {
            "bootstrap.servers": servers,
            "log_level": 0,
            "auto.offset.reset": "earliest",
            **ours,
            **(settings or {}),
        }
    )
    partitions = set(consumer.list_topics(topic, timeout=240).topics[topic].partitions)
    consumer.assign([TopicPartition(topic, p, 0) for p in partitions])
    rows, deadline = [], time.monotonic() + 120
    while partitions:
        assert time.monotonic() < deadline, "the end was not reached"
        message = consumer.poll(1.0)
        if message is not None and message.error():
            partitions.discard(message.partition())
        elif message is not None:
            rows.append(json.loads(message.value())["n"])
    consumer.close()
    return sorted(rows)


# --- The ledger ---------------------------------------------------------------------------------


def test_broker_drops_a_negative_ledger_without_a_word_so_we_refuse_to_send_one(
    broker: EmbeddedKafka, new_topic: Callable[..., str], make_job: Callable[..., Job]
) -> None:
    job = make_job(broker.bootstrap_servers, new_topic())
    job.start().close()
    group = job.ledger.transactional_id
    consumer = Consumer({"bootstrap.servers": broker.bootstrap_servers, "log_level": 0, "group.id": group})
    producer = Producer(
        {"bootstrap.servers": broker.bootstrap_servers, "log_level": 0, "transactional.id": group}
    )
    producer.init_transactions(30)
    for value in (-1, -1001, -7):
        producer.begin_transaction()
        position = TopicPartition(LEDGER_TOPIC, 0, value)
        producer.send_offsets_to_transaction([position], consumer.consumer_group_metadata(), 30)
        producer.commit_transaction(30)  # says OK
        assert consumer.committed([TopicPartition(LEDGER_TOPIC, 0)], timeout=120)[0].offset == 0
    consumer.close()
    ours = LibrdkafkaClient(job.sink.options(), ProducerSettings()).open_producer(job.ledger)
    with pytest.raises(AssertionError, match="checkpoint id"):
        ours.send_ledger(LedgerEntry(-1, ""))
    ours.discard()


@pytest.mark.parametrize("how", ["expired", "went back"])
def test_lost_ledger_stops_the_job_and_says_what_to_do(
    broker: EmbeddedKafka, new_topic: Callable[..., str], make_job: Callable[..., Job], how: str
) -> None:
    job = make_job(broker.bootstrap_servers, new_topic())
    writer = job.start()
    stage(writer, 1, 1)
    writer.commit(1)
    committable = stage(writer, 2, 2)
    writer.close()
    admin = AdminClient({"bootstrap.servers": broker.bootstrap_servers, "log_level": 0})
    group = job.ledger.transactional_id
    if how == "expired":  # the same to every reader: -1001, no error
        admin.delete_consumer_groups([group])[group].result()
    else:
        back = ConsumerGroupTopicPartitions(group, [TopicPartition(LEDGER_TOPIC, 0, 0)])
        admin.alter_consumer_group_offsets([back])[group].result()
    with pytest.raises(
        DataLossError, match=r"onceflow transactions ledger --set .*N is the last checkpoint's id"
    ):
        job.start(committable)
    assert visible(broker.bootstrap_servers, job.sink.topic) == [1]


def test_start_from_a_checkpoint_older_than_the_output_is_refused(
    broker: EmbeddedKafka, new_topic: Callable[..., str], make_job: Callable[..., Job]
) -> None:
    job = make_job(broker.bootstrap_servers, new_topic())
    writer = job.start()
    old = stage(writer, 1, 1)
    writer.commit(1)
    stage(writer, 2, 2)
    writer.commit(2)
    with pytest.raises(Fatal, match="committed up to checkpoint 2, but the job starts from checkpoint 1"):
        job.start(old)


# --- Two writers --------------------------------------------------------------------------------


def test_two_live_attempts_the_older_goes_away_and_nothing_doubles(
    broker: EmbeddedKafka, new_topic: Callable[..., str], make_job: Callable[..., Job]
) -> None:
    job = make_job(broker.bootstrap_servers, new_topic())
    old = job.start()
    durable = stage(old, 1, 1, 2)
    new = job.start(durable)  # has committed checkpoint 1 for the old one
    with pytest.raises(Fenced, match="newer attempt"):
        old.commit(1)
    # The old one's last try may not have cost the new one more than a fresh epoch.
    stage(new, 2, 3)
    new.commit(2)
    assert visible(broker.bootstrap_servers, job.sink.topic) == [1, 2, 3]


# --- Rule 4 -------------------------------------------------------------------------------------


class _IgnoresDoubt(OwnerTransactions):
    def _doubt(self, producer: object) -> str | None:
        return None


class _Careless(StagedWriter):
    def _transactions(self, ledger: LedgerKey, last_seen: int | None) -> OwnerTransactions:
        return _IgnoresDoubt(self._client, ledger, self._claimant, self._patience, last_seen)


@pytest.mark.parametrize("writer_type", [StagedWriter, _Careless])
def test_late_first_copy_of_end_txn_doubles_without_rule_4_only(
    broker: EmbeddedKafka,
    new_topic: Callable[..., str],
    make_job: Callable[..., Job],
    writer_type: type[StagedWriter],
) -> None:
    """Commit 1's EndTxn is held back and its connection cut; the copy commits. The first one arrives
    when transaction 2 is full but for its ledger, and then the process is gone."""
    job = make_job(broker.bootstrap_servers, new_topic())
    with FaultProxy(broker.bootstrap_servers) as proxy:
        client = LibrdkafkaClient(KafkaOptions(proxy.address), ProducerSettings())
        staged = writer_type(
            job.context(0), client, StagedSettings([job.sink.topic], delivery_timeout_ms=2_000)
        )
        writer = KafkaSinkWriter(job.sink.rows_to_topics, job.context(0), staged)
        writer.recover([])
        ends: Counter[int] = Counter()
        dying_at = threading.Event()

        def hold_first_end(request: Request) -> Course:
            ends[request.api] += 1
            return (
                Course.HOLD_AND_CUT if (request.api, ends[request.api]) == (Api.END_TXN, 1) else Course.PASS
            )

        proxy.on_request = hold_first_end
        stage(writer, 1, 1, 2, 3)
        writer.commit(1)
        assert proxy.held == 1
        durable = stage(writer, 2, 4, 5, 6)

        def die_before_the_ledger(request: Request) -> Course:
            if request.api == Api.ADD_OFFSETS_TO_TXN:
                proxy.release()
                dying_at.set()
            return Course.HOLD if request.api in (Api.ADD_OFFSETS_TO_TXN, Api.END_TXN) else Course.PASS

        proxy.on_request = die_before_the_ledger
        dying = threading.Thread(target=lambda: _ignore(Retryable, lambda: writer.commit(2)))
        dying.start()
        assert dying_at.wait(240)
        proxy.on_request = lambda request: Course.HOLD
        proxy.cut()
        writer.close()
        job.start(durable)
        dying.join(60)
    seen = visible(broker.bootstrap_servers, job.sink.topic)
    expected = [1, 2, 3, 4, 5, 6] if writer_type is StagedWriter else [1, 2, 3, 4, 4, 5, 5, 6, 6]
    assert seen == expected


def _ignore(error: type[Exception], call: Callable[[], object]) -> None:
    with contextlib.suppress(error):
        call()


# --- The broker is away -------------------------------------------------------------------------


def test_commit_waits_for_a_broker_that_is_away_and_goes_on(
    own_broker: Callable[..., EmbeddedKafka], make_job: Callable[..., Job]
) -> None:
    kafka = own_broker()
    job = make_job(kafka.bootstrap_servers, kafka.create_topic("out"))
    writer = job.start()
    stage(writer, 1, 1)
    writer.commit(1)
    stage(writer, 2, 2)
    kafka.kill()
    committing = threading.Thread(target=lambda: writer.commit(2))
    committing.start()
    deadline = time.monotonic() + 240
    while not job.waits:
        assert time.monotonic() < deadline
        time.sleep(0.01)
    assert "Kafka sink waits since" in job.waits[0]
    kafka.start()
    committing.join(60)
    assert not committing.is_alive()
    assert visible(kafka.bootstrap_servers, job.sink.topic) == [1, 2]


def test_commit_gives_up_after_the_stated_time(
    own_broker: Callable[..., EmbeddedKafka], make_job: Callable[..., Job]
) -> None:
    kafka = own_broker()
    job = make_job(kafka.bootstrap_servers, kafka.create_topic("out"), delivery_timeout="3 s")
    writer = job.start()
    durable = stage(writer, 1, 1)
    kafka.kill()
    with pytest.raises(Retryable, match=r"gave up after .* s \(delivery_timeout\).*safe in the checkpoint"):
        writer.commit(1)
    kafka.start()
    job.start(durable)
    assert visible(kafka.bootstrap_servers, job.sink.topic) == [1]


def test_outage_longer_than_the_transaction_timeout_loses_nothing(
    own_broker: Callable[..., EmbeddedKafka], make_job: Callable[..., Job]
) -> None:
    """The transaction is full, its EndTxn on the way, the process gone; the broker aborts it."""
    kafka = own_broker(properties={"transaction.abort.timed.out.transaction.cleanup.interval.ms": "200"})
    job = make_job(kafka.bootstrap_servers, kafka.create_topic("out"))
    with FaultProxy(kafka.bootstrap_servers) as proxy:
        client = LibrdkafkaClient(KafkaOptions(proxy.address), ProducerSettings(transaction_timeout_ms=1_000))
        staged = StagedWriter(job.context(0), client, StagedSettings([job.sink.topic]))
        writer = KafkaSinkWriter(job.sink.rows_to_topics, job.context(0), staged)
        writer.recover([])
        durable = stage(writer, 1, 1, 2, 3)
        proxy.on_request = lambda r: Course.HOLD if r.api == Api.END_TXN else Course.PASS
        committing = threading.Thread(target=lambda: _ignore(Retryable, lambda: writer.commit(1)))
        committing.start()
        deadline = time.monotonic() + 240
        while proxy.held == 0:
            assert time.monotonic() < deadline
            time.sleep(0.01)
        proxy.on_request = lambda request: Course.HOLD
        writer.close()
    assert visible(kafka.bootstrap_servers, job.sink.topic) == []  # freed, aborted by the broker
    job.start(durable)
    assert visible(kafka.bootstrap_servers, job.sink.topic) == [1, 2, 3]
    committing.join(60)


# --- Records and topics -------------------------------------------------------------------------


def test_too_large_a_record_is_named_before_the_checkpoint(
    broker: EmbeddedKafka, new_topic: Callable[..., str], make_job: Callable[..., Job]
) -> None:
    topic = new_topic(config={"max.message.bytes": "10000"})
    job = make_job(broker.bootstrap_servers, topic, value=Raw("value"))
    writer = job.start()
    columns = {"user": ["small", "huge"], "value": [b"x" * 9_800, b"x" * 10_001]}
    writer.write(Records(pa.RecordBatch.from_pydict(columns)))
    with pytest.raises(Fatal, match=r"key b'huge', 10005 bytes, the topic takes 10000"):
        writer.pre_commit(1)


def test_a_topic_with_small_records_takes_a_large_batch(
    broker: EmbeddedKafka, new_topic: Callable[..., str], make_job: Callable[..., Job]
) -> None:
    job = make_job(broker.bootstrap_servers, new_topic(config={"max.message.bytes": "2000"}))
    writer = job.start()
    stage(writer, 1, *range(5_000))
    writer.commit(1)
    assert visible(broker.bootstrap_servers, job.sink.topic) == list(range(5_000))


def test_missing_topic_is_a_sentence(broker: EmbeddedKafka, make_job: Callable[..., Job]) -> None:
    with pytest.raises(UsageError, match="topic 'nowhere' does not exist: create it"):
        make_job(broker.bootstrap_servers, "nowhere").open()
    admin = AdminClient({"bootstrap.servers": broker.bootstrap_servers, "log_level": 0})
    assert "nowhere" not in admin.list_topics(timeout=240).topics


def test_event_time_is_refused_where_retention_would_delete_the_output(
    broker: EmbeddedKafka, new_topic: Callable[..., str], make_job: Callable[..., Job]
) -> None:
    with pytest.raises(UsageError, match=r"retention.ms is 604800000 ms.*set retention.ms=-1"):
        make_job(broker.bootstrap_servers, new_topic(), timestamp="event-time").open()
    kept = new_topic(config={"retention.ms": "-1"})
    make_job(broker.bootstrap_servers, kept, timestamp="event-time").open()


def test_large_output_spills_and_goes_out_in_one_transaction(
    broker: EmbeddedKafka, new_topic: Callable[..., str], make_job: Callable[..., Job]
) -> None:
    job = make_job(broker.bootstrap_servers, new_topic(partitions=3))
    client = LibrdkafkaClient(KafkaOptions(broker.bootstrap_servers), ProducerSettings())
    context = job.context(0)
    staged = StagedWriter(context, client, StagedSettings([job.sink.topic], memory_bytes_max=50_000))
    writer = KafkaSinkWriter(job.sink.rows_to_topics, context, staged)
    writer.recover([])
    for start in range(0, 50_000, 1_000):
        writer.write(records(*range(start, start + 1_000)))
        assert staged._open.memory_bytes <= 50_000
    committable = writer.pre_commit(1).stage()
    assert len(committable.paths) == 1
    assert visible(broker.bootstrap_servers, job.sink.topic) == []
    writer.commit(1)
    assert visible(broker.bootstrap_servers, job.sink.topic) == list(range(50_000))
    writer.close()
