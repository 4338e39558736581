"""What a PostgreSQL sink was told, as its parts need it."""

from __future__ import annotations

from dataclasses import dataclass, field

import pyarrow as pa

from onceflow.connectors.postgres.conninfo import with_defaults
from onceflow.connectors.sql_tables.table import TableName


@dataclass(frozen=True, slots=True)
class PostgresSettings:
    """See PostgresSink, whose arguments these are."""

    conninfo: str = field(repr=False)
    table: TableName
    key: tuple[str, ...]
    ledger_table: TableName
    bad_rows: TableName | None
    create_table: bool
    schema: pa.Schema
    """The columns of the rows, and not what is staged beside them."""
    two_phase: bool = False

    def connection_string(self, application_name: str) -> str:
        """The user's, and our defaults where it says nothing."""
        return with_defaults(self.conninfo, application_name=application_name)
