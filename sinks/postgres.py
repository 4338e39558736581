"""PostgresSink: rows into a table of PostgreSQL, exactly once: appended, or updated and deleted by key."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import pyarrow as pa

from onceflow.connectors.extras import needs_extra
from onceflow.connectors.named_columns import check_columns, columns_given, how_rows_go
from onceflow.connectors.sql_tables.options import LEDGER_TABLE, check_names, commit_settings
from onceflow.connectors.sql_tables.table import TableName
from onceflow.connectors.staged_commits.writer import CommitSettings, StagedCommitsWriter
from onceflow.runtime.contracts import SinkContext, SinkWriter
from onceflow.runtime.durations import duration_ms
from onceflow.runtime.errors import OptionError
from onceflow.runtime.explained_calls import explained

if TYPE_CHECKING:
    from onceflow.connectors.postgres.settings import PostgresSettings
    from onceflow.connectors.postgres.target import PostgresTarget


@explained
@dataclass(frozen=True, slots=True)
class PostgresSink:
    """Writes each row into `table` ("orders" or "shop.orders"), by the columns' names. A Sink; opens nothing
    when it is made. Needs `pip install 'onceflow[postgres]'`.

    A checkpoint's rows wait in the checkpoint folder until it is durable. Then each subtask writes its own in
    one transaction, together with a row of `ledger_table` that says so: whatever is killed when, each row
    is there once, and nothing of an aborted checkpoint is ever seen.

    `url`: "postgresql://user@host/database" or "host=... dbname=...", as psql takes it; a password is better
    left to PGPASSWORD, PGPASSFILE or a service file, which are read in the slots.

    `key`: the column or columns that identify a row. Without one rows are appended. With one a row replaces
    the one with its key (INSERT ... ON CONFLICT), deletes of a changelog delete it, and the last row of a
    key in a checkpoint counts; the table needs a unique index on just these columns, and the engine brings
    all rows of a key to one subtask.

    `bad_rows_to`: a table for rows that `table` refuses (a violated constraint, a value that is out of
    range), with the reason; it is created if it is not there, and written in the same transaction. Without
    it such a row ends the job and is named. `create_table`: create `table` if it is not there.
    `two_phase`: a subtask's rows go to the database when the barrier comes, in a transaction that is
    prepared there, and committed when the checkpoint is durable; up to 16 MiB of them are never in the
    checkpoint folder. For rows that are appended, to columns that COPY takes as they are.
    `delivery_timeout`: how long the database may be away before the attempt fails.
    """

    url: str = field(repr=False)
    table: str
    key: str | Sequence[str] | None = None
    bad_rows_to: str | None = None
    create_table: bool = False
    ledger_table: str = LEDGER_TABLE
    delivery_timeout: str | int = "2 min"
    two_phase: bool = False

    def __post_init__(self) -> None:
        duration_ms(self.delivery_timeout, "delivery_timeout")
        texts = {"url": self.url, "table": self.table, "ledger_table": self.ledger_table}
        check_names("PostgresSink", texts, self.table, (self.ledger_table, self.bad_rows_to))
        if self.two_phase and self.partition_columns:
            raise OptionError(
                "PostgresSink: two_phase=True appends only, since by key rows go through a temporary table, "
                "which PostgreSQL refuses to prepare: leave out key or two_phase"
            )
        _settings_type()

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
        prepared = "prepared " if self.two_phase else ""
        how = how_rows_go(self.partition_columns)
        return f"exactly once: {how}, a {prepared}transaction for each subtask and checkpoint"

    def check(self, schema: pa.Schema, uid: str) -> None:
        check_columns("key", self.partition_columns, schema, uid)

    def open_writer(self, context: SinkContext) -> SinkWriter:
        if self.two_phase:
            from onceflow.connectors.postgres.two_phase import TwoPhaseWriter

            timeout_ms = duration_ms(self.delivery_timeout, "delivery_timeout")
            return TwoPhaseWriter(context, self._opens_targets(context), timeout_ms)
        return StagedCommitsWriter(context, self.commit_settings(context))

    def commit_settings(self, context: SinkContext) -> CommitSettings:
        """See TargetSink."""
        open_target = self._opens_targets(context)
        timeout_ms = duration_ms(self.delivery_timeout, "delivery_timeout")
        has_key = bool(self.partition_columns)
        return commit_settings("PostgreSQL sink", open_target, timeout_ms, context.schema, has_key)

    def _opens_targets(self, context: SinkContext) -> Callable[[str], PostgresTarget]:
        from onceflow.connectors.postgres.target import PostgresTarget
        from onceflow.connectors.sql_tables.ledger_owner import LedgerOwner

        settings = self._settings(context.schema)

        def open_target(owner: str) -> PostgresTarget:
            names = (context.lineage, context.uid, owner, context.job)
            return PostgresTarget(settings, LedgerOwner(*names, context.attempt))

        return open_target

    def _settings(self, schema: pa.Schema) -> PostgresSettings:
        table = TableName.of(self.table)
        return _settings_type()(
            conninfo=self.url,
            table=table,
            key=self.partition_columns,
            ledger_table=table.beside(self.ledger_table),
            bad_rows=table.beside(self.bad_rows_to) if self.bad_rows_to else None,
            create_table=self.create_table,
            schema=schema,
            two_phase=self.two_phase,
        )


def _settings_type() -> type[PostgresSettings]:
    """Raises UsageError if the packages are not there."""
    with needs_extra("PostgresSink", "postgres"):
        import pgpq  # noqa: F401

        from onceflow.connectors.postgres.settings import PostgresSettings
    return PostgresSettings
