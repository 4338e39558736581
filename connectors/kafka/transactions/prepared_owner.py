"""Transactions that are prepared before their checkpoint is durable, and committed after it by anybody.

A record is written once: into a transaction that stays open until its checkpoint is complete. The checkpoint
has the transactional id, and the producer's id and epoch, which are all that it takes to commit it, from any
process. Each transaction is one producer epoch's only one, and its id is not touched again before it is known
to be over: initialising the id would abort it, and a request to commit that comes late would commit whatever
is open in the same epoch. So an owner has several ids, which it uses in turn, and each attempt has its own:
one that was believed dead may still fence those before it, and would abort what a newer one has promised. A
ledger of each id, an offset in the transaction, tells whether one that the broker has forgotten was
committed.

| crash                               | recovery                                                          |
| ----------------------------------- | ----------------------------------------------------------------- |
| ahead of the checkpoint             | all ids of earlier attempts are fenced: it aborts                 |
| prepared, the checkpoint is durable | commit by id and epoch                                            |
| commit sent, reply lost             | commit again: the broker says the same, or that a newer producer  |
|                                     | has the id: the ledger has it                                     |
| committed, not recorded             | the same                                                          |
| the broker has aborted it meanwhile | the ledger does not have it: the records are lost, and said so    |
| an older attempt still lives        | its ids are fenced, and it knows none of a newer one; it finds    |
|                                     | the claim of the newer one in the owner's own ledger, and goes    |

The protocol is that of Flink's KafkaSink (FLIP-143), with a ledger beside it: Flink takes a transaction that
the broker does not know any more for committed.

No I/O but through TwoPhaseClient, no clock but through Patience: the fake broker runs this very code.
"""

from __future__ import annotations

import contextlib
from collections.abc import Collection, Sequence

from onceflow.connectors.kafka.client import LedgerEntry, LedgerKey, TwoPhaseClient
from onceflow.connectors.kafka.transactions.owner import Claimant, OwnerTransactions
from onceflow.connectors.kafka.transactions.prepared_promise import PreparedPromise, PreparedTransaction
from onceflow.connectors.waiting import Patience, patiently
from onceflow.runtime.errors import DataLossError, Fatal, Fenced

IDS = 8
"""How many transactional ids an attempt has for an owner. One transaction is being written, one is prepared
for a checkpoint under way, one is being committed; the others are for checkpoints in a row that are not
completed."""
ZOMBIES = 4
"""The attempts that are fenced at least: one that was believed dead may have begun another transaction after
the attempt that took the checkpoint had fenced it."""
_ATTEMPTS_MAX = 100
"""How many attempts back is looked, where no checkpoint tells which of them took it. What older ones have
left open has timed out."""


class PreparedOwner:
    """The transactional ids of one owner in one attempt. One thread at a time."""

    def __init__(
        self, client: TwoPhaseClient, owner: LedgerKey, claimant: Claimant, patience: Patience
    ) -> None:
        self._client = client
        self._owner = owner
        self._claimant = claimant
        self._attempt = claimant.attempt
        self._patience = patience

    def ids_of(self, attempt: int) -> Sequence[LedgerKey]:
        """The transactional ids that an attempt uses, and their ledgers."""
        base = f"{self._owner.transactional_id}.{attempt}"
        return [LedgerKey(f"{base}.{number}", self._owner.topic) for number in range(IDS)]

    def free(self, used: Collection[str]) -> LedgerKey | None:
        """An id of this attempt that is none of these. None: all are used."""
        return next((each for each in self.ids_of(self._attempt) if each.transactional_id not in used), None)

    def settle(self, promised: PreparedPromise | None, restored_checkpoint_id: int) -> None:
        """Claim the output for this attempt, commit what the restored checkpoint promises, then fence all
        earlier attempts: what they have left open otherwise is aborted. Once per attempt. Raises Fenced if a
        newer attempt has claimed it, DataLossError where a promised transaction is gone, and Fatal if output
        of a later checkpoint is committed: it would be written again."""
        claim = OwnerTransactions(self._client, self._owner, self._claimant, self._patience, None)
        with contextlib.closing(claim):
            claim.claim(restored_checkpoint_id)
        for transaction in promised.transactions if promised else ():
            self.commit(transaction)
        self.end_earlier(promised, restored_checkpoint_id)

    def end_earlier(self, promised: PreparedPromise | None, restored_checkpoint_id: int) -> None:
        """The last part of `settle`, and all of it for output that is staged again after a time of prepared
        transactions: fence all earlier attempts, and look whether later output is committed."""
        since = max(1, promised.attempt if promised else self._attempt - _ATTEMPTS_MAX)
        fenced = self._ids_since(max(1, min(since, self._attempt - ZOMBIES)))
        patiently(self._patience, lambda: self._client.fence([each.transactional_id for each in fenced]))
        later = self._ids_since(since)
        entries = patiently(self._patience, lambda: self._client.read_ledgers(later))
        latest = max((entry.checkpoint_id for entry in entries if entry is not None), default=0)
        if latest > restored_checkpoint_id:
            raise Fatal(
                f"the output of {self._owner.transactional_id} is committed up to checkpoint {latest}, but "
                f"the job starts from checkpoint {restored_checkpoint_id}: it would write that output again. "
                f"Start from checkpoint {latest} or later, accept it with --accept-duplicates-after "
                f"{restored_checkpoint_id}, or use a new checkpoint folder"
            )

    def _ids_since(self, attempt: int) -> Sequence[LedgerKey]:
        return [each for number in range(attempt, self._attempt) for each in self.ids_of(number)]

    def check_claim(self) -> None:
        """Raises Fenced if a newer attempt has claimed the output. No checkpoint of an attempt is completed
        then, so nobody should tell it to commit; but if somebody does, nothing comes of it."""
        entry = patiently(self._patience, lambda: self._client.read_ledger(self._owner))
        if entry is not None and self._claimant.is_superseded_by(entry):
            raise Fenced(f"a newer attempt writes {self._owner.transactional_id}: {entry.metadata}")

    def commit(self, transaction: PreparedTransaction) -> None:
        """Returns when it is known to be committed. Its checkpoint is durable."""
        name, identity = transaction.transactional_id, transaction.identity
        if patiently(self._patience, lambda: self._client.commit_prepared(name, identity)):
            return
        # The id may have been used again: the ledger can't be read while that transaction is open. No
        # checkpoint has promised it, since one that did would not promise this one any more.
        patiently(self._patience, lambda: self._client.fence([name]))
        ledger = LedgerKey(name, self._owner.topic)
        (entry,) = patiently(self._patience, lambda: self._client.read_ledgers([ledger]))
        if not self._is_committed(transaction, entry):
            raise DataLossError(_lost(transaction))

    @staticmethod
    def _is_committed(transaction: PreparedTransaction, entry: LedgerEntry | None) -> bool:
        """A later one's entry tells it, too: an id is used again only when it is free."""
        return entry is not None and entry.checkpoint_id >= transaction.checkpoint_id


def _lost(transaction: PreparedTransaction) -> str:
    lost, name = transaction.checkpoint_id, transaction.transactional_id
    return (
        f"{transaction.rows} records of checkpoint {lost} are lost: the broker has aborted their transaction "
        f"{name} before it was committed, since the job was away for longer than transaction_timeout, or "
        "somebody has used the id. To write them again, go on from the last checkpoint before that: "
        "`onceflow checkpoints` lists them, and --from N --accept-duplicates-after N starts from it. To go "
        f"on without them: `onceflow transactions ledger --set {lost} {name}`, and start the job again"
    )
