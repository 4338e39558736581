"""ScriptedBroker: says to a direct producer what a test wants, and keeps transactions as Kafka does.

One broker leads all partitions and coordinates all transactions, on a socket of loopback. What it takes it
takes as Kafka would: of the newest epoch only, in the order of the sequence numbers, into partitions that
were added to the transaction. `ScriptedClient` is a KafkaClient whose producers write by a DirectRoute.
"""

from __future__ import annotations

import contextlib
import socket
import struct
import threading
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any, Self

import pyarrow as pa
from confluent_kafka import KafkaError
from kafka.protocol.metadata import FindCoordinatorResponse
from kafka.protocol.producer import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    EndTxnRequest,
    EndTxnResponse,
    ProduceRequest,
    ProduceResponse,
)
from kafka.record.default_records import DefaultRecordBatch

from onceflow.connectors.kafka.client import LedgerEntry, LedgerKey, ProducerIdentity, TopicDescription
from onceflow.connectors.kafka.produce.batch_limit import BatchLimit
from onceflow.connectors.kafka.produce.direct import DirectRoute, ProduceSettings
from onceflow.connectors.kafka.produce.leaders import Leaders
from onceflow.connectors.kafka.protocol.broker_access import BrokerAccess
from onceflow.connectors.kafka.protocol.transaction_messages import (
    ADD_PARTITIONS,
    END,
    FIND_COORDINATOR,
    PRODUCE,
    VERSIONS,
)
from onceflow.runtime.errors import Retryable

HOST = "127.0.0.1"
_API_VERSIONS = 18


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


@dataclass
class _Transaction:
    added: set[tuple[str, int]] = field(default_factory=set)
    values: list[tuple[str, int, bytes]] = field(default_factory=list)


