"""Transactions of staged output: what a durable checkpoint holds goes out in one of them, exactly once.

The output waits, durable, in the checkpoint. A ledger, an offset written by the same transaction, says
up to which checkpoint it is committed. Everything rests on one order: first fence every earlier
producer and every late request of our own (init), only then read the ledger, and believe it.

Records may go into the open transaction before their checkpoint is durable (`send_ahead`): they are as
invisible there as if they had not been sent, until the one commit that comes after it.

| crash                          | recovery                                                     |
| ------------------------------ | ------------------------------------------------------------ |
| ahead of the checkpoint        | init aborts it; nothing of it counts                         |
| before, or inside, the write   | init aborts it; the ledger is lower: write                   |
| commit sent, reply lost        | init waits it out or fences it; the ledger decides           |
| commit sent twice, one is late | `doubt` makes us initialise anew before the next transaction |
| committed, not recorded        | the ledger has it: skip                                      |
| an older attempt still lives   | it is fenced; it finds the newer attempt in the ledger, goes |
| a frozen broker wakes up, and  | `newest_ledger` asks a broker that has just written for us:  |
| takes itself for the group's   | what it answers is of now. A lower answer of another one     |
| coordinator, as it was         | after a commit is doubt                                      |

No I/O but through KafkaClient, no clock but through Patience: the fake broker runs this very code.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from onceflow.connectors.kafka.client import KafkaClient, LedgerEntry, LedgerKey, TransactionalProducer
from onceflow.connectors.kafka.transactions.ahead import AheadOutput, Output, SentAhead
from onceflow.connectors.waiting import Patience
from onceflow.runtime.errors import DataLossError, Fatal, Fenced, Indeterminate, OnceflowError, Retryable

_FENCED_IN_A_ROW_MAX = 5


@dataclass(frozen=True, slots=True)
class Claimant:
    """Who writes. The ledger's metadata names it, or two live attempts would fence each other for ever."""

    lineage: str
    attempt: int
    two_phase: bool = False
    """It commits transactions that are prepared, of which this ledger knows nothing (`prepared_owner.py`)."""

    def metadata(self) -> str:
        mark = {"two_phase": True} if self.two_phase else {}
        return json.dumps({"lineage": self.lineage, "attempt": self.attempt, **mark})

    def after(self, entry: LedgerEntry | None) -> Claimant:
        """This one, marked if the last one was. The mark stays until a commit of staged output: only then is
        the ledger no lower than what prepared transactions have made visible."""
        try:
            is_marked = entry is not None and bool(json.loads(entry.metadata).get("two_phase"))
        except (ValueError, AttributeError):
            is_marked = False
        return replace(self, two_phase=True) if is_marked else self

    def is_superseded_by(self, entry: LedgerEntry) -> bool:
        """Whether a newer attempt of the same job wrote the ledger."""
        try:
            other = json.loads(entry.metadata)
            return bool(other["lineage"] == self.lineage and other["attempt"] > self.attempt)
        except (ValueError, KeyError, TypeError):
            return False


