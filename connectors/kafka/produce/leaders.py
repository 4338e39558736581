"""Leaders: connections to the brokers that a direct producer writes to."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import partial
from typing import TypeAlias

from confluent_kafka import Consumer, KafkaError, KafkaException
from confluent_kafka.admin import TopicMetadata

from onceflow.connectors.kafka.client import LedgerKey
from onceflow.connectors.kafka.failures import failure
from onceflow.connectors.kafka.protocol.broker_access import BrokerAccess
from onceflow.connectors.kafka.protocol.pipelined_connection import ProduceConnection
from onceflow.connectors.kafka.protocol.transaction_messages import (
    Node,
    find_coordinator_answer,
    find_coordinator_request,
)
from onceflow.connectors.kafka.protocol.wire import ProtocolError
from onceflow.runtime.errors import Fatal, OnceflowError, Retryable

_QUESTION_S = 5.0

_ASKED_S = 2.0
"""How long a broker may take to say where the coordinator is, before another one is asked."""


@dataclass(frozen=True, slots=True)
class SentBatch:
    """What a request has for a partition."""

    records: int
    size: int
    """The bytes of the batch before compression."""
    key: bytes | None = None
    """The record's key, if it is alone in the batch."""


Leading: TypeAlias = ProduceConnection[dict[tuple[str, int], SentBatch]]
"""A connection to a leader; each request carries a note of its batch for each topic and partition."""


class Leaders:
    """Who leads is asked once: a leader that has moved says so when it is written to. Every call may raise
    OSError, ProtocolError, or what `failure` makes of Kafka's errors."""

    def __init__(
        self,
        consumer: Consumer,
        ledger: LedgerKey,
        access: BrokerAccess,
        timeout_s: float,
        mute_s_max: float = 0.0,
    ) -> None:
        """`consumer`: to ask where brokers are; a producer's question would create topics. The rest: see
        ProduceConnection."""
        self._consumer = consumer
        self._ledger = ledger
        self._access = access
        self._timeout_s = timeout_s
        self._mute_s_max = mute_s_max
        self._nodes: dict[int, Node] = {}
        self._topics: dict[str, TopicMetadata] = {}
        self._opened: dict[Node, Leading] = {}
        self._coordinator: Leading | None = None

    def of(self, topic: str, partition: int) -> Leading:
        """The connection to the partition's leader."""
        known = self._topics.get(topic)
        if known is None or partition not in known.partitions:
            known = self._look_up(topic)
        if partition not in known.partitions:
            where = f"Topic {topic}, partition {partition}"
            raise failure(KafkaError(KafkaError._UNKNOWN_PARTITION), "write", where)
        node = self._nodes.get(known.partitions[partition].leader)
        if node is None:
            raise failure(KafkaError(KafkaError.LEADER_NOT_AVAILABLE), "write", f"Topic {topic}")
        if node not in self._opened:
            self._opened[node] = self._open(node)
        return self._opened[node]

    def partitions(self, topic: str) -> int:
        """How many the topic has."""
        return len((self._topics.get(topic) or self._look_up(topic)).partitions)

    def coordinator(self) -> Leading:
        """The connection to the transaction's coordinator: no records go there."""
        if self._coordinator is None:
            self._coordinator = self._open(self._find_coordinator())
        return self._coordinator

    def opened(self) -> Iterable[Leading]:
        """The connections to leaders that are open."""
        return self._opened.values()

    def wait_at_most(self, timeout_s: float) -> None:
        """Wait at most so long for each answer from now on, however mute a broker is."""
        self._timeout_s, self._mute_s_max = timeout_s, 0.0
        for connection in [*self._opened.values(), *([self._coordinator] if self._coordinator else [])]:
            connection.wait_at_most(timeout_s)

    def close_idle(self) -> None:
        """Close what brokers have closed, unused for long. Only while nothing is asked."""
        for node in [node for node, leader in self._opened.items() if leader.is_gone()]:
            self._opened.pop(node).close()
        if self._coordinator is not None and self._coordinator.is_gone():
            self._coordinator.close()
            self._coordinator = None

    def close(self) -> None:
        for connection in [*self._opened.values(), *([self._coordinator] if self._coordinator else [])]:
            connection.close()
        self._opened.clear()
        self._coordinator = None

    def _find_coordinator(self) -> Node:
        """Ask one broker after the other: the first ones may be dead, or slow, or not know yet."""
        if not self._nodes:
            self._look_up(self._ledger.topic)
        why: Exception | None = None
        for node in self._nodes.values():
            try:
                return self._ask_coordinator(node)
            except Fatal:
                raise
            except (OSError, ProtocolError, OnceflowError) as error:
                why = error
        if why is None:
            raise Retryable("the cluster has no brokers")
        raise why

    def _ask_coordinator(self, node: Node) -> Node:
        transactional_id = self._ledger.transactional_id
        request = partial(find_coordinator_request, transactional_id=transactional_id)
        asked: Leading = ProduceConnection(node, self._access, min(self._timeout_s, _ASKED_S))
        try:
            error, found = find_coordinator_answer(asked.ask(request, {}))
        finally:
            asked.close()
        if error:
            raise failure(KafkaError(error), "find the coordinator", f"TransactionalId {transactional_id}")
        return found

    def _open(self, node: Node) -> Leading:
        return ProduceConnection(node, self._access, self._timeout_s, self._mute_s_max)

    def _look_up(self, topic: str) -> TopicMetadata:
        try:
            metadata = self._consumer.list_topics(topic, timeout=_QUESTION_S)
        except KafkaException as error:
            raise failure(error.args[0], "look up the topic", f"Topic {topic}") from error
        self._nodes = {number: Node(each.host, each.port) for number, each in metadata.brokers.items()}
        found = metadata.topics[topic]
        if found.error is not None:
            raise failure(found.error, "write", f"Topic {topic}")
        self._topics[topic] = found
        return found
