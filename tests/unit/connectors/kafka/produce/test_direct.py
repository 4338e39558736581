"""A direct producer and what brokers may answer: each row is visible once, and no broker is stormed."""

from __future__ import annotations

import socket
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import pyarrow as pa
import pytest
from confluent_kafka import KafkaError

from onceflow.connectors.kafka.client import PRODUCE_SCHEMA, LedgerKey, ProducerIdentity
from onceflow.connectors.kafka.produce.direct import DirectRoute, ProduceSettings
from onceflow.connectors.kafka.produce.enlisting import Enlisting, settling_pauses
from onceflow.connectors.kafka.produce.leaders import Leading
from onceflow.connectors.kafka.protocol.transaction_messages import ADD_PARTITIONS, FIND_COORDINATOR, PRODUCE
from onceflow.connectors.kafka.transactions.owner import Claimant, OwnerTransactions
from onceflow.runtime.errors import Fatal, OnceflowError, Retryable
from tests.kafka_output import Output
from tests.unit.connectors.kafka.scripted_broker import HOST, Fault, ScriptedBroker, first
from tests.unit.connectors.kafka.scripted_client import ScriptedClient

LEDGER = LedgerKey("id", "ledger")
SETTINGS = ProduceSettings(batch_bytes=1_000, message_bytes=1 << 30, answer_s=5.0)
PARTITIONS = 3


class FewTries:
    """Patience without pauses, which ends."""

    def __init__(self) -> None:
        self.waits: list[str] = []

    def wait(self, error: OnceflowError) -> None:
        self.waits.append(str(error))
        if len(self.waits) > 20:
            raise Retryable(f"gave up: {error}")

    def reset(self) -> None: ...


class Writing:
    """One owner's transactions on a scripted broker."""

    def __init__(self, broker: ScriptedBroker, settings: ProduceSettings = SETTINGS, **client: Any) -> None:
        self.broker = broker
        self.client = ScriptedClient(broker, settings, **client)
        self.patience = FewTries()
        self.transactions = OwnerTransactions(
            self.client, LEDGER, Claimant("lineage", 1), self.patience, None
        )

    def commit(self, checkpoint_id: int, *batches: pa.RecordBatch) -> None:
        self.transactions.commit(checkpoint_id, [Output(checkpoint_id, *batches)])

    def judge(self, count: int) -> None:
        """Each of so many rows is visible once, those of a partition in order."""
        numbers = [int(value.split(b" ")[0]) for _, _, value in self.broker.transactions.visible]
        assert sorted(numbers) == list(range(count))
        for partition in range(PARTITIONS):
            of_partition = [number for number in numbers if number % PARTITIONS == partition]
            assert of_partition == sorted(of_partition)


@pytest.fixture
def write() -> Iterator[Callable[..., Writing]]:
    opened: list[Writing] = []

    def make(*arguments: Any, **named: Any) -> Writing:
        opened.append(Writing(*arguments, **named))
        return opened[-1]

    yield make
    for each in opened:
        each.transactions.close()
        each.client.close()


def rows(first: int, count: int, padding: bytes = b"") -> pa.RecordBatch:
    found = [
        {"topic": "out", "partition": n % PARTITIONS, "key": b"k%d" % n, "value": b"%d %s" % (n, padding)}
        for n in range(first, first + count)
    ]
    return pa.RecordBatch.from_pylist(sorted(found, key=lambda row: row["partition"]), PRODUCE_SCHEMA)


ANSWERS = [
    (PRODUCE, Fault(KafkaError.NOT_LEADER_FOR_PARTITION)),
    (PRODUCE, Fault(KafkaError.NOT_ENOUGH_REPLICAS)),
    (PRODUCE, Fault(KafkaError.NOT_ENOUGH_REPLICAS_AFTER_APPEND, is_applied=True)),
    (PRODUCE, Fault(KafkaError.REQUEST_TIMED_OUT)),
    (PRODUCE, Fault(KafkaError.REQUEST_TIMED_OUT, is_applied=True)),
    (ADD_PARTITIONS, Fault(KafkaError.NOT_COORDINATOR)),
    (ADD_PARTITIONS, Fault(KafkaError.REQUEST_TIMED_OUT)),
    (ADD_PARTITIONS, Fault(KafkaError.REQUEST_TIMED_OUT, is_applied=True)),
    (ADD_PARTITIONS, Fault(KafkaError.COORDINATOR_LOAD_IN_PROGRESS)),
    (ADD_PARTITIONS, Fault(KafkaError.COORDINATOR_NOT_AVAILABLE)),
    (FIND_COORDINATOR, Fault(KafkaError.COORDINATOR_LOAD_IN_PROGRESS)),
    (FIND_COORDINATOR, Fault(KafkaError.COORDINATOR_NOT_AVAILABLE)),
]


