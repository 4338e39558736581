"""A direct producer between a broker and what goes wrong: each row is visible once, or not at all."""

from __future__ import annotations

import socket
import time
import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

import pyarrow as pa
import pytest

from onceflow.connectors.kafka.client import PRODUCE_SCHEMA, LedgerKey
from onceflow.connectors.kafka.embedded import EmbeddedKafka
from onceflow.connectors.kafka.options import KafkaOptions
from onceflow.connectors.kafka.produce.direct import DirectRoute
from onceflow.connectors.kafka.protocol.eligibility import PAUSE_S
from onceflow.connectors.kafka.testing.fault_proxy import Api, Course, FaultProxy, Request
from onceflow.connectors.kafka.transactions.librdkafka_client import LibrdkafkaClient
from onceflow.connectors.kafka.transactions.owner import Claimant, OwnerTransactions
from onceflow.connectors.kafka.transactions.producer import LibrdkafkaProducer
from onceflow.connectors.kafka.transactions.producer_settings import ProducerSettings
from onceflow.connectors.kafka.transactions.sink_topics import LEDGER_TOPIC
from onceflow.runtime.errors import Fenced, Retryable
from tests.kafka_output import NoPatience, Output

pytestmark = pytest.mark.kafka

DEADLINE_S = 120
PARTITIONS = 3
Sees = Callable[..., None]


class RememberingClient(LibrdkafkaClient):
    """Adds the producers that it opens to a list."""

    def __init__(
        self, opened: list[LibrdkafkaProducer], options: KafkaOptions, settings: ProducerSettings
    ) -> None:
        super().__init__(options, settings)
        self._opened_here = opened

    def open_producer(self, ledger: LedgerKey) -> LibrdkafkaProducer:
        self._opened_here.append(super().open_producer(ledger))
        return self._opened_here[-1]


class Sink:
    """One owner's transactions, and the producers that it opened."""

    def __init__(
        self,
        servers: str,
        ledger: LedgerKey | None = None,
        attempt: int = 1,
        librdkafka: Mapping[str, str] | None = None,
        pause_s: float = PAUSE_S,
    ) -> None:
        self.ledger = ledger or LedgerKey(f"direct-{uuid.uuid4().hex}", LEDGER_TOPIC)
        self.opened: list[LibrdkafkaProducer] = []
        self.client = RememberingClient(
            self.opened,
            KafkaOptions(servers, librdkafka or {}),
            ProducerSettings(socket_timeout_ms=1_000, direct_pause_s=pause_s),
        )
        self.client.ensure_ledger_topic(LEDGER_TOPIC)
        self.patience = NoPatience(DEADLINE_S)
        self.transactions = OwnerTransactions(
            self.client, self.ledger, Claimant("lineage", attempt), self.patience, None
        )
        self.transactions.claim(0)

    @property
    def route(self) -> Any:
        return self.opened[-1]._route

    def close(self) -> None:
        self.transactions.close()
        self.client.close()


@pytest.fixture
def make_sink() -> Iterator[Callable[..., Sink]]:
    sinks: list[Sink] = []

    def make(*arguments: Any, **named: Any) -> Sink:
        sinks.append(Sink(*arguments, **named))
        return sinks[-1]

    yield make
    for sink in sinks:
        sink.close()


def numbered(topic: str, first: int, count: int) -> pa.RecordBatch:
    rows = [
        {"topic": topic, "partition": n % PARTITIONS, "value": b"%d" % n} for n in range(first, first + count)
    ]
    return pa.RecordBatch.from_pylist(sorted(rows, key=lambda row: row["partition"]), PRODUCE_SCHEMA)


@pytest.fixture
def sees(broker: EmbeddedKafka, engine: Any) -> Sees:
    """`sees(topic, numbers)`: that readers of committed records see these and no others, those of each
    partition in order. The broker says that a transaction is committed before all its markers are written,
    so some may be missing for a while."""

    def check(topic: str, numbers: Iterable[int], within_s: float = DEADLINE_S) -> None:
        expected = list(numbers)
        deadline = time.monotonic() + within_s
        found: list[int] = []
        while sorted(found) != expected:
            assert time.monotonic() < deadline, found
            found = [int(value) for value in engine.read_topic(broker.bootstrap_servers, topic)]
            assert set(found) <= set(expected)
            assert len(found) == len(set(found))
        for partition in range(PARTITIONS):
            of_partition = [number for number in found if number % PARTITIONS == partition]
            assert of_partition == sorted(of_partition)

    return check


