"""What a PostgreSQL sink was told, as its parts need it."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa
from psycopg.conninfo import conninfo_to_dict, make_conninfo

from onceflow.connectors.postgres.catalog import TableName

_DEFAULTS: dict[str, Any] = {
    "connect_timeout": 10,
    "keepalives_idle": 20,  # a server that is gone without a word is noticed within a minute
    "keepalives_interval": 10,
    "keepalives_count": 3,
    "tcp_user_timeout": 60_000,
}


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
        given = conninfo_to_dict(self.conninfo)
        return make_conninfo("", **{**_DEFAULTS, **given, "application_name": application_name})