class ScriptedBroker:
    """Serves on threads of its own until `close`."""

    def __init__(self, script: Script = never, batch_bytes_max: int = 1 << 30) -> None:
        """`batch_bytes_max`: of a topic's batch; a larger one is refused."""
        self.script = script
        self.refusal: int = KafkaError.MSG_SIZE_TOO_LARGE
        self.counts: Counter[int] = Counter()
        self.request_sizes: list[int] = []
        """The sizes of Produce requests."""
        self.visible: list[tuple[str, int, bytes]] = []
        self.ledger: LedgerEntry | None = None
        self.epoch = -1
        self._batch_bytes_max = batch_bytes_max
        self._open = _Transaction()
        self._sequences: dict[tuple[str, int], int] = {}
        self._lock = threading.Lock()
        self._is_closed = threading.Event()
        self._server = socket.create_server((HOST, 0))
        self.port = int(self._server.getsockname()[1])
        self._sockets: list[socket.socket] = []
        threading.Thread(target=self._accept, daemon=True).start()

    # --- What librdkafka does in a real producer ---

    def init(self) -> ProducerIdentity:
        with self._lock:
            self.epoch += 1
            self._open, self._sequences = _Transaction(), {}
            return ProducerIdentity(7, self.epoch)

    def end(self, identity: ProducerIdentity, ledger: LedgerEntry | None) -> None:
        """Commit, if there is a ledger entry; else abort."""
        with self._lock:
            assert identity.epoch == self.epoch
            if ledger is not None:
                self.visible += self._open.values
                self.ledger = ledger
            self._open = _Transaction()

    # --- What it is asked ---

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._is_closed.set()
        for each in (self._server, *self._sockets):
            with contextlib.suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)
            each.close()

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                connection = self._server.accept()[0]
                self._sockets.append(connection)
                threading.Thread(target=self._serve, args=(connection,), daemon=True).start()

    def _serve(self, connection: socket.socket) -> None:
        with contextlib.suppress(OSError, EOFError):
            while True:
                frame = _exactly(connection, struct.unpack(">i", _exactly(connection, 4))[0])
                answer, mute_s = self._answer(frame)
                connection.sendall(struct.pack(">i", len(answer)) + answer)
                if mute_s:
                    self._is_closed.wait(mute_s)

    def _answer(self, frame: bytes) -> tuple[bytes, float]:
        api, _, correlation_id = struct.unpack_from(">hhi", frame)
        if api == _API_VERSIONS:
            rows = b"".join(struct.pack(">hhh", key, 0, version) for key, version in VERSIONS.items())
            return struct.pack(">ihi", correlation_id, 0, len(VERSIONS)) + rows, 0.0
        with self._lock:
            fault = self.script(api, self.counts[api])
            self.counts[api] += 1
            framed = struct.pack(">i", len(frame)) + frame
            by_api = {
                FIND_COORDINATOR: self._find,
                ADD_PARTITIONS: self._add,
                PRODUCE: self._produce,
                END: self._end,
            }
            answer = by_api[api](framed, fault)
        return struct.pack(">i", correlation_id) + b"\0" + answer.encode(version=VERSIONS[api]), fault.mute_s

    def _find(self, framed: bytes, fault: Fault) -> Any:
        return FindCoordinatorResponse[3](
            throttle_time_ms=0,
            error_code=fault.code,
            error_message=None,
            node_id=1,
            host=HOST,
            port=self.port,
        )

    def _add(self, framed: bytes, fault: Fault) -> Any:
        asked: Any = AddPartitionsToTxnRequest.decode(framed, version=3, header=True, framed=True)
        topics = AddPartitionsToTxnResponse[3].AddPartitionsToTxnTopicResult
        code = fault.code
        if asked.v3_and_below_producer_epoch != self.epoch:
            code = KafkaError.INVALID_PRODUCER_EPOCH
        found = {each.name: list(each.partitions) for each in asked.v3_and_below_topics}
        if fault.is_applied and code != KafkaError.INVALID_PRODUCER_EPOCH:
            self._open.added |= {(name, number) for name, numbers in found.items() for number in numbers}
        return AddPartitionsToTxnResponse[3](
            throttle_time_ms=int(1000 * fault.mute_s),
            results_by_topic_v3_and_below=[
                topics(
                    name=name,
                    results_by_partition=[
                        topics.AddPartitionsToTxnPartitionResult(
                            partition_index=number, partition_error_code=code
                        )
                        for number in numbers
                    ],
                )
                for name, numbers in found.items()
            ],
        )

    def _produce(self, framed: bytes, fault: Fault) -> Any:
        asked: Any = ProduceRequest.decode(framed, version=9, header=True, framed=True)
        self.request_sizes.append(len(framed))
        kinds = ProduceResponse[9].TopicProduceResponse
        return ProduceResponse[9](
            responses=[
                kinds(
                    name=topic.name,
                    partition_responses=[
                        kinds.PartitionProduceResponse(
                            index=each.index,
                            error_code=self._append((topic.name, each.index), bytes(each.records), fault),
                            base_offset=0,
                            log_append_time_ms=-1,
                            log_start_offset=0,
                            record_errors=[],
                            error_message=None,
                        )
                        for each in topic.partition_data
                    ],
                )
                for topic in asked.topic_data
            ],
            throttle_time_ms=int(1000 * fault.mute_s),
        )

    def _append(self, place: tuple[str, int], batch: bytes, fault: Fault) -> int:
        records = DefaultRecordBatch(bytearray(batch))
        if records.producer_epoch != self.epoch:
            return int(KafkaError.INVALID_PRODUCER_EPOCH)
        if len(batch) > self._batch_bytes_max:
            return self.refusal
        if place not in self._open.added:
            return int(KafkaError.INVALID_TXN_STATE)
        if records.base_sequence != self._sequences.get(place, 0):
            return int(KafkaError.OUT_OF_ORDER_SEQUENCE_NUMBER)
        if fault.is_applied:
            self._sequences[place] = records.base_sequence + records.records_count
            self._open.values += [(*place, each.value) for each in records]
        return fault.code

    def _end(self, framed: bytes, fault: Fault) -> Any:
        asked: Any = EndTxnRequest.decode(framed, version=3, header=True, framed=True)
        assert not asked.committed
        if asked.producer_epoch == self.epoch:
            self._open = _Transaction()
        return EndTxnResponse[3](throttle_time_ms=0, error_code=fault.code)


