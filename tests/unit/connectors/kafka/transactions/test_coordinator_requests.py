"""Ending transactions past librdkafka, by a broker that says what a test wants."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

import pytest
from confluent_kafka import KafkaError

from onceflow.connectors.kafka.client import LedgerEntry, ProducerIdentity
from onceflow.connectors.kafka.protocol.broker_access import BrokerAccess
from onceflow.connectors.kafka.protocol.transaction_messages import END, FIND_COORDINATOR, Node
from onceflow.connectors.kafka.transactions.coordinator_requests import CoordinatorRequests
from onceflow.runtime.errors import Fatal, Retryable
from tests.unit.connectors.kafka.scripted_broker import (
    HOST,
    INIT_PRODUCER_ID,
    Fault,
    ScriptedBroker,
    first,
)

ENTRY = LedgerEntry(5, "")


@contextlib.contextmanager
def asking(broker: ScriptedBroker) -> Iterator[tuple[CoordinatorRequests, list[float]]]:
    """Requests to it, and the pauses that they made."""
    pauses: list[float] = []
    nodes = [Node(HOST, port) for port in broker.ports]
    requests = CoordinatorRequests(lambda: nodes, BrokerAccess(), 5.0, pauses.append)
    with contextlib.closing(requests):
        yield requests, pauses


def prepared(broker: ScriptedBroker) -> ProducerIdentity:
    """A transaction that somebody has left open, with a ledger entry in it."""
    identity = broker.transactions.init()
    broker.transactions.hold(identity.epoch, ENTRY, True)
    broker.transactions.add(identity.epoch, set(), True)
    return identity


def test_what_another_producer_has_prepared_is_committed_once() -> None:
    with ScriptedBroker() as broker, asking(broker) as (requests, _):
        identity = prepared(broker)
        assert requests.commit("id", identity)
        assert broker.transactions.ledger == ENTRY
        assert requests.commit("id", identity)  # asked again, it says so again
        assert broker.counts[FIND_COORDINATOR] == 1


def test_a_newer_producer_has_the_id() -> None:
    with ScriptedBroker() as broker, asking(broker) as (requests, _):
        identity = prepared(broker)
        requests.fence("id", 60_000)
        assert not requests.commit("id", identity)
        assert broker.transactions.ledger is None


@pytest.mark.parametrize("code", [48, 49, 90])
def test_what_the_broker_does_not_know_any_more_is_no_error(code: int) -> None:
    with ScriptedBroker(first(END, Fault(code))) as broker, asking(broker) as (requests, _):
        assert not requests.commit("id", ProducerIdentity(7, 0))


def test_a_transaction_that_is_being_ended_is_asked_about_again() -> None:
    busy = first(END, Fault(KafkaError.CONCURRENT_TRANSACTIONS), times=3)
    with ScriptedBroker(busy) as broker, asking(broker) as (requests, pauses):
        assert requests.commit("id", prepared(broker))
        assert len(pauses) == 3
        assert broker.counts[FIND_COORDINATOR] == 1


def test_a_coordinator_that_moves_is_found_again() -> None:
    with ScriptedBroker() as broker, asking(broker) as (requests, pauses):
        identity = prepared(broker)
        requests.fence("other", 60_000)
        broker.transactions.epoch = identity.epoch
        broker.coordinator = 1
        requests.fence("other", 60_000)
        assert len(pauses) == 1
        assert broker.counts[FIND_COORDINATOR] == 2


def test_it_gives_up_in_time_while_a_transaction_does_not_end() -> None:
    ever = first(END, Fault(KafkaError.CONCURRENT_TRANSACTIONS), times=1 << 30)
    with ScriptedBroker(ever) as broker, asking(broker) as (requests, pauses):
        with pytest.raises(Retryable, match="commit a prepared transaction"):
            requests.commit("id", prepared(broker))
        assert 9 < sum(pauses) < 11


def test_a_broker_that_is_away_may_be_asked_again() -> None:
    with ScriptedBroker() as broker, asking(broker) as (requests, _):
        identity = prepared(broker)
        requests.fence("other", 60_000)
        broker.transactions.epoch = identity.epoch
        broker.__exit__(None, None, None)
        for _ in range(2):
            with pytest.raises(Retryable, match=r"no answer about id from|Connection refused"):
                requests.commit("id", identity)


def test_a_missing_acl_is_named() -> None:
    denied = first(INIT_PRODUCER_ID, Fault(KafkaError.TRANSACTIONAL_ID_AUTHORIZATION_FAILED))
    with (
        ScriptedBroker(denied) as broker,
        asking(broker) as (requests, _),
        pytest.raises(Fatal, match="the user lacks WRITE on TransactionalId id"),
    ):
        requests.fence("id", 60_000)