def survives(api: int, fault: Fault, make: Callable[..., Writing], route: type[DirectRoute]) -> Writing:
    with ScriptedBroker() as broker:
        writing = make(broker, route=route, nodes=[(HOST, broker.port)])
        writing.commit(1, rows(0, 100))
        broker.counts.clear()
        broker.script = first(api, fault)
        if api == FIND_COORDINATOR:  # it is asked for by new producers only
            writing.transactions._drop()
        writing.commit(2, rows(100, 100), rows(200, 100))
        writing.commit(3, rows(300, 100))
        writing.judge(400)
        return writing


@pytest.mark.parametrize(("api", "fault"), ANSWERS, ids=str)
def test_whatever_is_answered_costs_one_transaction_and_no_row(
    write: Callable[..., Writing], api: int, fault: Fault
) -> None:
    """Whether a row was taken or not: what is sent again has another epoch, which aborts the first."""
    writing = survives(api, fault, write, DirectRoute)
    assert len(writing.patience.waits) == 1
    assert len(writing.client.failures) == 1
    assert writing.broker.counts[api] <= 20
    assert sum(writing.broker.counts.values()) <= 60


@pytest.mark.parametrize(
    ("api", "code"),
    [(PRODUCE, KafkaError.NOT_LEADER_FOR_PARTITION), (ADD_PARTITIONS, KafkaError.NOT_COORDINATOR)],
)
def test_what_has_no_leader_or_coordinator_for_a_while_is_tried_until_it_has(
    write: Callable[..., Writing], api: int, code: int
) -> None:
    with ScriptedBroker(first(api, Fault(code), times=5)) as broker:
        writing = write(broker)
        writing.commit(1, rows(0, 100))
        assert len(writing.patience.waits) == len(writing.client.failures) == 5
        assert all(KafkaError(code).name() in waited for waited in writing.patience.waits)
        writing.judge(100)


@pytest.mark.parametrize("moved", ["leader", "coordinator"])
def test_what_has_moved_is_looked_up_by_the_next_producer(write: Callable[..., Writing], moved: str) -> None:
    with ScriptedBroker() as broker:
        writing = write(broker)
        writing.commit(1, rows(0, 100))
        if moved == "leader":
            broker.leader = 1
        else:
            broker.coordinator = 1
        writing.commit(2, rows(100, 100))
        assert len(writing.patience.waits) == 1
        writing.judge(200)


class CountsWhatWasRefused(DirectRoute):
    """Takes any answer for an acknowledgement."""

    def _receive(self, leader: Leading) -> None:
        _, sent = leader.receive()
        self.delivered += sum(batch.records for batch in sent.values())


class SendsAgain(DirectRoute):
    """In the same epoch, with new sequence numbers, what timed out and may have been taken."""

    def _send(self, rows: pa.RecordBatch) -> None:
        super()._send(rows)
        try:
            for leader in self._leaders.opened():
                while leader.waiting:
                    self._receive(leader)
        except Retryable:
            for leader in self._leaders.opened():
                while leader.waiting:
                    self._receive(leader)
            self.delivered = 0
            super()._send(rows)


@pytest.mark.parametrize("mutant", [CountsWhatWasRefused, SendsAgain])
def test_mutant_dies(write: Callable[..., Writing], mutant: type[DirectRoute]) -> None:
    def all_answers() -> None:
        for api, fault in ANSWERS:
            survives(api, fault, write, mutant)

    with pytest.raises(AssertionError):
        all_answers()


# --- The transaction before is being ended ---


def test_a_transaction_that_is_being_ended_is_waited_for_within_the_same_one(
    write: Callable[..., Writing],
) -> None:
    with ScriptedBroker() as broker:
        writing = write(broker)
        writing.commit(1, rows(0, 100))
        broker.counts.clear()
        broker.script = first(ADD_PARTITIONS, Fault(KafkaError.CONCURRENT_TRANSACTIONS), times=5)
        writing.commit(2, rows(100, 100))
        assert writing.patience.waits == []
        assert broker.counts[ADD_PARTITIONS] == 6
        writing.judge(200)


def test_one_that_is_never_ended_is_asked_after_ever_more_rarely_and_then_given_up() -> None:
    slept: list[float] = []
    with ScriptedBroker() as broker:
        identity: ProducerIdentity = broker.transactions.init()
        leaders = ScriptedClient(broker, SETTINGS).leaders(LEDGER)
        leaders.of("out", 0)
        broker.script = first(ADD_PARTITIONS, Fault(KafkaError.CONCURRENT_TRANSACTIONS), times=1 << 30)
        enlisting = Enlisting(leaders, "id", identity, slept.append)
        with pytest.raises(Retryable, match="CONCURRENT_TRANSACTIONS"):
            enlisting.add([("out", 0)])
        leaders.close()
        assert broker.counts[ADD_PARTITIONS] == len(slept) + 1
    assert slept == list(settling_pauses())
    assert len(slept) < 150  # it were five thousand
    assert 10.0 <= sum(slept) < 10.2


