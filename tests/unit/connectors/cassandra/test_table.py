"""Whether rows fit a table of Cassandra, and the statements that write them."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from onceflow.connectors.cassandra.table import Column, Table, TableRows
from onceflow.connectors.versioned_upserts.backend import Piece
from onceflow.runtime.errors import Fatal

KEY = Column("k", "partition_key", "text")
TABLE = Table("shop", "orders", "1", [KEY, Column("v", "regular", "timestamp")], 864_000, False, True)
SCHEMA = pa.schema([("v", pa.timestamp("us", "UTC")), ("k", pa.string())])


def columns(*more: Column) -> dict[str, Any]:
    return {"columns": [KEY, *more]}


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"is_counting": True}, "counts, and counters have no versions"),
        ({"is_durable": False}, "keyspace shop has durable_writes false"),
        (
            {"deletes_kept_s": 599},
            "forgets deletes after 599 s .gc_grace_seconds.*ALTER TABLE shop.orders WITH",
        ),
        (columns(Column("c", "clustering", "int")), "key k is not the primary key .* which is k, c"),
        (columns(), "has no column 'v': .*the table has k"),
        (columns(Column("v", "static", "timestamp")), "column 'v' .* is static"),
        (
            columns(Column("v", "regular", "list<text>")),
            "doubled by a write that comes twice: make it frozen<list",
        ),
        (
            columns(Column("v", "regular", "bigint")),
            r"column 'v' is timestamp.* which bigint in table shop.orders",
        ),
    ],
)
def test_what_does_not_fit_is_said_in_a_sentence(changes: dict[str, Any], says: str) -> None:
    with pytest.raises(Fatal, match=f"sink 'out': .*{says}"):
        TableRows(replace(TABLE, **changes), SCHEMA, ["k"], "sink 'out'")


def test_a_row_is_one_statement_with_all_its_columns_and_a_version() -> None:
    rows = TableRows(TABLE, SCHEMA, ["k"], "sink 'out'")
    assert rows.put == 'INSERT INTO "shop"."orders" ("v", "k") VALUES (?, ?) USING TIMESTAMP ?'
    assert rows.delete == 'DELETE FROM "shop"."orders" USING TIMESTAMP ? WHERE "k" = ?'
    batch = pa.record_batch(
        [pa.array([1_000, None, 1, 1], SCHEMA.field("v").type), pa.array([*"abcd"])], schema=SCHEMA
    )
    values, bad = rows.values(Piece([*"abcd"], np.array([False, False, False, True]), batch), 7)
    assert [values[n] for n in (0, 1, 3)] == [(1, "a", 7), (None, "b", 7), (7, "d")]
    assert bad.keys() == {2}, "what is deleted has only its key"