def nth(api: Api, number: int, course: Course) -> Callable[[Request], Course]:
    seen: list[int] = []

    def choose(request: Request) -> Course:
        if request.api == api:
            seen.append(request.count)
        return course if request.api == api and len(seen) == number else Course.PASS

    return choose


@pytest.mark.parametrize("course", [Course.HOLD, Course.HOLD_AND_CUT, Course.LOSE_REPLY])
@pytest.mark.parametrize(("api", "number"), [(Api.PRODUCE, 2), (Api.ADD_PARTITIONS_TO_TXN, 1)], ids=str)
def test_a_request_that_is_lost_or_late_changes_nothing(
    broker: EmbeddedKafka,
    new_topic: Callable[..., str],
    make_sink: Callable[..., Sink],
    sees: Sees,
    course: Course,
    api: Api,
    number: int,
) -> None:
    topic = new_topic(partitions=PARTITIONS)
    with FaultProxy(broker.bootstrap_servers) as proxy:
        sink = make_sink(proxy.address)
        assert isinstance(sink.route, DirectRoute)
        proxy.on_request = nth(api, number, course)
        sink.transactions.commit(1, [Output(1, *(numbered(topic, 100 * n, 100) for n in range(4)))])
        assert len(sink.patience.waits) == 1
        assert "directly" in sink.patience.waits[0]
        assert not isinstance(sink.route, DirectRoute)  # librdkafka's turn
        sees(topic, range(400))
        proxy.release()  # what was late comes now: of an old epoch
        sink.transactions.commit(2, [Output(2, numbered(topic, 400, 10))])
        sees(topic, range(410))
        sink.close()


def test_after_a_while_it_writes_directly_again(
    broker: EmbeddedKafka,
    new_topic: Callable[..., str],
    make_sink: Callable[..., Sink],
    sees: Sees,
) -> None:
    topic = new_topic(partitions=PARTITIONS)
    with FaultProxy(broker.bootstrap_servers) as proxy:
        sink = make_sink(proxy.address, pause_s=0.0)
        proxy.on_request = nth(Api.PRODUCE, 1, Course.HOLD_AND_CUT)
        sink.transactions.commit(1, [Output(1, numbered(topic, 0, 100))])
        assert len(sink.patience.waits) == 1
        assert isinstance(sink.route, DirectRoute)
        sees(topic, range(100))
        sink.close()


def test_a_producer_that_is_fenced_adds_nothing_to_the_newer_one(
    broker: EmbeddedKafka, new_topic: Callable[..., str], make_sink: Callable[..., Sink], sees: Sees
) -> None:
    topic = new_topic(partitions=PARTITIONS)
    older = make_sink(broker.bootstrap_servers)
    [producer] = older.opened
    producer.begin()
    producer.produce(numbered(topic, 0, 10))
    assert producer.flush() == 10
    newer = make_sink(broker.bootstrap_servers, older.ledger, attempt=2)
    producer.produce(numbered(topic, 10, 10))
    with pytest.raises(Fenced):
        producer.flush()
    with pytest.raises(Retryable, match="not all that was sent is acknowledged"):
        producer.commit()
    newer.transactions.commit(1, [Output(1, numbered(topic, 100, 10))])
    sees(topic, range(100, 110))
    with pytest.raises(Fenced, match="a newer attempt"):
        older.transactions.commit(1, [Output(1, numbered(topic, 0, 10))])