# --- Throttling ---


@pytest.mark.parametrize("api", [PRODUCE, ADD_PARTITIONS])
def test_a_throttled_producer_waits_as_long_as_the_broker_says(
    write: Callable[..., Writing], api: int
) -> None:
    with ScriptedBroker(first(api, Fault(is_applied=True, mute_s=0.6), times=2)) as broker:
        writing = write(broker, ProduceSettings(1_000, 1 << 30, answer_s=0.2))
        for n in range(2):
            writing.commit(n + 1, rows(200 * n, 100), rows(200 * n + 100, 100))
        assert writing.patience.waits == []
        assert writing.client.failures == []
        writing.judge(400)


def test_one_that_is_throttled_for_longer_than_its_transaction_may_take_is_told_why(
    write: Callable[..., Writing],
) -> None:
    with ScriptedBroker(first(PRODUCE, Fault(is_applied=True, mute_s=2.0))) as broker:
        writing = write(broker, ProduceSettings(1_000, 1 << 30, answer_s=0.2), mute_s_max=0.2)
        writing.commit(1, rows(0, 100), rows(100, 100))
        [waited] = writing.patience.waits
        assert "throttles this client for 2 s" in waited
        assert "producer_byte_rate" in waited
        writing.judge(200)


# --- Sizes ---


def test_a_request_has_no_more_than_it_may_and_order_is_kept(write: Callable[..., Writing]) -> None:
    settings = ProduceSettings(batch_bytes=1_000, message_bytes=1 << 30, answer_s=5.0, request_bytes=2_500)
    with ScriptedBroker() as broker:
        writing = write(broker, settings)
        writing.commit(1, rows(0, 300, b"x" * 50))
        assert max(broker.request_sizes) < 2_500 + 200
        assert max(broker.request_sizes) > 1_500, "two batches fit"
        writing.judge(300)


@pytest.mark.parametrize("code", [KafkaError.MSG_SIZE_TOO_LARGE, KafkaError.RECORD_LIST_TOO_LARGE])
def test_a_batch_that_is_too_large_is_split_and_nothing_else_changes(
    write: Callable[..., Writing], code: int
) -> None:
    settings = ProduceSettings(batch_bytes=100_000, message_bytes=1 << 30, answer_s=5.0)
    with ScriptedBroker(batch_bytes_max=2_000) as broker:
        broker.transactions.refusal = code
        writing = write(broker, settings)
        writing.commit(1, rows(0, 2_000, b"x" * 50))
        assert 1 <= len(writing.patience.waits) <= 3
        assert writing.client.failures == [], "it is not librdkafka's turn"
        writing.commit(2, rows(2_000, 1_000, b"x" * 50))
        assert len(writing.patience.waits) <= 3, "what was learned is kept"
        writing.judge(3_000)


@pytest.mark.parametrize("code", [KafkaError.MSG_SIZE_TOO_LARGE, KafkaError.RECORD_LIST_TOO_LARGE])
def test_a_single_record_that_is_too_large_is_named_and_fatal(
    write: Callable[..., Writing], code: int
) -> None:
    large = {"topic": "out", "partition": 1, "key": b"whale", "value": b"x" * 5_000}
    batch = pa.RecordBatch.from_pylist([large], PRODUCE_SCHEMA)
    settings = ProduceSettings(batch_bytes=100_000, message_bytes=1 << 30, answer_s=5.0)
    with ScriptedBroker(batch_bytes_max=2_000) as broker:
        broker.transactions.refusal = code
        writing = write(broker, settings)
        with pytest.raises(Fatal, match=r"topic 'out' is too large: key b'whale', 50\d\d bytes"):
            writing.commit(1, rows(0, 300), batch, rows(300, 300))
        assert broker.transactions.visible == []


# --- The coordinator ---


def test_the_coordinator_is_found_by_whichever_broker_tells(write: Callable[..., Writing]) -> None:
    """The first of the list is dead, the second one silent."""
    dead, silent = socket.create_server((HOST, 0)), socket.create_server((HOST, 0))
    nodes: Sequence[tuple[str, int]] = [(HOST, each.getsockname()[1]) for each in (dead, silent)]
    dead.close()
    with ScriptedBroker() as broker, silent:
        writing = write(broker, nodes=[*nodes, (HOST, broker.port)])
        writing.commit(1, rows(0, 100))
        assert writing.patience.waits == []
        writing.judge(100)