class OwnerTransactions:
    """The transactions of one owner (a transactional id and its ledger) in one attempt. One thread at a
    time."""

    def __init__(
        self,
        client: KafkaClient,
        ledger: LedgerKey,
        claimant: Claimant,
        patience: Patience,
        last_seen: int | None,
    ) -> None:
        """`last_seen`: the ledger as the restored checkpoint knew it; None if it knew of none."""
        self._client = client
        self._ledger = ledger
        self._claimant = claimant
        self._patience = patience
        self._last_seen = last_seen
        self._producer: TransactionalProducer | None = None
        self._ahead: SentAhead | None = None
        """What is in the open transaction; None: there is none."""
        self.was_two_phase = False
        """Whether, when `claim` returned, the ledger could be lower than what prepared transactions have made
        visible."""

    @property
    def last_seen(self) -> int | None:
        """The highest value that a read of the ledger has answered: goes into each checkpoint."""
        return self._last_seen

    def is_at(self, checkpoint_id: int) -> bool:
        """Whether this producer has seen the ledger there and nothing is in doubt: a commit would
        neither fence nor read first."""
        producer = self._producer
        return producer is not None and self._last_seen == checkpoint_id and self._doubt(producer) is None

    def claim(self, restored_checkpoint_id: int) -> None:
        """Fence earlier attempts and write our name into the ledger, at its old value or 0.

        Once per attempt, for the own owner. Raises Fatal if the ledger is ahead of the checkpoint that
        the job was started from: its output is there already and would be written again.
        """

        def attempt() -> None:
            entry = self._renewed_ledger()
            if entry is not None and entry.checkpoint_id > restored_checkpoint_id:
                raise Fatal(
                    f"the output of {self._ledger.transactional_id} is committed up to checkpoint "
                    f"{entry.checkpoint_id}, but the job starts from checkpoint {restored_checkpoint_id}: it "
                    f"would write that output again. Start from checkpoint {entry.checkpoint_id} or later, "
                    f"accept it with --accept-duplicates-after {restored_checkpoint_id}, or use a new "
                    "checkpoint folder"
                )
            claimant = self._claimant.after(entry)
            self._transact(entry.checkpoint_id if entry is not None else 0, [], claimant)
            self.was_two_phase = claimant.two_phase

        self._until_done(attempt)

    def send_ahead(self, outputs: Sequence[AheadOutput]) -> bool:
        """Put into the open transaction what of these outputs is in memory and not in it yet, or begin
        one. Their checkpoint need not be durable: only the commit that is for them makes them visible.

        False: nothing was sent. Nothing need be: the commit sends what is missing, and if something is
        wrong with the broker it is the one to wait, to tell and to fail.
        """
        sent = self._ahead or SentAhead()
        batches = sent.next_of(outputs)
        producer = self._producer
        if not batches or producer is None:
            return False
        try:
            if self._ahead is None:
                if self._doubt(producer) is not None:  # its late commit would make visible what we send
                    return False
                producer.begin()
                self._ahead = sent
            for output, batch in batches:
                producer.produce(batch)
                sent.add(output, batch)
        except OnceflowError:
            self._drop()
            return False
        return True

    def commit(self, checkpoint_id: int, outputs: Sequence[Output]) -> None:
        """Make the outputs visible, those of aborted checkpoints before it included; returns when the
        ledger has answered that they are. `outputs`: all that no ledger read has confirmed yet."""
        assert all(output.checkpoint_id <= checkpoint_id for output in outputs), "not durable yet"

        def attempt() -> None:
            if self._ahead is not None and not self._ahead.is_part_of(outputs):
                self._drop()  # it holds rows of a later checkpoint, which can't be taken out again
            committed = self._committed_before()
            if committed < checkpoint_id:
                unsent = [o for o in outputs if o.checkpoint_id > committed]
                self._transact(checkpoint_id, unsent, self._claimant)

        self._until_done(attempt)

    def close(self) -> None:
        """What is not committed stays invisible. A transaction that was begun ahead is aborted, since
        readers would wait for it until it times out; that is all the waiting for the broker there is."""
        if self._producer is not None and self._ahead is not None:
            self._producer.abort()
        self._drop()

    def _committed_before(self) -> int:
        """What the ledger says, from memory while nothing is in doubt."""
        if self._producer is not None and self._doubt(self._producer) is None:
            assert self._last_seen is not None, "a ledger was read when the producer was made"
            return self._last_seen
        entry = self._renewed_ledger()
        return -1 if entry is None else entry.checkpoint_id

    def _doubt(self, producer: TransactionalProducer) -> str | None:
        return producer.doubt()

    def _renewed_ledger(self) -> LedgerEntry | None:
        """The one dangerous order: fence, then read."""
        self._drop()
        # 1. A fresh epoch. From here no earlier producer, and no late request of ours, changes the
        #    ledger or makes anything visible. A crash before this line leaves all as it was.
        self._producer = self._client.open_producer(self._ledger)
        # 2. Only now is the answer final: at least n means that the output of n is visible, and less that
        #    it is not. A coordinator that was replaced, and does not know, would say less.
        entry = self._client.newest_ledger(self._ledger)
        if self._last_seen is not None and (entry is None or entry.checkpoint_id < self._last_seen):
            raise DataLossError(self._lost_ledger(entry))
        self._believe(entry)
        return entry

    def _transact(self, checkpoint_id: int, outputs: Sequence[Output], claimant: Claimant) -> None:
        """Write, and believe the ledger only. A crash anywhere here leaves the output in the checkpoint."""
        producer = self._producer
        assert producer is not None
        # 3. A crash from here to the commit: the broker aborts, nothing was visible.
        sent, self._ahead = self._ahead, None
        if sent is None:
            producer.begin()
            sent = SentAhead()
        try:
            rows = sent.rows
            for output in outputs:
                for batch in sent.rest_of(output):
                    producer.produce(batch)
                    rows += batch.num_rows
            delivered = producer.flush()
            if delivered != rows:
                raise Retryable(f"{rows} records were sent but {delivered} acknowledged")
            producer.send_ledger(LedgerEntry(checkpoint_id, claimant.metadata()))
        except Fatal:
            producer.abort()
            raise
        # 4. Records and ledger become visible together. A crash from here on: the ledger tells.
        producer.commit()
        # 5. The answer is what lets the caller forget the output.
        entry = self._client.read_ledger(self._ledger)
        if entry is None or entry.checkpoint_id < checkpoint_id:
            raise Indeterminate(f"the commit said OK but the ledger says {entry}, not {checkpoint_id}")
        self._believe(entry)

    def _believe(self, entry: LedgerEntry | None) -> None:
        if entry is not None:
            if self._claimant.is_superseded_by(entry):
                raise Fenced(f"a newer attempt writes {self._ledger.transactional_id}: {entry.metadata}")
            self._last_seen = entry.checkpoint_id

    def _until_done(self, attempt: Callable[[], None]) -> None:
        fenced_in_a_row = 0
        while True:
            try:
                attempt()
            except Fenced as e:
                # A timed-out transaction looks like this too: the ledger names the newer attempt, if any.
                self._drop()
                fenced_in_a_row += 1
                if self._has_newer_attempt():
                    raise Fenced(f"a newer attempt writes {self._ledger.transactional_id}") from e
                if fenced_in_a_row > _FENCED_IN_A_ROW_MAX:
                    raise Fatal(
                        f"{e}. No newer attempt is known, so the transaction takes longer than "
                        "transaction_timeout each time: make it longer, or the checkpoint interval shorter"
                    ) from e
                self._patience.wait(e)
            except (Retryable, Indeterminate) as e:
                # Doubt: the next round starts with a fresh epoch and the ledger.
                self._drop()
                self._patience.wait(e)
            except OnceflowError:
                self._drop()
                raise
            else:
                self._patience.reset()
                return

    def _has_newer_attempt(self) -> bool:
        try:
            entry = self._client.read_ledger(self._ledger)
        except (Retryable, Indeterminate):
            return False
        return entry is not None and self._claimant.is_superseded_by(entry)

    def _drop(self) -> None:
        if self._producer is not None:
            self._producer.discard()
        self._producer = self._ahead = None

    def _lost_ledger(self, entry: LedgerEntry | None) -> str:
        found = (
            "is gone (expired, or its topic was deleted)"
            if entry is None
            else f"went back to {entry.checkpoint_id}"
        )
        return (
            f"the ledger of {self._ledger.transactional_id} on topic {self._ledger.topic} {found}, it was at "
            f"{self._last_seen}: whether the output of the last checkpoint is visible can't be told any "
            "more. Look whether it is in the output topic, then set the ledger by "
            f"`onceflow transactions ledger --set N {self._ledger.transactional_id}`: "
            f"N is the last checkpoint's id if it is there, else {self._last_seen}"
        )
