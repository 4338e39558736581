"""PreparedEpoch: what one subtask writes between two barriers, and the transaction that it goes into."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable

import pyarrow as pa

from onceflow.connectors.kafka.client import LedgerEntry, LedgerKey, TransactionalProducer
from onceflow.connectors.kafka.transactions.prepared_promise import PreparedTransaction
from onceflow.runtime.errors import Retryable

Begin = Callable[[], tuple[LedgerKey, TransactionalProducer]]
"""Opens a producer with an id that is free."""


class PreparedEpoch:
    """Rows wait here until they are sent. `add` and `freeze` are the task's thread's, the others' callers
    take turns."""

    def __init__(self) -> None:
        self.checkpoint_id: int | None = None
        """The checkpoint that ended it; None: it goes on."""
        self.ledger: LedgerKey | None = None
        """The transactional id that it uses, from its first row on until it is committed."""
        self.prepared: PreparedTransaction | None = None
        self.rows = 0
        self._producer: TransactionalProducer | None = None
        self._queued: deque[pa.RecordBatch] = deque()
        self._queued_bytes = 0
        self._lock = threading.Lock()

    @property
    def queued_bytes(self) -> int:
        """The bytes of the rows that were not sent yet."""
        return self._queued_bytes

    def add(self, rows: pa.RecordBatch) -> None:
        """Rows in PRODUCE_SCHEMA."""
        assert self.checkpoint_id is None, "nothing is added after the barrier"
        with self._lock:
            self._queued.append(rows)
            self._queued_bytes += rows.nbytes
        self.rows += rows.num_rows

    def freeze(self, checkpoint_id: int) -> None:
        self.checkpoint_id = checkpoint_id

    def send_one(self, begin: Begin) -> bool:
        """Send the next batch, in a transaction that is begun with the first. False: there is none. After an
        error its rows are gone."""
        if not self._queued:
            return False
        if self._producer is None:
            self.ledger, self._producer = begin()
            self._producer.begin()
        with self._lock:
            rows = self._queued.popleft()
        self._producer.produce(rows)
        with self._lock:
            self._queued_bytes -= rows.nbytes
        return True

    def prepare(self, begin: Begin, metadata: str) -> PreparedTransaction:
        """Returns when the broker has all of its rows, and the ledger's entry with this metadata; idempotent.
        It is ended by its id, and the producer's, from then on."""
        if self.prepared is None:
            while self.send_one(begin):
                pass
            self.prepared = self._prepare(metadata)
        return self.prepared

    def abort(self) -> None:
        """Readers would wait for what is open. What is prepared stays open."""
        if self._producer is not None:
            self._producer.abort()
            self._producer.discard()
            self._producer = None

    def _prepare(self, metadata: str) -> PreparedTransaction:
        producer, ledger, checkpoint_id = self._producer, self.ledger, self.checkpoint_id
        assert producer is not None, "there were rows"
        assert ledger is not None, "each producer has an id"
        assert checkpoint_id is not None, "a barrier has ended it"
        delivered = producer.flush()
        if delivered != self.rows:
            raise Retryable(f"{self.rows} records were sent but {delivered} acknowledged")
        producer.send_ledger(LedgerEntry(checkpoint_id, metadata))
        prepared = PreparedTransaction(checkpoint_id, ledger.transactional_id, producer.identity, self.rows)
        # Never closed: that would abort it.
        producer.discard()
        self._producer = None
        return prepared
