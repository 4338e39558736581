"""How a micro-batch goes out exactly once: the order of the driver's commit, and what the ledger may say.

Spark calls commit for batch N when all its files are staged, and again, maybe with other rows, after any
crash before its own commit log has N. The ledger's value is how many batches are done: N + 1 after N.

| crash | what Spark does | the ledger | the rerun |
| --- | --- | --- | --- |
| before, or while, files are staged | runs N again | N or less | writes its own files |
| before, or inside, the transaction | runs N again | N: the broker aborts | writes its own files |
| EndTxn sent, no answer | runs N again | decides, once the new producer has fenced the old | either |
| after the commit, before Spark's log | runs N again | N + 1 | drops its files |

The ledger expires when nothing was written for a week, and a ledger that is gone says nothing. So a batch
is marked as sent before it is sent, in the checkpoint: without the mark nobody can have written it, and
with it the ledger was there, at N or more; if it is not any more, the query stops.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from typing import Protocol

from onceflow.connectors.kafka.client import (
    KafkaClient,
    LedgerEntry,
    LedgerKey,
    TopicDescription,
    TransactionalProducer,
)
from onceflow.connectors.kafka.transactions.ahead import Output
from onceflow.connectors.kafka.transactions.owner import Claimant, OwnerTransactions
from onceflow.connectors.waiting import Patience
from onceflow.runtime.errors import DataLossError, Fatal, UsageError


class SentMarks(Protocol):
    """The batches that may have been sent: files of the checkpoint, so they outlive every process."""

    def has(self, batch_id: int) -> bool: ...

    def add(self, batch_id: int) -> None:
        """Note that this batch may have been sent. Durable when it returns."""
        ...

    def forget_before(self, batch_id: int) -> None: ...


def ledger_after(batch_id: int) -> int:
    """The ledger's value once this batch is visible."""
    return batch_id + 1


class BatchCommits:
    """The commits of one query in one process: makes each batch visible, once.

    One thread uses it, with rising batches or the same one again. Its producer is kept from batch to batch,
    so that a batch costs one transaction and not the fencing before it. That is safe because a producer that
    was fenced meanwhile, by another process or driver, commits nothing any more: the broker refuses it, and
    the ledger is read anew. `close` it when a call has raised, or when it is not used any more.
    """

    def __init__(self, client: KafkaClient, ledger: LedgerKey, query_id: str, patience: Patience) -> None:
        self._ledger = ledger
        self._query_id = query_id
        self._patience = patience
        self._batch_id: int | None = None
        self._client = TiedClient(client, self._check)
        self._transactions: OwnerTransactions | None = None

    def commit(self, batch_id: int, outputs: Sequence[Output], marks: SentMarks) -> None:
        """Make this batch visible; returns when the ledger has answered that it is.

        `outputs`: the files of this attempt at the batch, and of no other. Raises UsageError if the ledger
        belongs to another query, Fatal if it is ahead of this batch, DataLossError if it is gone though the
        batch may have been written; then nothing was written by this call.
        """
        self._batch_id = batch_id
        was_sent = marks.has(batch_id)
        transactions = self._made_sure_of(batch_id, was_sent)
        try:
            if not was_sent:
                # 1. Every earlier producer is fenced, and the ledger is there, at this batch or after it; a
                #    producer that has brought it to this batch knows. A crash: it says that the batches
                #    before this one are done, which Spark's log knows too.
                transactions.commit(batch_id, [])
                # 2. The mark. A crash: the rerun finds a ledger that is at this batch and not after it.
                marks.add(batch_id)
            # 3. All rows and the ledger in one transaction; transactions.py knows what a crash leaves.
            transactions.commit(ledger_after(batch_id), outputs)
        except DataLossError as e:
            raise DataLossError(_lost(self._ledger, batch_id)) from e
        # 4. What only this batch's reruns needed. A crash: they find the ledger ahead of it.
        marks.forget_before(batch_id)

    def close(self) -> None:
        """Does not close the client."""
        if self._transactions is not None:
            self._transactions.close()
        self._transactions = None

    def _made_sure_of(self, batch_id: int, was_sent: bool) -> OwnerTransactions:
        """The transactions of the batch before if they have brought the ledger to this one and nothing is in
        doubt, else new ones, which begin with fencing and reading."""
        if self._transactions is None or not self._transactions.is_at(batch_id):
            self.close()
            last_seen = batch_id if was_sent else None
            claimant = Claimant(self._query_id, 0)
            self._transactions = OwnerTransactions(
                self._client, self._ledger, claimant, self._patience, last_seen
            )
        return self._transactions

    def _check(self, entry: LedgerEntry) -> None:
        check_ledger(entry, self._ledger, self._query_id, self._batch_id)


