"""What a MySQL sink was told, as its parts need it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa

from onceflow.connectors.sql_tables.table import TableName


@dataclass(frozen=True, slots=True)
class MySqlSettings:
    """See MySqlSink, whose arguments these are."""

    server: Mapping[str, Any] = field(repr=False)
    """What the client's `connect` is given."""
    table: TableName
    key: tuple[str, ...]
    ledger_table: TableName
    bad_rows: TableName | None
    create_table: bool
    schema: pa.Schema
    """The columns of the rows, and not what is staged beside them."""
