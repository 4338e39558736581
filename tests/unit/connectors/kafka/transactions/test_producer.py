"""librdkafka's transactions on a broker that answers what a test wants: whatever it is, what was committed is
visible once, and what is not known is asked of the ledger."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

import pyarrow as pa
import pytest
from confluent_kafka import KafkaError

from onceflow.connectors.kafka.client import PRODUCE_SCHEMA, LedgerKey
from onceflow.connectors.kafka.options import KafkaOptions
from onceflow.connectors.kafka.protocol.transaction_messages import (
    ADD_PARTITIONS,
    END,
    PRODUCE,
)
from onceflow.connectors.kafka.transactions.librdkafka_client import LibrdkafkaClient
from onceflow.connectors.kafka.transactions.owner import Claimant, OwnerTransactions
from onceflow.connectors.kafka.transactions.producer_settings import ProducerSettings, RouteName
from onceflow.runtime.errors import Indeterminate
from tests.kafka_output import NoPatience, Output
from tests.unit.connectors.kafka.scripted_broker import (
    ADD_OFFSETS,
    FAIR,
    HOST,
    INIT_PRODUCER_ID,
    OFFSET_FETCH,
    TXN_OFFSET_COMMIT,
    Fault,
    ScriptedBroker,
    first,
)

LEDGER = LedgerKey("id", "ledger")
DEADLINE_S = 120
PARTITIONS = 3


class Writing:
    """One owner's transactions, by librdkafka."""

    def __init__(
        self, broker: ScriptedBroker, route: RouteName = "bulk", request_s: float = 10.0, **settings: Any
    ) -> None:
        """`request_s`: how long a commit may take, by itself."""
        self.broker = broker
        options = KafkaOptions(f"{HOST}:{broker.port}", {"socket.timeout.ms": int(1000 * request_s)})
        self.client = LibrdkafkaClient(options, ProducerSettings(route=route, **settings))
        self.patience = NoPatience(DEADLINE_S)
        self.transactions = OwnerTransactions(
            self.client, LEDGER, Claimant("lineage", 1), self.patience, None
        )

    def commit(self, checkpoint_id: int, first_number: int, count: int) -> None:
        rows = [
            {"topic": "out", "partition": n % PARTITIONS, "key": b"k%d" % n, "value": b"%d" % n}
            for n in range(first_number, first_number + count)
        ]
        batch = pa.RecordBatch.from_pylist(rows, PRODUCE_SCHEMA)
        self.transactions.commit(checkpoint_id, [Output(checkpoint_id, batch)])

    def judge(self, count: int) -> None:
        """Each of so many rows is visible once, those of a partition in order."""
        numbers = [int(value) for _, _, value in self.broker.transactions.visible]
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


NOT_LEADER = KafkaError.NOT_LEADER_FOR_PARTITION
TIMED_OUT = KafkaError.REQUEST_TIMED_OUT
NOT_COORDINATOR = KafkaError.NOT_COORDINATOR
CONCURRENT = KafkaError.CONCURRENT_TRANSACTIONS

SENT_AGAIN = [
    {PRODUCE: (Fault(NOT_LEADER), 4)},
    {
        PRODUCE: (Fault(TIMED_OUT), 4),
        ADD_OFFSETS: (Fault(TIMED_OUT), 1),
        TXN_OFFSET_COMMIT: (Fault(TIMED_OUT), 1),
        OFFSET_FETCH: (Fault(TIMED_OUT), 2),
    },
    {
        PRODUCE: (Fault(TIMED_OUT, is_applied=True), 4),
        ADD_OFFSETS: (Fault(TIMED_OUT, is_applied=True), 1),
        TXN_OFFSET_COMMIT: (Fault(TIMED_OUT, is_applied=True), 1),
    },
    {
        INIT_PRODUCER_ID: (Fault(NOT_COORDINATOR), 1),
        ADD_PARTITIONS: (Fault(NOT_COORDINATOR), 1),
        ADD_OFFSETS: (Fault(NOT_COORDINATOR), 1),
        TXN_OFFSET_COMMIT: (Fault(NOT_COORDINATOR), 1),
        END: (Fault(NOT_COORDINATOR), 1),
    },
    {
        INIT_PRODUCER_ID: (Fault(CONCURRENT), 1),
        ADD_PARTITIONS: (Fault(CONCURRENT), 4),
        ADD_OFFSETS: (Fault(CONCURRENT), 4),
        END: (Fault(CONCURRENT), 4),
    },
]
"""What is answered to so many of each kind of request, and that librdkafka asks again by itself."""


