"""CoordinatorRequests: ends transactions and fences producers, past librdkafka.

Who knows a producer's id and epoch may commit its transaction from any process: so Flink's sink commits what
a killed process has prepared. A coordinator answers

| the transaction                                    | to the request to commit it        |
| -------------------------------------------------- | ---------------------------------- |
| is open, or was committed and not followed         | no error                           |
| is being committed or aborted                      | 51: ask again                      |
| was timed out, or a newer producer has the id      | 47 or 90                           |
| was aborted, or never had a record                 | 48                                 |
| is of an id that was forgotten, or another's       | 49                                 |
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from functools import partial

from confluent_kafka import KafkaError

from onceflow.connectors.kafka.client import ProducerIdentity
from onceflow.connectors.kafka.failures import failure
from onceflow.connectors.kafka.produce.enlisting import settling_pauses
from onceflow.connectors.kafka.protocol.broker_access import BrokerAccess
from onceflow.connectors.kafka.protocol.pipelined_connection import ProduceConnection
from onceflow.connectors.kafka.protocol.transaction_messages import (
    Node,
    end_answer,
    end_request,
    find_coordinator_answer,
    find_coordinator_request,
    init_answer,
    init_request,
)
from onceflow.connectors.kafka.protocol.wire import ProtocolError
from onceflow.runtime.errors import Retryable

_GONE = {
    KafkaError.INVALID_PRODUCER_EPOCH,
    KafkaError.PRODUCER_FENCED,
    KafkaError.INVALID_TXN_STATE,
    KafkaError.INVALID_PRODUCER_ID_MAPPING,
}
_MOVED = {
    KafkaError.COORDINATOR_LOAD_IN_PROGRESS,
    KafkaError.COORDINATOR_NOT_AVAILABLE,
    KafkaError.NOT_COORDINATOR,
}
_SETTLING = {KafkaError.CONCURRENT_TRANSACTIONS, *_MOVED}

Request = Callable[[int, str], bytes]
"""See ProduceConnection.send."""


class CoordinatorRequests:
    """Requests to the coordinators of transactional ids. One thread at a time. Each call raises Retryable
    where it may be made again, and Fatal where an ACL is missing."""

    def __init__(
        self,
        brokers: Callable[[], Iterable[Node]],
        access: BrokerAccess,
        timeout_s: float,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        """`brokers`: who can be asked where a coordinator is."""
        self._brokers = brokers
        self._access = access
        self._timeout_s = timeout_s
        self._sleep = sleep
        self._coordinators: dict[str, Node] = {}
        self._opened: dict[Node, ProduceConnection[None]] = {}

    def commit(self, transactional_id: str, identity: ProducerIdentity) -> bool:
        """See TwoPhaseClient.commit_prepared."""
        request = partial(end_request, transactional_id=transactional_id, identity=identity, is_commit=True)
        code = self._settled(transactional_id, request, end_answer)
        if code in _GONE:
            return False
        self._raise(code, "commit a prepared transaction", transactional_id)
        return True

    def fence(self, transactional_id: str, timeout_ms: int) -> None:
        """Give the id a new epoch, whose transactions may take so long. What was open is aborted."""
        request = partial(init_request, transactional_id=transactional_id, timeout_ms=timeout_ms)
        code = self._settled(transactional_id, request, lambda frame: init_answer(frame)[0])
        self._raise(code, "initialise the producer", transactional_id)

    def close(self) -> None:
        for connection in self._opened.values():
            connection.close()
        self._opened.clear()
        self._coordinators.clear()

    def _settled(self, transactional_id: str, request: Request, read: Callable[[bytes], int]) -> int:
        """The error code of the answer, or 0, once nothing else is under way for this id."""
        pauses = settling_pauses()
        while True:
            code = read(self._ask(transactional_id, request))
            pause_s = next(pauses, None)
            if code not in _SETTLING or pause_s is None:
                return code
            if code in _MOVED:
                self._coordinators.pop(transactional_id, None)
            self._sleep(pause_s)

    def _ask(self, transactional_id: str, request: Request) -> bytes:
        node = self._coordinators.get(transactional_id)
        try:
            if node is None:
                node = self._coordinators[transactional_id] = self._find(transactional_id)
            return self._connection(node).ask(request, None)
        except (OSError, ProtocolError) as error:
            # It may have moved, and a connection with an answer that is to come is of no use any more.
            self._coordinators.pop(transactional_id, None)
            if node is not None and node in self._opened:
                self._opened.pop(node).close()
            where = "any broker" if node is None else f"the broker at {node.host}:{node.port}"
            raise Retryable(f"no answer about {transactional_id} from {where}: {error}") from error

    def _connection(self, node: Node) -> ProduceConnection[None]:
        known = self._opened.get(node)
        if known is not None and known.is_gone():
            self._opened.pop(node).close()
            known = None
        if known is None:
            known = self._opened[node] = ProduceConnection(node, self._access, self._timeout_s)
        return known

    def _find(self, transactional_id: str) -> Node:
        """Ask one broker after the other: the first ones may be dead, or not know yet."""
        request = partial(find_coordinator_request, transactional_id=transactional_id)
        why: Exception | None = None
        for node in self._brokers():
            try:
                code, found = find_coordinator_answer(self._connection(node).ask(request, None))
            except (OSError, ProtocolError) as error:
                why = error
                if node in self._opened:
                    self._opened.pop(node).close()
                continue
            if not code:
                return found
            why = failure(KafkaError(code), "find the coordinator", f"TransactionalId {transactional_id}")
            if not isinstance(why, Retryable):
                break
        raise why or Retryable("the cluster has no brokers")

    @staticmethod
    def _raise(code: int, action: str, transactional_id: str) -> None:
        if code:
            raise failure(KafkaError(code), action, f"TransactionalId {transactional_id}")
