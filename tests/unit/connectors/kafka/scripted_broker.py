"""ScriptedBroker: says to a producer what a test wants, and keeps transactions as Kafka does.

It has two addresses on loopback, as if it were two brokers; one of them leads all partitions, one of them is
the coordinator, and which one may change. A direct producer and librdkafka's can both write to it.
"""

from __future__ import annotations

import contextlib
import socket
import struct
import threading
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Self

from confluent_kafka import KafkaError
from kafka.protocol.consumer import (
    OffsetCommitRequest,
    OffsetCommitResponse,
    OffsetFetchRequest,
    OffsetFetchResponse,
)
from kafka.protocol.metadata import (
    ApiVersionsRequest,
    ApiVersionsResponse,
    FindCoordinatorRequest,
    FindCoordinatorResponse,
    MetadataRequest,
    MetadataResponse,
)
from kafka.protocol.producer import (
    AddOffsetsToTxnRequest,
    AddOffsetsToTxnResponse,
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    EndTxnRequest,
    EndTxnResponse,
    InitProducerIdRequest,
    InitProducerIdResponse,
    ProduceRequest,
    ProduceResponse,
    TxnOffsetCommitRequest,
    TxnOffsetCommitResponse,
)

from onceflow.connectors.kafka.client import LedgerEntry
from onceflow.connectors.kafka.protocol.transaction_messages import (
    ADD_PARTITIONS,
    END,
    FIND_COORDINATOR,
    PRODUCE,
)
from tests.unit.connectors.kafka.scripted_transactions import ScriptedTransactions

HOST = "127.0.0.1"
PARTITIONS = 4
"""How many each topic has."""
METADATA, OFFSET_COMMIT, OFFSET_FETCH, API_VERSIONS, INIT_PRODUCER_ID, ADD_OFFSETS, TXN_OFFSET_COMMIT = (
    3,
    8,
    9,
    18,
    22,
    25,
    28,
)

_KINDS: Mapping[int, tuple[Any, Any, int]] = {
    PRODUCE: (ProduceRequest, ProduceResponse, 9),
    METADATA: (MetadataRequest, MetadataResponse, 9),
    OFFSET_COMMIT: (OffsetCommitRequest, OffsetCommitResponse, 7),
    OFFSET_FETCH: (OffsetFetchRequest, OffsetFetchResponse, 7),
    FIND_COORDINATOR: (FindCoordinatorRequest, FindCoordinatorResponse, 3),
    API_VERSIONS: (ApiVersionsRequest, ApiVersionsResponse, 3),
    INIT_PRODUCER_ID: (InitProducerIdRequest, InitProducerIdResponse, 4),
    ADD_PARTITIONS: (AddPartitionsToTxnRequest, AddPartitionsToTxnResponse, 3),
    ADD_OFFSETS: (AddOffsetsToTxnRequest, AddOffsetsToTxnResponse, 3),
    END: (EndTxnRequest, EndTxnResponse, 3),
    TXN_OFFSET_COMMIT: (TxnOffsetCommitRequest, TxnOffsetCommitResponse, 3),
}
"""What is spoken: request, answer, and the newest version."""
_CONSUMERS = {1: 11, 2: 5, 11: 5, 12: 3, 13: 1, 14: 3}
"""What librdkafka expects a broker to know before it asks about groups, and in which version; none comes."""
_OF_LEADERS = frozenset({PRODUCE})
_OF_COORDINATORS = frozenset(
    {ADD_PARTITIONS, ADD_OFFSETS, END, INIT_PRODUCER_ID, TXN_OFFSET_COMMIT, OFFSET_COMMIT, OFFSET_FETCH}
)


@dataclass(frozen=True)
class Fault:
    """What becomes of one request."""

    code: int = 0
    is_applied: bool = False
    """Whether it is done, whatever is answered."""
    mute_s: float = 0.0
    """How long the broker reads nothing more of the connection, and says so."""


FAIR = Fault(is_applied=True)
Script = Callable[[int, int], Fault]
"""What happens to a request, given its kind and how many of it came before."""


def never(api: int, nth: int) -> Fault:
    return FAIR


def first(wanted: int, fault: Fault, times: int = 1) -> Script:
    """The first so many requests of this kind go wrong."""
    return lambda api, nth: fault if api == wanted and nth < times else FAIR


