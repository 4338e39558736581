"""MySqlSink: rows into a table of MySQL or MariaDB, exactly once: appended, or updated and deleted by key."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import pyarrow as pa

from onceflow.connectors.extras import needs_extra
from onceflow.connectors.named_columns import check_columns, columns_given, how_rows_go
from onceflow.connectors.sql_tables.ledger_owner import LedgerOwner
from onceflow.connectors.sql_tables.options import LEDGER_TABLE, check_names, commit_settings
from onceflow.connectors.sql_tables.table import TableName
from onceflow.connectors.sql_tables.target import Output, SqlTarget
from onceflow.connectors.staged_commits.target import Target
from onceflow.connectors.staged_commits.writer import CommitSettings, StagedCommitsWriter
from onceflow.runtime.contracts import SinkContext, SinkWriter
from onceflow.runtime.durations import duration_ms
from onceflow.runtime.explained_calls import explained

if TYPE_CHECKING:
    from onceflow.connectors.mysql.settings import MySqlSettings


@explained
@dataclass(frozen=True, slots=True)
class MySqlSink:
    """Writes each row into `table` ("orders" or "shop.orders"), by the columns' names. A Sink; opens nothing
    when it is made. Needs `pip install 'onceflow[mysql]'`.

    A checkpoint's rows wait in the checkpoint folder until it is durable. Then each subtask writes its own in
    one transaction, together with a row of `ledger_table` that says so: whatever is killed when, each row
    is there once, and nothing of an aborted checkpoint is ever seen.

    `url`: "mysql://user@host:3306/database"; a password is better left to MYSQL_PWD, or to an option file
    ("?read_default_file=/etc/onceflow.cnf"), which are read in the slots. TLS by "?ssl_ca=...".

    `key`: the column or columns that identify a row. Without one rows are appended. With one a row replaces
    the one with its key (INSERT ... ON DUPLICATE KEY UPDATE), deletes of a changelog delete it, and the last
    row of a key in a checkpoint counts; the table needs a unique index on just these columns and no other
    that rows could collide in, and the engine brings all rows of a key to one subtask.

    `bad_rows_to`: a table for rows that `table` refuses (a violated constraint, a value that is out of range
    or would be changed), with the reason; it is created if it is not there, and written in the same
    transaction. Without it such a row ends the job and is named. `create_table`: create `table` if it is not
    there. `delivery_timeout`: how long the database may be away before the attempt fails.
    """

    url: str = field(repr=False)
    table: str
    key: str | Sequence[str] | None = None
    bad_rows_to: str | None = None
    create_table: bool = False
    ledger_table: str = LEDGER_TABLE
    delivery_timeout: str | int = "2 min"

    def __post_init__(self) -> None:
        duration_ms(self.delivery_timeout, "delivery_timeout")
        texts = {"url": self.url, "table": self.table, "ledger_table": self.ledger_table}
        check_names("MySqlSink", texts, self.table, (self.ledger_table, self.bad_rows_to))
        self._settings(pa.schema([]))

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
        how = how_rows_go(self.partition_columns)
        return f"exactly once: {how}, a transaction for each subtask and checkpoint"

    def check(self, schema: pa.Schema, uid: str) -> None:
        check_columns("key", self.partition_columns, schema, uid)

    def open_writer(self, context: SinkContext) -> SinkWriter:
        return StagedCommitsWriter(context, self.commit_settings(context))

    def commit_settings(self, context: SinkContext) -> CommitSettings:
        """See TargetSink."""
        from onceflow.connectors.mysql.session import MySqlDialect

        settings = self._settings(context.schema)
        output = Output(context.uid, settings.table, settings.bad_rows is not None)

        def open_target(owner: str) -> Target:
            names = (context.lineage, context.uid, owner, context.job)
            return SqlTarget(MySqlDialect(settings, LedgerOwner(*names, context.attempt)), output)

        timeout_ms = duration_ms(self.delivery_timeout, "delivery_timeout")
        return commit_settings("MySQL sink", open_target, timeout_ms, context.schema, bool(settings.key))

    def _settings(self, schema: pa.Schema) -> MySqlSettings:
        """Raises UsageError if the package is not there, OptionError if the URL can't be used."""
        with needs_extra("MySqlSink", "mysql"):
            import pymysql  # noqa: F401

        from onceflow.connectors.mysql.server_url import connection_arguments
        from onceflow.connectors.mysql.settings import MySqlSettings

        table = TableName.of(self.table)
        return MySqlSettings(
            server=connection_arguments(self.url),
            table=table,
            key=self.partition_columns,
            ledger_table=table.beside(self.ledger_table),
            bad_rows=table.beside(self.bad_rows_to) if self.bad_rows_to else None,
            create_table=self.create_table,
            schema=schema,
        )