@pytest.mark.parametrize("faults", SENT_AGAIN, ids=lambda faults: str(next(iter(faults.values()))[0]))
def test_what_librdkafka_asks_again_costs_no_transaction(
    write: Callable[..., Writing], faults: Mapping[int, tuple[Fault, int]]
) -> None:
    def script(api: int, nth: int) -> Fault:
        fault, times = faults.get(api, (FAIR, 0))
        return fault if nth < times else FAIR

    with ScriptedBroker(script) as broker:
        writing = write(broker)
        writing.commit(1, 0, 30)
        assert writing.patience.waits == []
        for api, (_, times) in faults.items():
            assert broker.counts[api] > times
        writing.commit(2, 30, 30)
        writing.judge(60)


SENT_ANEW = [
    (ADD_PARTITIONS, Fault(TIMED_OUT), 2),
    (ADD_PARTITIONS, Fault(TIMED_OUT, is_applied=True), 2),
    (OFFSET_FETCH, Fault(NOT_COORDINATOR), 2),
]


@pytest.mark.parametrize(("api", "fault", "times"), SENT_ANEW, ids=str)
def test_what_it_gives_up_is_done_anew_by_another_producer(
    write: Callable[..., Writing], api: int, fault: Fault, times: int
) -> None:
    with ScriptedBroker(first(api, fault, times)) as broker:
        writing = write(broker)
        writing.commit(1, 0, 30)
        writing.commit(2, 30, 30)
        assert len(writing.patience.waits) == times
        assert all(KafkaError(fault.code).name() in waited for waited in writing.patience.waits)
        writing.judge(60)


@pytest.mark.parametrize("is_applied", [False, True])
def test_an_initialisation_that_times_out_is_tried_again_by_librdkafka_or_by_us(
    write: Callable[..., Writing], is_applied: bool
) -> None:
    with ScriptedBroker(first(INIT_PRODUCER_ID, Fault(TIMED_OUT, is_applied))) as broker:
        writing = write(broker)
        writing.commit(1, 0, 30)
        assert broker.counts[INIT_PRODUCER_ID] == 2
        writing.judge(30)


@pytest.mark.parametrize(("is_applied", "written"), [(True, 1), (False, 3)])
def test_a_commit_whose_outcome_is_unknown_is_asked_of_the_ledger(
    write: Callable[..., Writing], is_applied: bool, written: int
) -> None:
    """What is committed is not written again, what is not is; and one is not told from the other before."""
    with ScriptedBroker(first(END, Fault(TIMED_OUT, is_applied), times=2)) as broker:
        writing = write(broker)
        writing.commit(1, 0, 30)
        assert [type(error) for error in writing.patience.errors][:1] == [Indeterminate]
        assert broker.counts[TXN_OFFSET_COMMIT] == written
        writing.commit(2, 30, 30)
        writing.judge(60)


@pytest.mark.parametrize("route", ["bulk", "direct"])
def test_a_leader_and_a_coordinator_that_move_are_found_again(
    write: Callable[..., Writing], route: RouteName
) -> None:
    with ScriptedBroker() as broker:
        writing = write(broker, route=route)
        writing.commit(1, 0, 30)
        broker.leader = 1
        writing.commit(2, 30, 30)
        broker.coordinator = 1
        writing.commit(3, 60, 30)
        writing.judge(90)


# --- Throttling ---


@pytest.mark.parametrize("api", [PRODUCE, ADD_OFFSETS])
def test_a_broker_that_throttles_is_waited_for_longer_than_one_that_is_silent(
    write: Callable[..., Writing], api: int
) -> None:
    with ScriptedBroker(first(api, Fault(is_applied=True, mute_s=1.2))) as broker:
        writing = write(broker, request_s=0.6)
        writing.commit(1, 0, 30)
        writing.commit(2, 30, 30)
        assert writing.patience.waits == []
        writing.judge(60)


def test_one_that_throttles_for_longer_than_a_transaction_may_take_is_said_to_throttle(
    write: Callable[..., Writing],
) -> None:
    with ScriptedBroker(first(PRODUCE, Fault(is_applied=True, mute_s=3.0))) as broker:
        writing = write(broker, transaction_timeout_ms=1_000)
        writing.commit(1, 0, 30)
        assert "the broker throttles this client for 3 s (a quota, such as" in writing.patience.waits[0]
        writing.judge(30)
