"""DirectRoute: the records of a transaction go to the brokers directly.

librdkafka makes a message of each record and hands it from thread to thread, which costs several times as
much as writing it into a batch. So the records, and they alone, are written into batches here and sent on
sockets of our own, with the identity that librdkafka's producer got from the broker; it goes on to
initialise, fence, write the ledger and end the transaction. See docs/adr/0064-direct-produce.md.

Everything here is the good case only. What is not (an error code, a leader that moved, a silent broker, a
cut connection) is raised; then this producer's epoch is given up with all that was sent, as after any
failure, and the next one's records are librdkafka's to send.
"""

from __future__ import annotations

import contextlib
import random
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from confluent_kafka import KafkaError, Producer

from onceflow.connectors.kafka.batch_writing import Batch, BatchWriter, RowsToWrite, next_sequence
from onceflow.connectors.kafka.client import ProducerIdentity
from onceflow.connectors.kafka.constant_columns import OnlyTopic
from onceflow.connectors.kafka.failures import failure
from onceflow.connectors.kafka.leaders import Leaders, Leading
from onceflow.connectors.kafka.partition import partition_of_key
from onceflow.connectors.kafka.produce_messages import Run, runs, sorted_by_partition
from onceflow.connectors.kafka.produce_protocol import (
    PartitionResult,
    abort_request,
    add_partitions_answer,
    add_partitions_request,
    produce_answer,
    produce_request,
)
from onceflow.connectors.kafka.record_codecs import Codec
from onceflow.connectors.kafka.wire import ProtocolError
from onceflow.runtime.errors import OnceflowError, Retryable

_WAITING_MAX = 4
"""Requests to one broker that are not answered: while it writes one, the next are on their way."""
_CHOSEN_BY_US = -1
_ABORT_S = 2.0
_SETTLING_S = 10.0
_SETTLING_PAUSE_S = 0.002
_NOT_ATTEMPTED = KafkaError.OPERATION_NOT_ATTEMPTED
"""Said of a partition because of what is said of another one."""

Place = tuple[str, int]
"""A topic and a partition."""


@dataclass(frozen=True, slots=True)
class ProduceSettings:
    """How a direct producer writes; sizes in bytes."""

    batch_bytes: int
    """Of a batch of several records."""
    message_bytes: int
    """Of any batch: more is refused."""
    answer_s: float
    """How long a broker may be silent."""
    codec: Codec | None = None
    """By which batches are compressed."""


@dataclass(slots=True)
class _Rest:
    """Of the rows for one partition, those that are not sent yet."""

    place: Place
    start: int
    stop: int


