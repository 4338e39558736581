"""TransactionalSink: a sink of any system that commits rows and a ledger in one step."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import pyarrow as pa

from onceflow.connectors.named_columns import check_columns, columns_given
from onceflow.connectors.staged_commits.staged_kinds import KIND, kinds_beside, with_kind
from onceflow.connectors.staged_commits.target import Target, TargetContext, TransactionalStore
from onceflow.connectors.staged_commits.writer import CommitSettings, StagedCommitsWriter
from onceflow.runtime.contracts import SinkContext
from onceflow.runtime.durations import duration_ms
from onceflow.runtime.explained_calls import explained
from onceflow.runtime.records import Records

__all__ = ["KIND", "Target", "TargetContext", "TransactionalSink", "TransactionalStore"]


@explained
@dataclass(frozen=True)
class TransactionalSink:
    """Rows to a TransactionalStore, exactly once. A Sink; its author writes a Target with `claim` and
    `commit`, and all else is here: rows wait in the checkpoint folder until their checkpoint is durable, and
    then each subtask commits its own together with its ledger.

    `key`: the column or columns that identify a row, for stores that replace rows. Then the engine brings all
    rows of a key to one subtask, updates and deletes are taken, and each row that the Target gets has its
    RowKind in a last column, KIND. `delivery_timeout`: how long the store may be away before the attempt
    fails.
    """

    store: TransactionalStore
    key: str | Sequence[str] | None = None
    delivery_timeout: str | int = "2 min"

    def __post_init__(self) -> None:
        duration_ms(self.delivery_timeout, "delivery_timeout")

    @property
    def takes_kinds(self) -> bool:
        """See ChangelogSink: without a key there is nothing to update."""
        return bool(self.partition_columns)

    @property
    def partition_columns(self) -> tuple[str, ...]:
        """See PartitionedSink."""
        return columns_given(self.key)

    @property
    def plan_note(self) -> str:
        return "exactly once: a transaction for each subtask and checkpoint, with a ledger beside the rows"

    def check(self, schema: pa.Schema, uid: str) -> None:
        check_columns("key", self.partition_columns, schema, uid)
        self.store.check(schema, uid)

    def open_writer(self, context: SinkContext) -> StagedCommitsWriter:
        schema = with_kind(context.schema) if self.takes_kinds else context.schema

        def open_target(owner: str) -> Target:
            return self.store.open_target(
                TargetContext(context.job, context.lineage, context.uid, owner, context.attempt, schema)
            )

        def staged(records: Records) -> pa.RecordBatch:
            return kinds_beside(schema, records) if self.takes_kinds else records.batch

        who = f"{type(self.store).__name__} sink"
        timeout_ms = duration_ms(self.delivery_timeout, "delivery_timeout")
        return StagedCommitsWriter(context, CommitSettings(who, open_target, timeout_ms, schema, staged))
