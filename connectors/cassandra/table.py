"""The table that rows are written into: what the server's catalog says of it, whether the rows fit, and the
statements that write them. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from onceflow.connectors.cassandra.column_types import doubles_when_repeated, takes, values_of
from onceflow.connectors.versioned_upserts.backend import Piece
from onceflow.runtime.errors import Fatal

DELETES_KEPT_S_MIN = 600
"""The shortest gc_grace_seconds: how late a copy of a write may come, with a margin."""
_KEYS = ("partition_key", "clustering")


@dataclass(frozen=True, slots=True)
class Column:
    """A column of a table. `kind`: "partition_key", "clustering", "regular" or "static"; `cql`: its type."""

    name: str
    kind: str
    cql: str


@dataclass(frozen=True, slots=True)
class Table:
    """A table, as the catalog has it. `identity`: another one when it is made anew. `is_durable`:
    whether its keyspace writes a commit log."""

    keyspace: str
    name: str
    identity: str
    columns: Sequence[Column]
    deletes_kept_s: int
    is_counting: bool
    is_durable: bool

    def __str__(self) -> str:
        return f"{self.keyspace}.{self.name}"


class TableRows:
    """Writes rows of one schema into a table."""

    def __init__(self, table: Table, schema: pa.Schema, key: Sequence[str], where: str) -> None:
        """Raises Fatal, which names `where`, for the first thing that does not fit."""
        problem = _table_problem(table) or _key_problem(table, key) or _column_problem(table, schema)
        if problem:
            raise Fatal(f"{where}: {problem}")
        self._types = {column.name: column.cql for column in table.columns}
        self._names = schema.names
        self._key = [self._names.index(name) for name in key]
        place = f"{quoted(table.keyspace)}.{quoted(table.name)}"
        columns = ", ".join(map(quoted, self._names))
        marks = ", ".join("?" * len(self._names))
        self.put = f"INSERT INTO {place} ({columns}) VALUES ({marks}) USING TIMESTAMP ?"
        """Takes the values of all columns, nulls too, and the version: two writers never share a row."""
        known = " AND ".join(f"{quoted(name)} = ?" for name in key)
        self.delete = f"DELETE FROM {place} USING TIMESTAMP ? WHERE {known}"
        """Takes the version and the values of the key."""

    def values(self, piece: Piece, version: int) -> tuple[list[tuple[Any, ...]], dict[int, str]]:
        """What each row's statement takes, and why rows can't be written, by their places."""
        columns, bad = [], {}
        gone = piece.is_gone
        for n, (name, column) in enumerate(zip(self._names, piece.rows.columns, strict=True)):
            values, why = values_of(self._types[name], column)
            columns.append(values)
            for row, reason in why.items():
                if n in self._key or not gone[row]:
                    bad[row] = f"column {name!r}: {reason}"
        rows: list[tuple[Any, ...]] = []
        for is_gone, all_of_it in zip(gone, zip(*columns, strict=True), strict=True):
            key = (all_of_it[each] for each in self._key)
            rows.append((version, *key) if is_gone else (*all_of_it, version))
        return rows, bad


def quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


def _table_problem(table: Table) -> str:
    if table.is_counting:
        return f"table {table} counts, and counters have no versions: write into a table without counters"
    if not table.is_durable:
        return (
            f"keyspace {table.keyspace} has durable_writes false: rows that it has acknowledged are gone "
            "when its servers are killed, and nobody would notice: set it to true"
        )
    if table.deletes_kept_s < DELETES_KEPT_S_MIN:
        return (
            f"table {table} forgets deletes after {table.deletes_kept_s} s (gc_grace_seconds), and a late "
            "copy of a write would bring a deleted row back: say "
            f"ALTER TABLE {table} WITH gc_grace_seconds = 864000, or {DELETES_KEPT_S_MIN} at least"
        )
    return ""


def _key_problem(table: Table, key: Sequence[str]) -> str:
    own = [column.name for column in table.columns if column.kind in _KEYS]
    if set(own) == set(key):
        return ""
    return (
        f"key {', '.join(key)} is not the primary key of table {table}, which is {', '.join(own)}: a row of "
        "one would be several of the other: name just these columns"
    )


def _column_problem(table: Table, schema: pa.Schema) -> str:
    columns = {column.name: column for column in table.columns}
    for field in schema:
        column = columns.get(field.name)
        if column is None:
            return (
                f"table {table} has no column {field.name!r}: add it there, or drop it in the job (the table "
                f"has {', '.join(columns)})"
            )
        if column.kind == "static":
            return (
                f"column {field.name!r} of table {table} is static, one value for many rows: drop it in the "
                "job, or write it into a table of its own"
            )
        if doubles_when_repeated(column.cql):
            return (
                f"column {field.name!r} of table {table} is {column.cql}, whose elements are doubled by a "
                f"write that comes twice: make it frozen<{column.cql}>"
            )
        if not takes(column.cql, field.type):
            return (
                f"column {field.name!r} is {field.type} in the rows, which {column.cql} in table {table} "
                "does not hold as it is: cast it in the job, or change the table"
            )
    return ""