class DirectRoute:
    """See Route in produce.py. Raises Retryable, Fenced or Fatal from `send` and `is_flushed`: then it is
    good for `close` only, and nothing that it sent may be committed."""

    first_failure: tuple[KafkaError, str] | None = None

    def __init__(
        self,
        producer: Producer,
        leaders: Leaders,
        transactional_id: str,
        identity: ProducerIdentity,
        settings: ProduceSettings,
        on_failure: Callable[[str], None],
    ) -> None:
        """`producer`: whose callbacks want to be served. `identity`: what its last init has got.
        `on_failure`: called with what is raised."""
        self.delivered = 0
        self.identity = identity
        self._producer: Producer | None = producer
        self._leaders = leaders
        self._transactional_id = transactional_id
        self._settings = settings
        self._on_failure = on_failure
        self._writer = BatchWriter(identity, settings.batch_bytes, settings.codec)
        self._sequences: dict[Place, int] = {}
        self._in_transaction: set[Place] = set()
        self._has_failed = False
        self._topics = OnlyTopic()
        self._turn = random.randrange(1 << 20)

    @property
    def may_commit(self) -> bool:
        return not self._has_failed and not any(leader.waiting for leader in self._leaders.opened())

    def begin(self) -> None:
        self.delivered = 0
        self._in_transaction.clear()
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
        if not self._in_transaction:
            return
        try:
            self._leaders.wait_at_most(_ABORT_S)
            # What is still on its way would open the transaction again behind its end.
            self.is_flushed(0)
            request = partial(abort_request, transactional_id=self._transactional_id, identity=self.identity)
            self._leaders.coordinator().ask(request, {})
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
        self._add_partitions(leaders)
        self._writer.take(rows, int(time.time() * 1000))
        while rests:  # a request holds one batch of each partition
            requests: dict[Leading, dict[str, list[tuple[int, Batch]]]] = {}
            counts: dict[Leading, dict[Place, int]] = {}
            for rest, batch in zip(rests, self._write(rests), strict=True):
                topic, number = rest.place
                if len(batch) > self._settings.message_bytes:
                    raise failure(KafkaError(KafkaError.MSG_SIZE_TOO_LARGE), "write", f"Topic {topic}")
                count, rest.start = batch.after - rest.start, batch.after
                self._sequences[rest.place] = next_sequence(self._sequences.get(rest.place, 0), count)
                leader = leaders[rest.place]
                requests.setdefault(leader, {}).setdefault(topic, []).append((number, batch))
                counts.setdefault(leader, {})[rest.place] = count
            for leader, batches in requests.items():
                while leader.waiting >= _WAITING_MAX:
                    self._receive(leader)
                request = partial(
                    produce_request,
                    transactional_id=self._transactional_id,
                    timeout_ms=int(self._settings.answer_s * 1000),
                    batches=batches,
                )
                leader.send(request, counts[leader])
            rests = [rest for rest in rests if rest.start < rest.stop]

    def _write(self, rests: Sequence[_Rest]) -> list[Batch]:
        """The next batch of each."""
        return self._writer.write(
            [RowsToWrite(rest.start, rest.stop, self._sequences.get(rest.place, 0)) for rest in rests]
        )

    def _cut(self, rows: pa.RecordBatch) -> tuple[pa.RecordBatch, list[Run]]:
        """The rows so that those of a partition stand together, and where."""
        if (rows["partition"].to_numpy() == _CHOSEN_BY_US).any():
            rows = self._with_partitions(rows)
        cut = runs(rows, self._topics.of)
        if len({(run.topic, run.partition) for run in cut}) < len(cut):
            rows = sorted_by_partition(rows)
            cut = runs(rows)
        return rows, cut

    def _with_partitions(self, rows: pa.RecordBatch) -> pa.RecordBatch:
        """As Java's producers choose: by the key's hash, and without keys one for many records."""
        partitions = rows["partition"].to_numpy().copy()
        topics = rows["topic"]
        for topic in topics.unique().to_pylist():
            is_ours = pc.equal(topics, topic).to_numpy(zero_copy_only=False)
            is_ours &= partitions == _CHOSEN_BY_US
            count = self._leaders.partitions(topic)
            chosen = np.full(len(partitions), self._turn % count, np.int32)
            has_key = rows["key"].is_valid().to_numpy(zero_copy_only=False)
            if has_key.any():
                chosen[has_key] = partition_of_key(rows["key"], count)[has_key]
            partitions[is_ours] = chosen[is_ours]
        self._turn += 1
        return rows.set_column(1, rows.schema.field(1), pa.array(partitions))

    def _receive(self, leader: Leading) -> None:
        frame, counts = leader.receive()
        results = produce_answer(frame)
        _raise_first(results)
        if {(result.topic, result.partition) for result in results} != counts.keys():
            raise ProtocolError("the answer is not for the partitions that were written to")
        self.delivered += sum(counts.values())

    # --- The transaction ---

    def _add_partitions(self, places: Iterable[Place]) -> None:
        """To the transaction, before anything is written to them."""
        missing = [place for place in places if place not in self._in_transaction]
        if not missing:
            return
        wanted: dict[str, list[int]] = {}
        for topic, number in missing:
            wanted.setdefault(topic, []).append(number)
        request = partial(
            add_partitions_request,
            transactional_id=self._transactional_id,
            identity=self.identity,
            partitions=wanted,
        )
        deadline = time.monotonic() + _SETTLING_S
        while True:
            results = add_partitions_answer(self._leaders.coordinator().ask(request, {}))
            # The transaction before is committed, but its markers are not written everywhere yet.
            is_settling = any(result.error == KafkaError.CONCURRENT_TRANSACTIONS for result in results)
            if not is_settling or time.monotonic() > deadline:
                break
            time.sleep(_SETTLING_PAUSE_S)
        _raise_first(results)
        if {(result.topic, result.partition) for result in results} != set(missing):
            raise ProtocolError("the answer is not for the partitions that were to be added")
        self._in_transaction.update(missing)

    @contextlib.contextmanager
    def _reported(self) -> Iterator[None]:
        try:
            yield
        except OnceflowError as error:
            self._fail(error)
            raise
        except (OSError, ProtocolError) as error:
            self._fail(error)
            raise Retryable(f"could not write to the broker directly: {error}") from error

    def _fail(self, error: Exception) -> None:
        self._has_failed = True
        self._on_failure(str(error))


def _raise_first(results: list[PartitionResult]) -> None:
    """What was first to fail, if anything did."""
    failed = [result for result in results if result.error]
    failed.sort(key=lambda result: result.error == _NOT_ATTEMPTED)
    if failed:
        first = failed[0]
        error = KafkaError(first.error, first.message or None)
        raise failure(error, "write", f"Topic {first.topic}")
