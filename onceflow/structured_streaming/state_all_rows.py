"""The rows of all tables of a state in one, for questions that are of no single table."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import pyarrow as pa

from onceflow.runtime.state_tables.printed_values import json_text
from onceflow.runtime.state_tables.reader import StoredTable

ALL_ROWS = pa.schema(
    [
        ("operator", pa.string()),
        ("state", pa.string()),
        ("kind", pa.string()),
        ("key", pa.string()),
        ("value", pa.string()),
    ]
)
"""`key` and `value`: JSON objects of the columns of the key, and of the others. No key: null."""


def tables_left(filters: Sequence[Any], tables: Sequence[StoredTable]) -> list[StoredTable]:
    """The tables whose rows may satisfy all of these filters of Spark's, which applies them as well."""
    names = {"operator": lambda table: table.operator, "state": lambda table: table.state}
    left = list(tables)
    for each in filters:
        path: tuple[str, ...] = getattr(each, "attribute", ())
        kind = type(each).__name__
        if len(path) == 1 and path[0] in names and kind in ("EqualTo", "In"):
            wanted = [each.value] if kind == "EqualTo" else each.value
            left = [table for table in left if names[path[0]](table) in wanted]
    return left


def all_rows_of(table: StoredTable) -> Iterator[pa.RecordBatch]:
    """The rows of a table in the columns of ALL_ROWS."""
    keys = table.key_columns.names
    others = [name for name in table.schema.names if name not in keys]
    for batch in table.batches():
        count = batch.num_rows
        yield pa.RecordBatch.from_arrays(
            [
                *(pa.repeat(name, count) for name in (table.operator, table.state, table.kind)),
                _texts(batch.select(keys)) if keys else pa.nulls(count, pa.string()),
                _texts(batch.select(others)),
            ],
            schema=ALL_ROWS,
        )


def _texts(rows: pa.RecordBatch) -> pa.Array:
    return pa.array([json_text(row) for row in rows.to_pylist()], pa.string())
