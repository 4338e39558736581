"""DirectRoute: the records of a transaction go to the brokers directly.

librdkafka makes a message of each record and hands it from thread to thread, which costs several times as
much as writing it into a batch. So the records, and they alone, are written into batches here and sent on
sockets of our own, with the identity that librdkafka's producer got from the broker; it goes on to
initialise, fence, write the ledger and end the transaction. See docs/adr/0064-direct-produce.md.

Everything here is the good case only. What is not (an error code, a leader that moved, a silent broker, a
cut connection) is raised; then this producer's epoch is given up with all that was sent, as after any
failure, and the next one's records are librdkafka's to send. Import only if kernels are enabled.
"""

from __future__ import annotations

import contextlib
import random
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial

import pyarrow as pa
import pyarrow.compute as pc
from confluent_kafka import KafkaError, Producer

from onceflow.connectors.kafka.client import ProducerIdentity
from onceflow.connectors.kafka.produce.batch_limit import (
    TOO_LARGE,
    BatchLimit,
    BatchTooLargeError,
    RefusedBatch,
)
from onceflow.connectors.kafka.produce.enlisting import Enlisting, Place, raise_first
from onceflow.connectors.kafka.produce.leaders import Leaders, Leading, SentBatch
from onceflow.connectors.kafka.produce.partitioner import partition_by_key
from onceflow.connectors.kafka.produce.record_size import too_large
from onceflow.connectors.kafka.produce.structs import Run, runs, sorted_by_partition
from onceflow.connectors.kafka.protocol.transaction_messages import produce_answer, produce_request
from onceflow.connectors.kafka.protocol.wire import ProtocolError
from onceflow.connectors.kafka.records.batch_writer import Batch, BatchWriter, RowsToWrite, next_sequence
from onceflow.connectors.kafka.records.compression import Codec
from onceflow.runtime.errors import OnceflowError, Retryable

_WAITING_MAX = 4
"""Requests to one broker that are not answered: while it writes one, the next are on their way."""
_CHOSEN_BY_US = -1
_ABORT_S = 2.0
_REQUEST_BYTES_MAX = 32 << 20
"""The most bytes of one request: brokers cut a connection on which more comes than their
socket.request.max.bytes, which is 100 MiB unless it was changed."""


@dataclass(frozen=True, slots=True)
class ProduceSettings:
    """How a direct producer writes; sizes in bytes."""

    batch_bytes: int
    """The largest batch of several records."""
    message_bytes: int
    """The largest batch of any kind: more is refused."""
    answer_s: float
    """How long a broker may be silent."""
    codec: Codec | None = None
    """What compresses batches; None: they are not compressed."""
    request_bytes: int = _REQUEST_BYTES_MAX
    """The most bytes of the batches of one request; only a single batch may be larger."""


@dataclass(slots=True)
class _Rest:
    """The rows for one partition that are not sent yet."""

    place: Place
    start: int
    stop: int


@dataclass(slots=True)
class _Request:
    """What goes to one leader at once."""

    batches: dict[str, list[tuple[int, Sequence[bytes | memoryview]]]] = field(default_factory=dict)
    """Partitions and the pieces of their batches, for each topic."""
    notes: dict[Place, SentBatch] = field(default_factory=dict)
    bytes: int = 0

    def add(self, place: Place, batch: Batch, sent: SentBatch) -> None:
        topic, number = place
        self.batches.setdefault(topic, []).append((number, batch.pieces))
        self.notes[place] = sent
        self.bytes += len(batch)


