"""StagedWriter: a SinkWriter of Kafka records. Output waits, durable, in the checkpoint; its commit is
one transaction. `owner.py` decides, `held.py` holds the rows, `ahead.py` sends them before they have to be
there, this file joins them."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import pyarrow as pa

from onceflow.connectors.kafka.client import KafkaClient, LedgerKey, TopicDescription
from onceflow.connectors.kafka.transactions.ahead import AheadThread, Output
from onceflow.connectors.kafka.transactions.changed_sink import check_prepared, settle_prepared
from onceflow.connectors.kafka.transactions.held import HeldOutput, RestoredOutput
from onceflow.connectors.kafka.transactions.owner import Claimant, OwnerTransactions
from onceflow.connectors.kafka.transactions.prepared_promise import PreparedPromise
from onceflow.connectors.kafka.transactions.promise import Promise
from onceflow.connectors.kafka.transactions.sink_topics import OutputSettings, SinkTopics
from onceflow.connectors.kafka.transactions.turns import Turns
from onceflow.connectors.recovery import Recovery
from onceflow.connectors.waiting import Patience
from onceflow.runtime.contracts import Committable, SinkContext
from onceflow.runtime.errors import Retryable
from onceflow.runtime.records import Records

_RECOVERY_EXTRA_S = 60


@dataclass(frozen=True, slots=True)
class StagedSettings(OutputSettings):
    """How a staged writer writes."""

    memory_bytes_max: int = 128 << 20
    """Output of one checkpoint above this waits in its staged file alone. Much less at a time is written
    there as it comes."""
    waiting_bytes_max: int = 1 << 30
    """Output above this waits for the commit of the checkpoint before: a broker that is away for long
    must not fill the disk."""
    ahead_interval_ms_max: int = 5_000
    """Between two barriers that are further apart nothing is sent ahead: an open transaction holds back
    all readers of its partitions, and it times out."""


class StagedWriter:
    """SinkWriter for rows in PRODUCE_SCHEMA. Partition -1: chosen as Java producers choose."""

    def __init__(
        self,
        context: SinkContext,
        client: KafkaClient,
        settings: StagedSettings,
        patience: Patience | None = None,
    ) -> None:
        """Looks up the topics; waits for the broker, by default for delivery_timeout_ms. Raises
        UsageError if a topic does not exist."""
        self._context = context
        self._client = client
        self._settings = settings
        self._turns = Turns(context.uid, self._let_go)
        self._topics = SinkTopics(context, client, settings, self._turns.closed, patience)
        self._patience = self._topics.patience
        self._claimant = Claimant(context.lineage, context.attempt)
        self._own = self._transactions(self._ledger_key(str(context.subtask)), None)
        self._recovery = Recovery(context.uid, settings.delivery_timeout_ms / 1000 + _RECOVERY_EXTRA_S)
        self._lock = threading.Lock()
        self._open = self._new_output()
        self._held: list[HeldOutput] = []
        self._is_committing = False
        self._barrier_ms: float | None = None
        interval_ms = context.checkpoint_interval_ms
        self._is_interval_short = interval_ms is not None and interval_ms <= settings.ahead_interval_ms_max
        self._sender: AheadThread | None = None
        self._last_written_ms = context.clock.monotonic_ms()
        self._keep_alive_ms = 0.0
        self._topics.look_up()

    def topic(self, name: str) -> TopicDescription:
        """What is known of a topic; looked up again every few minutes. One that was not asked for before is
        looked up now, and waits for the broker. Raises Fatal if it does not exist. The task's thread."""
        known = self._topics.description(name)
        if known is None:
            with self._turns.taken():
                known = self._topics.found(name)
        return known

    def recover(self, committables: Sequence[Committable]) -> None:
        with self._recovery.under_way(), self._turns.taken():
            self._recover(committables)

    def write(self, records: Records) -> None:
        self.write_rows(records.batch)

    def write_rows(self, rows: pa.RecordBatch) -> None:
        """Rows in PRODUCE_SCHEMA. Raises Fatal naming a record that the broker would refuse."""
        if rows.num_rows:
            self._topics.check_sizes(rows)
            self._open.add(rows)
            self._wake_sender()

    @property
    def has_room(self) -> bool:
        """See contracts.ThrottlingWriter."""
        settings, unsent = self._settings, self._open.unsent_bytes
        # Rows that are sent ahead have to be in memory until then. Once spilled they are left to their own
        # commit, which takes the longer, so that the next rows are spilled, too, and so on for ever.
        is_ahead = self._sender is not None and self._is_interval_short
        is_in_memory = not is_ahead or unsent < settings.memory_bytes_max // 2
        if self._is_committing or not self._recovery.is_over:
            return is_in_memory and self._open.bytes < settings.waiting_bytes_max
        return is_in_memory or self._sender is None or not self._sender.is_sending

    def start_sending_ahead(self) -> None:
        """Let a thread of its own call `send_ahead` when there are rows, from now on until `close`."""
        self._sender = AheadThread(self.send_ahead)

    def send_ahead(self) -> bool:
        """Send a part of the rows that are not committed, in the order in which they were written, without
        waiting for their checkpoint. False: nothing was sent, and nothing can be until rows are written,
        a barrier passes or a commit is done. Any thread; raises nothing: `commit` sends what is missing.
        """
        if not self._is_interval_short or not self._recovery.has_succeeded:
            return False
        with contextlib.suppress(Retryable), self._turns.taken():
            with self._lock:
                # Rows after a barrier wait until those before it are committed: one transaction is all
                # that a producer can have, and what is in it can't be taken out.
                outputs = self._held or [self._open]
            return self._own.send_ahead(outputs)
        return False

    def pre_commit(self, checkpoint_id: int) -> _PreCommit:
        now_ms, before_ms = self._context.clock.monotonic_ms(), self._barrier_ms
        if before_ms is not None:
            self._is_interval_short = now_ms - before_ms <= self._settings.ahead_interval_ms_max
        self._barrier_ms = now_ms
        with self._lock:
            frozen, self._open = self._open, self._new_output()
            frozen.freeze(checkpoint_id)
            if frozen.rows:
                self._held.append(frozen)
            # Output that no ledger read has confirmed is part of every checkpoint until one has.
            held = list(self._held)
        self._wake_sender()
        return _PreCommit(self._committable, checkpoint_id, held)

    def commit(self, checkpoint_id: int) -> None:
        self._is_committing = True
        try:
            with self._turns.taken():
                self._commit(checkpoint_id)
        finally:
            self._is_committing = False
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
        self._own.close()
        self._client.close()

    def _commit(self, checkpoint_id: int) -> None:
        with self._lock:
            outputs: list[Output] = [o for o in self._held if o.checkpoint_id <= checkpoint_id]
        now_ms = self._context.clock.monotonic_ms()
        if outputs or now_ms - self._last_written_ms > self._keep_alive_ms:
            self._own.commit(checkpoint_id, outputs)
            self._last_written_ms = now_ms
            with self._lock:
                self._held = [o for o in self._held if o.checkpoint_id > checkpoint_id]
        self._topics.refresh()

    def _recover(self, committables: Sequence[Committable]) -> None:
        self._topics.ask(lambda: self._client.ensure_ledger_topic(self._settings.ledger_topic))
        # The broker forgets a ledger that nobody writes: an idle writer writes it anew well before.
        self._keep_alive_ms = self._topics.ask(self._client.offsets_retention_ms) / 8
        own_key = self._ledger_key(str(self._context.subtask))
        settled = set()
        for committable in committables:
            if PreparedPromise.is_in(committable):  # the sink was two_phase=True then
                claimant = self._claimant
                settled.add(
                    settle_prepared(committable, self._context, self._client, claimant, self._patience)
                )
                continue
            promise = Promise.of(committable)
            outputs = [RestoredOutput(output, self._context.files) for output in promise.outputs]
            if promise.ledger == own_key:
                self._own = self._transactions(own_key, promise.last_seen)
                self._own.claim(self._context.restored_checkpoint_id)
                self._own.commit(committable.checkpoint_id, outputs) if outputs else None
            elif outputs:
                other = self._transactions(promise.ledger, promise.last_seen)
                try:
                    other.commit(committable.checkpoint_id, outputs)
                finally:
                    other.close()
        if self._own.last_seen is None:
            self._own.claim(self._context.restored_checkpoint_id)
        if self._own.was_two_phase and own_key not in settled:
            check_prepared(own_key, self._context, self._client, self._claimant, self._patience)

    def _committable(self, checkpoint_id: int, held: Sequence[HeldOutput]) -> Committable:
        # A checkpoint that completed before the last one's promises are kept would forget them.
        self._recovery.wait()
        staged = [output.stage() for output in held]
        owner = str(self._context.subtask)
        promise = Promise(self._ledger_key(owner), self._own.last_seen, staged)
        paths = [output.path for output in staged]
        return Committable(self._context.uid, owner, checkpoint_id, promise.to_json(), paths)

    def _transactions(self, ledger: LedgerKey, last_seen: int | None) -> OwnerTransactions:
        return OwnerTransactions(self._client, ledger, self._claimant, self._patience, last_seen)

    def _ledger_key(self, owner: str) -> LedgerKey:
        return self._settings.ledger_of(self._context, owner)

    def _new_output(self) -> HeldOutput:
        return HeldOutput(self._context.files, self._settings.memory_bytes_max)


class _PreCommit:
    """See contracts.PreCommit."""

    def __init__(
        self,
        committable: Callable[[int, Sequence[HeldOutput]], Committable],
        checkpoint_id: int,
        held: Sequence[HeldOutput],
    ) -> None:
        self._committable = committable
        self._checkpoint_id = checkpoint_id
        self._held = held

    def stage(self) -> Committable:
        return self._committable(self._checkpoint_id, self._held)