class ScriptedClient:
    """A KafkaClient. `nodes`: where brokers are said to be, in this order."""

    def __init__(
        self,
        broker: ScriptedBroker,
        settings: ProduceSettings,
        route: type[DirectRoute] = DirectRoute,
        nodes: Sequence[tuple[str, int]] | None = None,
        mute_s_max: float = 60.0,
    ) -> None:
        self._broker = broker
        self._settings = settings
        self._route = route
        self._mute_s_max = mute_s_max
        self.limit = BatchLimit(settings.batch_bytes)
        self.failures: list[str] = []
        """What would give librdkafka its turn."""
        self._nodes = nodes or [(HOST, broker.port)]
        self._producers: list[_Producer] = []

    def open_producer(self, ledger: LedgerKey) -> _Producer:
        leaders = self.leaders(ledger)
        settings = ProduceSettings(
            min(self._settings.batch_bytes, self.limit.bytes_max),
            self._settings.message_bytes,
            self._settings.answer_s,
            self._settings.codec,
            self._settings.request_bytes,
        )
        identity = self._broker.init()
        route = self._route(
            None,  # type: ignore[arg-type]
            leaders,
            ledger.transactional_id,
            identity,
            settings,
            self.limit,
            self.failures.append,
        )
        self._producers.append(_Producer(self._broker, route))
        return self._producers[-1]

    def leaders(self, ledger: LedgerKey) -> Leaders:
        consumer: Any = SimpleNamespace(list_topics=self._list_topics)
        return Leaders(consumer, ledger, BrokerAccess("test"), self._settings.answer_s, self._mute_s_max)

    def read_ledger(self, ledger: LedgerKey) -> LedgerEntry | None:
        return self._broker.ledger

    def ensure_ledger_topic(self, topic: str) -> None: ...

    def describe_topics(self, topics: Sequence[str]) -> Mapping[str, TopicDescription]:
        return {topic: TopicDescription(4) for topic in topics}

    def offsets_retention_ms(self) -> int:
        return 1 << 40

    def close(self) -> None:
        for producer in self._producers:
            producer.discard()

    def _list_topics(self, topic: str, timeout: float) -> Any:
        """The last of the nodes is the broker that leads."""
        brokers = {n: SimpleNamespace(host=host, port=port) for n, (host, port) in enumerate(self._nodes)}
        leads = SimpleNamespace(leader=len(self._nodes) - 1)
        partitions = dict.fromkeys(range(4), leads)
        topics = {topic: SimpleNamespace(error=None, partitions=partitions)}
        return SimpleNamespace(brokers=brokers, topics=topics)


class _Producer:
    """A TransactionalProducer: the route writes, the rest is told to the broker as librdkafka would."""

    def __init__(self, broker: ScriptedBroker, route: DirectRoute) -> None:
        self._broker = broker
        self._route = route
        self._entry: LedgerEntry | None = None

    def begin(self) -> None:
        self._route.begin()

    def produce(self, rows: pa.RecordBatch) -> None:
        self._route.send(rows, lambda is_sent: None)

    def flush(self) -> int:
        self._route.is_flushed(1.0)
        return self._route.delivered

    def send_ledger(self, entry: LedgerEntry) -> None:
        self._entry = entry

    def commit(self) -> None:
        if not self._route.may_commit:
            raise Retryable("not all that was sent is acknowledged")
        assert self._entry is not None
        self._broker.end(self._route.identity, self._entry)

    def doubt(self) -> str | None:
        return None

    def abort(self) -> None:
        self._route.abort()

    def discard(self) -> None:
        self._route.close()


def _exactly(connection: socket.socket, count: int) -> bytes:
    got = b""
    while len(got) < count:
        more = connection.recv(count - len(got))
        if not more:
            raise EOFError
        got += more
    return got