class ScriptedBroker:
    """Serves on threads of its own until it is left."""

    def __init__(self, script: Script = never, batch_bytes_max: int = 1 << 30) -> None:
        """`batch_bytes_max`: of a topic's batch; a larger one is refused."""
        self.script = script
        self.transactions = ScriptedTransactions(batch_bytes_max)
        self.counts: Counter[int] = Counter()
        self.request_sizes: list[int] = []
        """The sizes of Produce requests."""
        self.leader = 0
        """Which of its addresses leads all partitions."""
        self.coordinator = 0
        self.mark = ""
        """What the ledger's group has committed in partition 1."""
        self._lock = threading.Lock()
        self._is_closed = threading.Event()
        self._servers = [socket.create_server((HOST, 0)) for _ in range(2)]
        self.ports = [int(server.getsockname()[1]) for server in self._servers]
        self._sockets: list[socket.socket] = []
        for number in range(len(self._servers)):
            threading.Thread(target=self._accept, args=(number,), daemon=True).start()

    @property
    def port(self) -> int:
        return self.ports[0]

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._is_closed.set()
        for each in (*self._servers, *self._sockets):
            with contextlib.suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)
            each.close()

    def _accept(self, number: int) -> None:
        with contextlib.suppress(OSError):
            while True:
                connection = self._servers[number].accept()[0]
                self._sockets.append(connection)
                threading.Thread(target=self._serve, args=(connection, number), daemon=True).start()

    def _serve(self, connection: socket.socket, number: int) -> None:
        with contextlib.suppress(OSError, EOFError):
            while True:
                frame = _exactly(connection, struct.unpack(">i", _exactly(connection, 4))[0])
                answer, mute_s = self._answer(frame, number)
                connection.sendall(struct.pack(">i", len(answer)) + answer)
                if mute_s:
                    self._is_closed.wait(mute_s)

    def _answer(self, frame: bytes, number: int) -> tuple[bytes, float]:
        api, version, correlation_id = struct.unpack_from(">hhi", frame)
        request, response, newest = _KINDS[api]
        kind = response[min(version, newest)]
        if api == API_VERSIONS:
            return struct.pack(">i", correlation_id) + _versions(kind, version > newest), 0.0
        asked = request.decode(
            struct.pack(">i", len(frame)) + frame, version=version, header=True, framed=True
        )
        with self._lock:
            fault = self._fault(api, number)
            if api == PRODUCE:
                self.request_sizes.append(len(frame) + 4)
            by_api: Mapping[int, Callable[[Any, Any, Fault], Mapping[str, Any]]] = {
                PRODUCE: self._produce,
                METADATA: self._metadata,
                OFFSET_COMMIT: self._mark,
                OFFSET_FETCH: self._fetch_offsets,
                FIND_COORDINATOR: self._find,
                INIT_PRODUCER_ID: self._init,
                ADD_PARTITIONS: self._add,
                ADD_OFFSETS: self._add_offsets,
                END: self._end,
                TXN_OFFSET_COMMIT: self._hold,
            }
            fields = by_api[api](asked, kind, fault)
        answer = kind(throttle_time_ms=int(1000 * fault.mute_s), **fields)
        tags = b"\0" if response.flexible_version_q(version) else b""
        return struct.pack(">i", correlation_id) + tags + answer.encode(version=version), fault.mute_s

    def _fault(self, api: int, number: int) -> Fault:
        fault = self.script(api, self.counts[api])
        self.counts[api] += 1
        if api in _OF_LEADERS and number != self.leader:
            return Fault(KafkaError.NOT_LEADER_FOR_PARTITION)
        if api in _OF_COORDINATORS and number != self.coordinator:
            return Fault(KafkaError.NOT_COORDINATOR)
        return fault

    # --- Each kind of request ---

    def _metadata(self, asked: Any, kind: Any, fault: Fault) -> Mapping[str, Any]:
        topics, nodes = kind.MetadataResponseTopic, list(range(len(self.ports)))
        partitions = [
            topics.MetadataResponsePartition(
                partition_index=n, leader_id=self.leader, replica_nodes=nodes, isr_nodes=nodes, error_code=0
            )
            for n in range(PARTITIONS)
        ]
        return {
            "brokers": [
                kind.MetadataResponseBroker(node_id=node, host=HOST, port=port)
                for node, port in enumerate(self.ports)
            ],
            "topics": [
                topics(error_code=0, name=each.name, partitions=partitions) for each in asked.topics or ()
            ],
        }

    def _find(self, asked: Any, kind: Any, fault: Fault) -> Mapping[str, Any]:
        where = {"node_id": self.coordinator, "host": HOST, "port": self.ports[self.coordinator]}
        return {"error_code": fault.code, **where}

    def _init(self, asked: Any, kind: Any, fault: Fault) -> Mapping[str, Any]:
        identity = self.transactions.init() if fault.is_applied else None
        if fault.code or identity is None:
            return {"error_code": fault.code, "producer_id": -1, "producer_epoch": -1}
        return {"error_code": 0, "producer_id": identity.producer_id, "producer_epoch": identity.epoch}

    def _add(self, asked: Any, kind: Any, fault: Fault) -> Mapping[str, Any]:
        found = {each.name: list(each.partitions) for each in asked.v3_and_below_topics}
        places = {(name, number) for name, numbers in found.items() for number in numbers}
        wrong = self.transactions.add(asked.v3_and_below_producer_epoch, places, fault.is_applied)
        topics = kind.AddPartitionsToTxnTopicResult
        one = topics.AddPartitionsToTxnPartitionResult
        return {
            "results_by_topic_v3_and_below": [
                topics(
                    name=name,
                    results_by_partition=[
                        one(partition_index=number, partition_error_code=wrong or fault.code)
                        for number in numbers
                    ],
                )
                for name, numbers in found.items()
            ]
        }

    def _produce(self, asked: Any, kind: Any, fault: Fault) -> Mapping[str, Any]:
        topics = kind.TopicProduceResponse

        def taken(topic: str, part: Any) -> Any:
            place = topic, part.index
            wrong = self.transactions.append(place, bytes(part.records), fault.is_applied)
            return topics.PartitionProduceResponse(
                index=part.index,
                error_code=wrong or fault.code,
                base_offset=0,
                log_append_time_ms=-1,
                log_start_offset=0,
                record_errors=[],
            )

        return {
            "responses": [
                topics(
                    name=each.name,
                    partition_responses=[taken(each.name, part) for part in each.partition_data],
                )
                for each in asked.topic_data
            ]
        }

    def _add_offsets(self, asked: Any, kind: Any, fault: Fault) -> Mapping[str, Any]:
        return {
            "error_code": self.transactions.add(asked.producer_epoch, set(), fault.is_applied) or fault.code
        }

    def _hold(self, asked: Any, kind: Any, fault: Fault) -> Mapping[str, Any]:
        [topic] = asked.topics
        [part] = topic.partitions
        entry = LedgerEntry(part.committed_offset, part.committed_metadata or "")
        wrong = self.transactions.hold(asked.producer_epoch, entry, fault.is_applied)
        topics = kind.TxnOffsetCommitResponseTopic
        one = topics.TxnOffsetCommitResponsePartition(
            partition_index=part.partition_index, error_code=wrong or fault.code
        )
        return {"topics": [topics(name=topic.name, partitions=[one])]}

    def _mark(self, asked: Any, kind: Any, fault: Fault) -> Mapping[str, Any]:
        [topic] = asked.topics
        [part] = topic.partitions
        if fault.is_applied:
            self.mark = part.committed_metadata or ""
        topics = kind.OffsetCommitResponseTopic
        one = topics.OffsetCommitResponsePartition(
            partition_index=part.partition_index, error_code=fault.code
        )
        return {"topics": [topics(name=topic.name, partitions=[one])]}

    def _fetch_offsets(self, asked: Any, kind: Any, fault: Fault) -> Mapping[str, Any]:
        ledger, topics = self.transactions.ledger, kind.OffsetFetchResponseTopic
        is_unstable = asked.require_stable and self.transactions.has_pending_ledger
        known = {
            0: (-1, "") if ledger is None else (ledger.checkpoint_id, ledger.metadata),
            1: (0 if self.mark else -1, self.mark),
        }

        def of(partition: int) -> Any:
            offset, metadata = known[partition]
            return topics.OffsetFetchResponsePartition(
                partition_index=partition,
                committed_offset=offset,
                committed_leader_epoch=-1,
                metadata=metadata,
                error_code=KafkaError.UNSTABLE_OFFSET_COMMIT if is_unstable and partition == 0 else 0,
            )

        found = [
            topics(name=each.name, partitions=[of(n) for n in each.partition_indexes])
            for each in asked.topics
        ]
        return {"topics": [] if fault.code else found, "error_code": fault.code}

    def _end(self, asked: Any, kind: Any, fault: Fault) -> Mapping[str, Any]:
        wrong = self.transactions.end(asked.producer_epoch, asked.committed, fault.is_applied)
        return {"error_code": wrong or fault.code}


def _versions(kind: Any, is_refused: bool) -> bytes:
    """What is spoken. Asked in a version that is not, it says so, in version 0."""
    spoken = {**{api: newest for api, (_, _, newest) in _KINDS.items()}, **_CONSUMERS}
    apis = [kind.ApiVersion(api_key=api, min_version=0, max_version=newest) for api, newest in spoken.items()]
    code = int(KafkaError.UNSUPPORTED_VERSION) if is_refused else 0
    made: bytes = kind(error_code=code, api_keys=apis).encode()
    return made


def _exactly(connection: socket.socket, count: int) -> bytes:
    got = b""
    while len(got) < count:
        more = connection.recv(count - len(got))
        if not more:
            raise EOFError
        got += more
    return got
