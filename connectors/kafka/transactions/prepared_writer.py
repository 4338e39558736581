"""PreparedWriter: a SinkWriter of Kafka records that writes each of them once. `prepared_owner.py` has the
protocol and its crash table; this file has the rows, and the thread that sends them."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import pyarrow as pa

from onceflow.connectors.kafka.client import (
    LedgerKey,
    TopicDescription,
    TransactionalProducer,
    TwoPhaseClient,
)
from onceflow.connectors.kafka.transactions.ahead import AheadThread
from onceflow.connectors.kafka.transactions.changed_sink import settle_staged
from onceflow.connectors.kafka.transactions.owner import Claimant
from onceflow.connectors.kafka.transactions.prepared_epoch import PreparedEpoch
from onceflow.connectors.kafka.transactions.prepared_owner import IDS, PreparedOwner
from onceflow.connectors.kafka.transactions.prepared_promise import PreparedPromise, PreparedTransaction
from onceflow.connectors.kafka.transactions.sink_topics import OutputSettings, SinkTopics
from onceflow.connectors.kafka.transactions.turns import Turns
from onceflow.connectors.recovery import Recovery
from onceflow.connectors.waiting import Patience
from onceflow.runtime.contracts import Committable, SinkContext
from onceflow.runtime.errors import Fatal, Fenced, OnceflowError, Retryable
from onceflow.runtime.records import Records

_RECOVERY_EXTRA_S = 60
_QUEUED_BYTES_MAX = 32 << 20
"""Rows above this wait until some of them are sent."""


class PreparedWriter:
    """SinkWriter for rows in PRODUCE_SCHEMA. Partition -1: chosen as Java producers choose.

    Rows are in memory until a thread has sent them, and nowhere else: what can't be sent fails the attempt,
    and the next one reads its input again.
    """

    def __init__(
        self,
        context: SinkContext,
        client: TwoPhaseClient,
        settings: OutputSettings,
        patience: Patience | None = None,
    ) -> None:
        """Looks up the topics; waits for the broker, by default for delivery_timeout_ms. Raises
        UsageError if a topic does not exist."""
        self._context = context
        self._client = client
        self._settings = settings
        self._turns = Turns(context.uid, self._let_go)
        self._topics = SinkTopics(context, client, settings, self._turns.closed, patience)
        self._claimant = Claimant(context.lineage, context.attempt, two_phase=True)
        self._own_name = settings.ledger_of(context, str(context.subtask))
        self._own = self._owner(self._own_name)
        self._recovery = Recovery(context.uid, settings.delivery_timeout_ms / 1000 + _RECOVERY_EXTRA_S)
        self._lock = threading.Lock()
        self._open = PreparedEpoch()
        self._frozen: list[PreparedEpoch] = []
        """Ended by a checkpoint whose commit is not known to be done; in the order of the rows."""
        self._failed: OnceflowError | None = None
        """Why rows that were taken can't be sent any more."""
        self._sender: AheadThread | None = None
        self._topics.look_up()

    def topic(self, name: str) -> TopicDescription:
        """What is known of a topic. One that was not asked for before is looked up now, and waits for the
        broker. Raises Fatal if it does not exist. The task's thread."""
        known = self._topics.description(name)
        if known is None:
            with self._turns.taken():
                known = self._topics.found(name)
        return known

    def recover(self, committables: Sequence[Committable]) -> None:
        with self._recovery.under_way(), self._turns.taken():
            self._recover(committables)
        self._wake_sender()

    def write(self, records: Records) -> None:
        self.write_rows(records.batch)

    def write_rows(self, rows: pa.RecordBatch) -> None:
        """Rows in PRODUCE_SCHEMA. Raises Fatal naming a record that the broker would refuse, and Retryable if
        earlier ones could not be sent."""
        self._raise_failure()
        if rows.num_rows:
            self._topics.check_sizes(rows)
            self._open.add(rows)
            self._wake_sender()

    @property
    def has_room(self) -> bool:
        """See contracts.ThrottlingWriter."""
        with self._lock:
            queued = sum(epoch.queued_bytes for epoch in [*self._frozen, self._open])
        return queued < _QUEUED_BYTES_MAX or self._failed is not None

    def start_sending(self) -> None:
        """Let a thread of its own call `send` when there are rows, from now on until `close`."""
        self._sender = AheadThread(self.send)

    def send(self) -> bool:
        """Send a batch of the rows that wait, or prepare what a barrier has ended. False: there is nothing
        to do until rows are written, a barrier passes or a commit is done. Any thread; raises nothing: what
        fails, later calls tell."""
        if not self._recovery.has_succeeded or self._failed is not None:
            return False
        with contextlib.suppress(OnceflowError), self._turns.taken():
            ended = next((epoch for epoch in self._ended() if epoch.prepared is None), None)
            if ended is not None:
                self._prepare(ended)
                return True
            # Rows behind a barrier are sent when all those before it are in their partitions.
            with self._sending():
                return self._open.send_one(self._begin)
        return False

    def pre_commit(self, checkpoint_id: int) -> _PreCommit:
        self._raise_failure()
        with self._lock:
            ended, self._open = self._open, PreparedEpoch()
            ended.freeze(checkpoint_id)
            if ended.rows:
                self._frozen.append(ended)
            # Output that is not known to be committed when it is staged is part of every checkpoint.
            promised = list(self._frozen)
        self._wake_sender()
        return _PreCommit(self, checkpoint_id, promised)

    def stage(self, checkpoint_id: int, epochs: Sequence[PreparedEpoch]) -> Committable:
        """All rows of these are at the broker, in transactions that the committable names."""
        # A checkpoint that completed before the last one's promises are kept would forget them.
        self._recovery.wait()
        with self._turns.taken():
            self._raise_failure()
            # An id that is free again must not be promised: the next transaction with it may be, too.
            waiting = self._ended()
            transactions = [self._prepare(epoch) for epoch in epochs if epoch in waiting]
        promise = PreparedPromise(self._own_name, self._context.attempt, transactions)
        return Committable(self._context.uid, str(self._context.subtask), checkpoint_id, promise.to_json())

    def commit(self, checkpoint_id: int) -> None:
        with self._turns.taken():
            durable = [each for each in self._ended() if (each.checkpoint_id or 0) <= checkpoint_id]
            if durable:
                self._own.check_claim()
            for epoch in durable:
                assert epoch.prepared is not None, "its checkpoint is durable"
                self._own.commit(epoch.prepared)
                with self._lock:
                    self._frozen.remove(epoch)
            self._topics.refresh()
        self._wake_sender()

    def close(self) -> None:
        """Does not wait for a commit that waits for the broker: that one lets go when it notices."""
        self._recovery.close()
        if self._sender is not None:
            self._sender.close()
        self._turns.close()

    def _wake_sender(self) -> None:
        if self._sender is not None:
            self._sender.wake()

    def _let_go(self) -> None:
        """What is prepared stays open for whoever restores its checkpoint; the rest is aborted, since readers
        would wait for it."""
        for epoch in [*self._frozen, self._open]:
            epoch.abort()
        self._client.close()

    def _recover(self, committables: Sequence[Committable]) -> None:
        self._topics.ask(lambda: self._client.ensure_ledger_topic(self._settings.ledger_topic))
        promised: dict[LedgerKey, PreparedPromise | None] = {self._own_name: None}
        for committable in committables:
            if PreparedPromise.is_in(committable):
                promise = PreparedPromise.of(committable)
                promised[promise.owner] = promise
            else:
                context, patience = self._context, self._topics.patience
                promised.setdefault(
                    settle_staged(committable, context, self._client, self._claimant, patience), None
                )
        for owner, promise_of_it in promised.items():
            self._owner(owner).settle(promise_of_it, self._context.restored_checkpoint_id)

    def _ended(self) -> Sequence[PreparedEpoch]:
        with self._lock:
            return list(self._frozen)

    def _prepare(self, epoch: PreparedEpoch) -> PreparedTransaction:
        with self._sending():
            return epoch.prepare(self._begin, self._claimant.metadata())

    def _begin(self) -> tuple[LedgerKey, TransactionalProducer]:
        free = self._own.free(
            [each.ledger.transactional_id for each in self._ended() if each.ledger is not None]
        )
        if free is None:
            raise Retryable(
                f"{IDS} checkpoints in a row were not completed, and each has a transaction that is open"
            )
        return free, self._topics.ask(lambda: self._client.open_producer(free))

    @contextlib.contextmanager
    def _sending(self) -> Iterator[None]:
        """What fails in here can't be done again: the rows are gone from memory."""
        try:
            yield
        except Fatal as error:
            self._failed = error
            raise
        except OnceflowError as error:
            who = "a newer attempt writes, or transaction_timeout has passed: " * isinstance(error, Fenced)
            self._failed = Retryable(f"sink {self._context.uid!r} could not send its records: {who}{error}")
            raise self._failed from error

    def _raise_failure(self) -> None:
        if self._failed is not None:
            raise self._failed

    def _owner(self, name: LedgerKey) -> PreparedOwner:
        return PreparedOwner(self._client, name, self._claimant, self._topics.patience)


@dataclass(frozen=True, slots=True)
class _PreCommit:
    """See contracts.PreCommit."""

    writer: PreparedWriter
    checkpoint_id: int
    epochs: Sequence[PreparedEpoch]

    def stage(self) -> Committable:
        return self.writer.stage(self.checkpoint_id, self.epochs)
