"""The table that is written to, as the catalog describes it, and what it has to be for a sink."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import psycopg
from psycopg import sql

from onceflow.runtime.errors import Fatal


@dataclass(frozen=True, slots=True)
class TableName:
    """A table and its schema; empty: the first in the search path that has it."""

    schema: str
    name: str

    @staticmethod
    def of(text: str) -> TableName:
        """`table` or `schema.table`, as they are spelled in the catalog: nothing is folded to lower case."""
        schema, _, name = text.rpartition(".")
        return TableName(schema, name)

    def identifier(self) -> sql.Identifier:
        return sql.Identifier(self.schema, self.name) if self.schema else sql.Identifier(self.name)

    def beside(self, name: str) -> TableName:
        """A table in the same schema, unless it names its own."""
        other = TableName.of(name)
        return other if other.schema else TableName(self.schema, other.name)

    def __str__(self) -> str:
        return f"{self.schema}.{self.name}" if self.schema else self.name


@dataclass(frozen=True, slots=True)
class Column:
    """A column of the table."""

    name: str
    type: str
    """Its type's own name, as in int4; of a domain, that below it."""
    declared: str
    """The type as people write it, as in numeric(10,2)."""
    element: str
    """What an array has; empty for all else."""
    is_enum: bool
    is_required: bool
    """NOT NULL without a default."""
    is_generated: bool


@dataclass(frozen=True, slots=True)
class Table:
    """What is there."""

    name: TableName
    columns: Sequence[Column]
    unique_keys: Sequence[frozenset[str]]
    """The columns of each unique index that holds for all rows and can be checked at once."""

    def column(self, name: str) -> Column | None:
        return next((column for column in self.columns if column.name == name), None)


_COLUMNS = """
    SELECT a.attname, coalesce(b.typname, t.typname), format_type(a.atttypid, a.atttypmod),
           coalesce(e.typname, ''), coalesce(b.typtype, t.typtype) = 'e',
           a.attnotnull AND NOT a.atthasdef AND a.attidentity = '', a.attgenerated <> ''
    FROM pg_attribute a JOIN pg_type t ON t.oid = a.atttypid
    LEFT JOIN pg_type b ON t.typtype = 'd' AND b.oid = t.typbasetype
    LEFT JOIN pg_type e ON t.typcategory = 'A' AND e.oid = t.typelem
    WHERE a.attrelid = to_regclass(%s) AND a.attnum > 0 AND NOT a.attisdropped
    ORDER BY a.attnum
"""
_UNIQUE_KEYS = """
    SELECT array_agg(a.attname::text)
    FROM pg_index i JOIN pg_attribute a ON a.attrelid = i.indrelid AND a.attnum = ANY (i.indkey)
    WHERE i.indrelid = to_regclass(%s) AND i.indisunique AND i.indimmediate AND i.indisvalid
          AND i.indpred IS NULL AND i.indexprs IS NULL
    GROUP BY i.indexrelid
"""


def find_table(connection: psycopg.Connection[tuple[object, ...]], name: TableName) -> Table | None:
    """The table, or view, of this name; None: there is none that may be seen."""
    spelled = name.identifier().as_string(connection)
    columns = [Column(*row) for row in connection.execute(_COLUMNS, (spelled,))]  # type: ignore[arg-type]
    if not columns:
        return None
    keys = [frozenset(row[0]) for row in connection.execute(_UNIQUE_KEYS, (spelled,))]  # type: ignore[call-overload]
    return Table(name, columns, keys)


def check_table(table: Table, written: Sequence[str], key: Sequence[str], where: str) -> None:
    """Raises Fatal if rows with these columns can't be written, or not by this key."""
    for name in written:
        column = table.column(name)
        if column is None:
            names = ", ".join(each.name for each in table.columns)
            raise Fatal(f"{where}: table {table.name} has no column {name!r}; it has {names}")
        if column.is_generated:
            raise Fatal(
                f"{where}: column {name!r} of table {table.name} is generated: leave it out of the rows"
            )
    for column in table.columns:
        if column.is_required and column.name not in written:
            raise Fatal(
                f"{where}: column {column.name!r} of table {table.name} is NOT NULL without a default, and "
                "the rows have no such column: give the column a default, or the rows the column"
            )
    if key and frozenset(key) not in table.unique_keys:
        raise Fatal(
            f"{where}: rows are written by key {', '.join(key)}, and table {table.name} has no unique index "
            f"on just that: CREATE UNIQUE INDEX ON {table.name} ({', '.join(key)})"
        )
