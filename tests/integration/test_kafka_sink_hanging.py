"""Transactions that the broker has forgotten: found, named, repaired; live ones left alone."""

from __future__ import annotations

import contextlib
import itertools
import json
import subprocess
import threading
import time
import uuid
from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from kafka import KafkaAdminClient
from kafka.protocol.producer import ProduceRequest
from kafka.record.default_records import DefaultRecordBatchBuilder
from kafka.structs import TopicPartition as At

from onceflow.connectors.kafka.embedded import EmbeddedKafka
from onceflow.connectors.kafka.options import KafkaOptions
from onceflow.connectors.kafka.transactions.hanging import TransactionDoctor
from onceflow.connectors.kafka.transactions.sink_writer import KafkaSinkWriter
from onceflow.runtime.checkpoint.memory_store import MemoryStore
from onceflow.runtime.checkpoint.staged_files import AttemptStagedFiles
from onceflow.runtime.clock import SystemClock
from onceflow.runtime.contracts import Committable, SinkContext
from onceflow.runtime.errors import Retryable, UsageError
from onceflow.runtime.records import Records
from onceflow.sinks.kafka import KafkaSink

pytestmark = pytest.mark.kafka


def forget(servers: str, topic: str, producer_id: int) -> None:
    """Leave a record of a transaction that no coordinator knows: what a lost marker leaves behind."""
    batch = DefaultRecordBatchBuilder(2, 0, 1, producer_id, 0, 0, 10_000)
    batch.append(0, int(time.time() * 1000), b"k", b'{"n": 7}', [])
    kind = ProduceRequest.TopicProduceData
    partition = kind.PartitionProduceData(index=0, records=bytes(batch.build()))
    request = ProduceRequest(
        transactional_id="forgotten",
        acks=-1,
        timeout_ms=5000,
        topic_data=[kind(name=topic, partition_data=[partition])],
        max_version=9,
    )
    admin: Any = KafkaAdminClient(bootstrap_servers=servers)

    async def send() -> Any:
        leaders = await admin._async_get_leader_for_partitions([At(topic, 0)])
        return await admin._manager.send(request, node_id=next(iter(leaders)))

    response = admin._manager.run(send)
    assert [p.error_code for t in response.responses for p in t.partition_responses] == [0]
    admin.close()


def stable_end(servers: str, topic: str) -> tuple[int, int]:
    """The last stable offset, where readers of committed records stop, and the end of the log."""
    consumer = Consumer({"bootstrap.servers": servers, "log_level": 0, "group.id": uuid.uuid4().hex})
    raw = Consumer(
        {
            "bootstrap.servers": servers,
            "log_level": 0,
            "group.id": uuid.uuid4().hex,
            "isolation.level": "read_uncommitted",
        }
    )
    ends = (
        consumer.get_watermark_offsets(TopicPartition(topic, 0), timeout=240)[1],
        raw.get_watermark_offsets(TopicPartition(topic, 0), timeout=240)[1],
    )
    consumer.close()
    raw.close()
    return ends


def wait_stable_end(servers: str, topic: str, expected: int) -> None:
    deadline = time.monotonic() + 120
    while stable_end(servers, topic) != (expected, expected):
        assert time.monotonic() < deadline, stable_end(servers, topic)


Transactions = Callable[..., Any]


@pytest.fixture
def transactions(onceflow: Callable[..., subprocess.CompletedProcess[str]]) -> Transactions:
    """`transactions(servers, "list", ...)`: what that command says, as values if it is asked for JSON."""

    def run(servers: str, command: str, *arguments: str) -> Any:
        done = onceflow("transactions", command, "--bootstrap-servers", servers, *arguments)
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout) if "--json" in arguments else done.stdout

    return run


@pytest.mark.parametrize("outcome", ["commit", "abort"])
def test_hanging_transaction_is_found_named_and_repaired_and_a_live_one_left_alone(
    own_broker: Callable[..., EmbeddedKafka], outcome: str, transactions: Transactions
) -> None:
    kafka = own_broker(properties={"transaction.partition.verification.enable": "false"})
    servers, topic = kafka.bootstrap_servers, kafka.create_topic("out")
    live_topic = kafka.create_topic("live")
    live = Producer({"bootstrap.servers": servers, "log_level": 0, "transactional.id": "live"})
    live.init_transactions(30)
    live.begin_transaction()
    live.produce(live_topic, b"live")
    live.flush(30)
    forget(servers, topic, producer_id=4711)
    assert stable_end(servers, topic) == (0, 1)

    found = transactions(servers, "list", "--topic", topic, "--topic", live_topic, "--json")
    assert [(t["producer_id"], t["stuck"][0]["topic"]) for t in found["hanging"]] == [(4711, topic)]
    assert [t["transactional_id"] for t in found["open"]] == ["live"]
    with TransactionDoctor(KafkaOptions(servers)) as doctor:
        hanging = doctor.hanging([topic])[0]
        with pytest.raises(UsageError, match="--as commit or --as abort"):
            doctor.choose_outcome(hanging, None)

    topics = ("--topic", topic, "--topic", live_topic)
    transactions(servers, "repair", *topics, "--as", outcome)
    wait_stable_end(servers, topic, 2)
    assert "no transaction hangs" in transactions(servers, "repair", *topics)
    live.commit_transaction(30)
    wait_stable_end(servers, live_topic, 2)