def tie_uid(
    client: KafkaClient,
    ledger: LedgerKey,
    owner: str,
    check: Callable[[LedgerEntry], None],
    patience: Patience,
) -> None:
    """Claim the ledger before anything is staged: it is this owner's, or nobody's and becomes so.

    Proves, too, that the user may write it. Raises what `check` raises.
    """
    tied = TiedClient(client, check)
    transactions = OwnerTransactions(tied, ledger, Claimant(owner, 0), patience, None)
    try:
        transactions.commit(0, [])
    finally:
        transactions.close()


class TiedClient:
    """A KafkaClient whose ledger answers only what `check` lets pass."""

    def __init__(self, client: KafkaClient, check: Callable[[LedgerEntry], None]) -> None:
        self._client = client
        self._check = check

    def read_ledger(self, ledger: LedgerKey) -> LedgerEntry | None:
        return self._checked(self._client.read_ledger(ledger))

    def newest_ledger(self, ledger: LedgerKey) -> LedgerEntry | None:
        return self._checked(self._client.newest_ledger(ledger))

    def _checked(self, entry: LedgerEntry | None) -> LedgerEntry | None:
        if entry is not None:
            self._check(entry)
        return entry

    def open_producer(self, ledger: LedgerKey) -> TransactionalProducer:
        return self._client.open_producer(ledger)

    def ensure_ledger_topic(self, topic: str) -> None:
        self._client.ensure_ledger_topic(topic)

    def describe_topics(self, topics: Sequence[str]) -> Mapping[str, TopicDescription]:
        return self._client.describe_topics(topics)

    def offsets_retention_ms(self) -> int:
        return self._client.offsets_retention_ms()

    def close(self) -> None:
        self._client.close()


def check_ledger(entry: LedgerEntry, ledger: LedgerKey, query_id: str, batch_id: int | None) -> None:
    """Raises UsageError if another query has written under it, Fatal if it is ahead of `batch_id` (None:
    no batch yet). An entry without a name was set by hand (`onceflow transactions ledger --set`):
    somebody has looked."""
    owner = owner_of(entry)
    if entry.checkpoint_id > 0 and owner not in (None, query_id):
        raise UsageError(
            f"{ledger.transactional_id} belongs to query {owner}, which has written up to batch "
            f"{entry.checkpoint_id - 1}; this query is {query_id}: it has another checkpoint folder, or its "
            "checkpoint was deleted. Nothing was written. Either give the checkpointLocation of that query, "
            "and it goes on; or give a new uid, and this query writes all that its source gives, also what "
            "the other has written"
        )
    if batch_id is not None and entry.checkpoint_id > ledger_after(batch_id):
        raise Fatal(
            f"the output of {ledger.transactional_id} is written up to batch {entry.checkpoint_id - 1}, but "
            f"this query is at batch {batch_id}: its checkpoint is an older copy, or another driver runs "
            "the same query; nothing was written. Go on from the newest checkpoint, or start with a new "
            "checkpoint folder and a new uid, which writes again what the source gives"
        )


def owner_of(entry: LedgerEntry) -> str | None:
    """Who wrote it; None: it was set by hand."""
    if not entry.metadata:
        return None
    try:
        return str(json.loads(entry.metadata)["lineage"])
    except (ValueError, KeyError, TypeError):
        return f"something else ({entry.metadata[:60]})"


def _lost(ledger: LedgerKey, batch_id: int) -> str:
    return (
        f"batch {batch_id} may have been written before, and the ledger of {ledger.transactional_id} on "
        f"topic {ledger.topic}, which knows, is gone (nothing written for longer than "
        "offsets.retention.minutes, or another cluster). Look whether the batch's rows are in the output "
        f"topic, then set the ledger by `onceflow transactions ledger --set N {ledger.transactional_id}`: N "
        f"is {ledger_after(batch_id)} if they are there, else {batch_id}"
    )