class DirectRoute:
    """See Route in produce.py. Raises Retryable, Fenced or Fatal from `send` and `is_flushed`: then it is
    good for `close` only, and nothing that it sent may be committed."""

    first_failure: tuple[KafkaError, str] | None = None
    refused: RefusedBatch | None = None

    def __init__(
        self,
        producer: Producer,
        leaders: Leaders,
        transactional_id: str,
        identity: ProducerIdentity,
        settings: ProduceSettings,
        limit: BatchLimit,
        on_failure: Callable[[str], None],
    ) -> None:
        """`producer`: whose callbacks want to be served. `identity`: what its last init has got. `limit`: is
        told of batches that are refused for their size. `on_failure`: called with what else is raised."""
        self.delivered = 0
        self.identity = identity
        self._producer: Producer | None = producer
        self._leaders = leaders
        self._transactional_id = transactional_id
        self._settings = settings
        self._limit = limit
        self._on_failure = on_failure
        self._writer = BatchWriter(identity, settings.batch_bytes, settings.codec)
        self._sequences: dict[Place, int] = {}
        self._enlisting = Enlisting(leaders, transactional_id, identity)
        self._has_failed = False
        self._turn = random.randrange(1 << 20)

    @property
    def may_commit(self) -> bool:
        return not self._has_failed and not any(leader.waiting for leader in self._leaders.opened())

    def begin(self) -> None:
        self.delivered = 0
        self._enlisting.begin()
        self._leaders.close_idle()

    def send(self, rows: pa.RecordBatch, wait: Callable[[Callable[[], bool]], None]) -> None:
        with self._reported():
            self._send(rows)

    def poll(self, timeout_s: float) -> None:
        if self._producer is not None:
            self._producer.poll(timeout_s)

    def is_flushed(self, timeout_s: float) -> bool:
        with self._reported():
            for leader in self._leaders.opened():
                while leader.waiting:
                    self._receive(leader)
        return True

    def abort(self) -> None:
        """The coordinator only: librdkafka does not know of these partitions, and would say nothing to it."""
        if not self._enlisting:
            return
        try:
            self._leaders.wait_at_most(_ABORT_S)
            # What is still on its way would open the transaction again behind its end.
            self.is_flushed(0)
            self._enlisting.abort()
        except (OSError, ProtocolError, OnceflowError):
            return  # nothing rests on it: the next producer's init does it, or the transaction's timeout

    def close(self) -> None:
        self._producer = None  # whoever keeps the route must not keep librdkafka's threads
        self._leaders.close()

    # --- Sending ---

    def _send(self, rows: pa.RecordBatch) -> None:
        rows, cut = self._cut(rows)
        rests = [_Rest((run.topic, run.partition), run.start, run.stop) for run in cut]
        leaders = {rest.place: self._leaders.of(*rest.place) for rest in rests}
        self._enlisting.add(leaders)
        self._writer.take(rows, int(time.time() * 1000))
        while rests:  # a request holds one batch of each partition
            requests: dict[Leading, _Request] = {}
            for rest, batch in zip(rests, self._write(rests), strict=True):
                sent = self._taken(rest, batch, rows)
                leader = leaders[rest.place]
                request = requests.setdefault(leader, _Request())
                if request.notes and request.bytes + len(batch) > self._settings.request_bytes:
                    self._request(leader, request)
                    request = requests[leader] = _Request()
                request.add(rest.place, batch, sent)
            for leader, request in requests.items():
                self._request(leader, request)
            rests = [rest for rest in rests if rest.start < rest.stop]

    def _taken(self, rest: _Rest, batch: Batch, rows: pa.RecordBatch) -> SentBatch:
        """What is known of the batch that has the next of these rows; they are not to be sent again."""
        count = batch.after - rest.start
        key = rows["key"][rest.start].as_py() if count == 1 else None
        if len(batch) > self._settings.message_bytes:
            raise too_large(rest.place[0], key, len(batch), self._settings.message_bytes)
        self._sequences[rest.place] = next_sequence(self._sequences.get(rest.place, 0), count)
        rest.start = batch.after
        return SentBatch(count, batch.bytes, key)

    def _request(self, leader: Leading, request: _Request) -> None:
        while leader.waiting >= _WAITING_MAX:
            self._receive(leader)
        made = partial(
            produce_request,
            transactional_id=self._transactional_id,
            timeout_ms=int(self._settings.answer_s * 1000),
            batches=request.batches,
        )
        leader.send(made, request.notes)

    def _write(self, rests: Sequence[_Rest]) -> list[Batch]:
        """The next batch of each."""
        return self._writer.write(
            [RowsToWrite(rest.start, rest.stop, self._sequences.get(rest.place, 0)) for rest in rests]
        )

    def _cut(self, rows: pa.RecordBatch) -> tuple[pa.RecordBatch, list[Run]]:
        """The rows so that those of a partition stand together, and where."""
        if (rows["partition"].to_numpy() == _CHOSEN_BY_US).any():
            rows = self._with_partitions(rows)
        cut = runs(rows)
        if len({(run.topic, run.partition) for run in cut}) < len(cut):
            rows = sorted_by_partition(rows)
            cut = runs(rows)
        return rows, cut

    def _with_partitions(self, rows: pa.RecordBatch) -> pa.RecordBatch:
        """Choose partitions as Java's producers do: by the key's hash; without keys one for many records."""
        partitions = rows["partition"].to_numpy().copy()
        topics = rows["topic"]
        for topic in topics.unique().to_pylist():
            is_ours = pc.equal(topics, topic).to_numpy(zero_copy_only=False)
            is_ours &= partitions == _CHOSEN_BY_US
            count = self._leaders.partitions(topic)
            chosen = partition_by_key(rows["key"], count, self._turn % count)
            partitions[is_ours] = chosen[is_ours]
        self._turn += 1
        return rows.set_column(1, rows.schema.field(1), pa.array(partitions))

    def _receive(self, leader: Leading) -> None:
        frame, sent = leader.receive()
        answer = produce_answer(frame)
        leader.mute(answer.throttle_ms)
        if {(result.topic, result.partition) for result in answer.results} != sent.keys():
            raise ProtocolError("the answer is not for the partitions that were written to")
        for result in answer.results:
            if result.error in TOO_LARGE:
                batch = sent[result.topic, result.partition]
                refused = RefusedBatch(result.topic, batch.records, batch.size, batch.key)
                raise self._limit.refused(refused)
        raise_first(answer.results)
        self.delivered += sum(batch.records for batch in sent.values())

    @contextlib.contextmanager
    def _reported(self) -> Iterator[None]:
        try:
            yield
        except BatchTooLargeError:  # the next producer writes directly, too
            self._has_failed = True
            raise
        except OnceflowError as error:
            self._fail(error)
            raise
        except (OSError, ProtocolError) as error:
            self._fail(error)
            raise Retryable(f"could not write to the broker directly: {error}") from error

    def _fail(self, error: Exception) -> None:
        self._has_failed = True
        self._on_failure(str(error))