def test_abort_ends_the_open_transaction_of_a_writer_that_is_gone(
    broker: EmbeddedKafka, new_topic: Callable[..., str], transactions: Transactions
) -> None:
    topic, name = new_topic("out"), f"gone-{uuid.uuid4().hex[:8]}"
    gone = Producer({"bootstrap.servers": broker.bootstrap_servers, "log_level": 0, "transactional.id": name})
    gone.init_transactions(30)
    gone.begin_transaction()
    gone.produce(topic, b"never seen")
    gone.flush(30)
    assert stable_end(broker.bootstrap_servers, topic) == (0, 1)
    transactions(broker.bootstrap_servers, "abort", name)
    wait_stable_end(broker.bootstrap_servers, topic, 2)


# --- The broker bug itself ----------------------------------------------------------------------


class _Job:
    def __init__(self, servers: str, topic: str) -> None:
        self.sink = KafkaSink(servers, topic, delivery_timeout="25 s")
        self.store = MemoryStore()
        self.attempts = itertools.count(1)
        self.durable: Committable | None = None

    def start(self) -> KafkaSinkWriter:
        attempt = next(self.attempts)
        restored = self.durable.checkpoint_id if self.durable else 0
        files = AttemptStagedFiles(self.store, attempt, "out", 0)
        writer = self.sink.open_writer(
            SinkContext("hang", "l1", "out", 0, 1, attempt, restored, files, SystemClock(), pa.schema([]))
        )
        try:
            writer.recover([self.durable] if self.durable else [])
        except BaseException:
            writer.close()
            raise
        return writer


@pytest.mark.soak
@pytest.mark.timeout(1_500)
def test_broker_4_3_1_that_lost_its_markers_is_repaired_and_nothing_is_lost(
    own_broker: Callable[..., EmbeddedKafka], transactions: Transactions
) -> None:
    """Kill the broker just after it has answered EndTxn, again and again, until markers are lost."""
    kafka = own_broker(version="4.3.1")
    servers, topic = kafka.bootstrap_servers, kafka.create_topic("out")
    job, hangs = _Job(servers, topic), 0
    for checkpoint_id in range(1, 41):
        writer = job.start()
        writer.write(Records(pa.RecordBatch.from_pydict({"n": [checkpoint_id]})))
        job.durable = writer.pre_commit(checkpoint_id).stage()
        killer = threading.Timer(0.002 * (checkpoint_id % 8), kafka.kill)
        killer.start()
        committing = threading.Thread(target=lambda w=writer, n=checkpoint_id: _quietly(w, n))  # type: ignore[misc]
        committing.start()
        killer.join()
        writer.close()
        kafka.start()
        committing.join(60)
        with TransactionDoctor(KafkaOptions(servers)) as doctor:
            if doctor.hanging([topic]):
                hangs += 1
                transactions(servers, "repair", "--topic", topic)
    job.start().close()
    seen = _dump(servers, topic)
    assert seen == list(range(1, 41))
    print(f"{hangs} of 40 kills hung")


def _quietly(writer: KafkaSinkWriter, checkpoint_id: int) -> None:
    with contextlib.suppress(Retryable):
        writer.commit(checkpoint_id)


def _dump(servers: str, topic: str) -> list[int]:
    consumer = Consumer(
        {
            "bootstrap.servers": servers,
            "log_level": 0,
            "group.id": uuid.uuid4().hex,
            "enable.partition.eof": True,
        }
    )
    consumer.assign([TopicPartition(topic, 0, 0)])
    rows, deadline = [], time.monotonic() + 240
    while True:
        assert time.monotonic() < deadline
        message = consumer.poll(1.0)
        if message is not None and message.error():
            break
        if message is not None:
            rows.append(json.loads(message.value())["n"])
    consumer.close()
    return sorted(rows)