def test_an_abort_frees_the_readers(
    broker: EmbeddedKafka, new_topic: Callable[..., str], make_sink: Callable[..., Sink], sees: Sees
) -> None:
    """librdkafka knows of no partition, and would leave the transaction open until it times out."""
    topic = new_topic(partitions=PARTITIONS)
    sink = make_sink(broker.bootstrap_servers)
    [producer] = sink.opened
    producer.begin()
    producer.produce(numbered(topic, 0, 10))
    producer.abort()
    other = make_sink(broker.bootstrap_servers)
    other.transactions.commit(1, [Output(1, numbered(topic, 100, 10))])
    sees(topic, range(100, 110), within_s=10)  # the time-out of the transaction is two minutes


def test_connections_that_the_broker_closed_meanwhile_are_opened_anew(
    broker: EmbeddedKafka, new_topic: Callable[..., str], make_sink: Callable[..., Sink], sees: Sees
) -> None:
    topic = new_topic(partitions=PARTITIONS)
    sink = make_sink(broker.bootstrap_servers)
    sink.transactions.commit(1, [Output(1, numbered(topic, 0, 10))])
    leaders = sink.route._leaders
    for connection in [*leaders.opened(), leaders.coordinator()]:
        connection._socket.shutdown(socket.SHUT_RDWR)
    sink.transactions.commit(2, [Output(2, numbered(topic, 10, 10))])
    assert sink.patience.waits == []
    assert len(sink.opened) == 1
    sees(topic, range(20))


def test_what_is_not_acknowledged_can_not_be_committed(
    broker: EmbeddedKafka, new_topic: Callable[..., str], make_sink: Callable[..., Sink]
) -> None:
    topic = new_topic(partitions=PARTITIONS)
    sink = make_sink(broker.bootstrap_servers)
    [producer] = sink.opened
    producer.begin()
    producer.produce(numbered(topic, 0, 10))
    with pytest.raises(Retryable, match="not all that was sent is acknowledged"):
        producer.commit()


@pytest.mark.parametrize("codec", ["gzip", "snappy", "zstd"])
def test_compressed_batches_are_what_brokers_and_readers_know(
    broker: EmbeddedKafka,
    new_topic: Callable[..., str],
    make_sink: Callable[..., Sink],
    sees: Sees,
    codec: str,
) -> None:
    topic = new_topic(partitions=PARTITIONS)
    sink = make_sink(broker.bootstrap_servers, librdkafka={"compression.type": codec})
    assert isinstance(sink.route, DirectRoute)
    sink.transactions.commit(1, [Output(1, numbered(topic, 0, 1_000), numbered(topic, 1_000, 1))])
    assert sink.patience.waits == []
    sees(topic, range(1_001))


def test_lz4_is_left_to_librdkafka(broker: EmbeddedKafka, make_sink: Callable[..., Sink]) -> None:
    sink = make_sink(broker.bootstrap_servers, librdkafka={"compression.type": "lz4"})
    assert not isinstance(sink.route, DirectRoute)


def test_an_abort_waits_for_all_answers_or_does_not_happen(
    broker: EmbeddedKafka, new_topic: Callable[..., str], make_sink: Callable[..., Sink], sees: Sees
) -> None:
    """Records that come behind the end of their transaction would open another one, which nobody ends."""
    topic = new_topic(partitions=PARTITIONS)
    with FaultProxy(broker.bootstrap_servers) as proxy:
        sink = make_sink(proxy.address)
        [producer] = sink.opened
        seen: list[int] = []

        def hold_records(request: Request) -> Course:
            seen.append(request.api)
            return Course.HOLD if request.api == Api.PRODUCE else Course.PASS

        proxy.on_request = hold_records
        producer.begin()
        producer.produce(numbered(topic, 0, 10))
        with pytest.raises(Retryable, match="directly"):
            producer.flush()
        producer.abort()
        assert Api.PRODUCE in seen
        assert Api.END_TXN not in seen
        proxy.on_request = lambda request: Course.PASS
        next_one = make_sink(broker.bootstrap_servers, sink.ledger, attempt=2).transactions
        next_one.commit(1, [Output(1, numbered(topic, 100, 10))])
        proxy.release()
        next_one.commit(2, [Output(2, numbered(topic, 110, 10))])
        sees(topic, range(100, 120))
        sink.close()
