"""What a restored checkpoint promises of a sink that was changed since: from output that is staged to
transactions that are prepared, or back."""

from __future__ import annotations

import contextlib

from onceflow.connectors.kafka.client import KafkaClient, LedgerKey, TwoPhaseClient
from onceflow.connectors.kafka.transactions.held import RestoredOutput
from onceflow.connectors.kafka.transactions.owner import Claimant, OwnerTransactions
from onceflow.connectors.kafka.transactions.prepared_owner import PreparedOwner
from onceflow.connectors.kafka.transactions.prepared_promise import PreparedPromise
from onceflow.connectors.kafka.transactions.promise import Promise
from onceflow.connectors.waiting import Patience
from onceflow.runtime.contracts import Committable, SinkContext
from onceflow.runtime.errors import Fatal


def settle_staged(
    committable: Committable,
    context: SinkContext,
    client: KafkaClient,
    claimant: Claimant,
    patience: Patience,
) -> LedgerKey:
    """Make visible what a checkpoint has staged, and fence the attempts that did it; the owner's name. Raises
    what OwnerTransactions raises."""
    promise = Promise.of(committable)
    owner = OwnerTransactions(client, promise.ledger, claimant, patience, promise.last_seen)
    with contextlib.closing(owner):
        owner.claim(context.restored_checkpoint_id)
        outputs = [RestoredOutput(output, context.files) for output in promise.outputs]
        if outputs:
            owner.commit(committable.checkpoint_id, outputs)
    return promise.ledger


def settle_prepared(
    committable: Committable,
    context: SinkContext,
    client: KafkaClient,
    claimant: Claimant,
    patience: Patience,
) -> LedgerKey:
    """Commit what a checkpoint has prepared, and fence the attempts that did it; the owner's name. Raises
    what PreparedOwner raises."""
    if not isinstance(client, TwoPhaseClient):
        raise Fatal(
            f"checkpoint {committable.checkpoint_id} has output of sink {committable.uid!r} in transactions "
            "that are prepared, which can't be committed from here: start the job once as it was"
        )
    promise = PreparedPromise.of(committable)
    owner = PreparedOwner(client, promise.owner, claimant, patience)
    owner.settle(promise, context.restored_checkpoint_id)
    return promise.owner


def check_prepared(
    owner: LedgerKey, context: SinkContext, client: KafkaClient, claimant: Claimant, patience: Patience
) -> None:
    """For a start from staged output behind which transactions were prepared and committed, of which the
    owner's ledger knows nothing. Raises Fatal if one of them is later than the restored checkpoint: its
    output would be written again."""
    if isinstance(client, TwoPhaseClient):  # what has prepared them had such a one
        restored = context.restored_checkpoint_id
        PreparedOwner(client, owner, claimant, patience).end_earlier(None, restored)
