"""The table that is written to, as the catalog describes it."""

from __future__ import annotations

from dataclasses import dataclass

import psycopg
from psycopg import sql

from onceflow.connectors.sql_tables.table import Table, TableName


def identifier(name: TableName) -> sql.Identifier:
    return sql.Identifier(name.schema, name.name) if name.schema else sql.Identifier(name.name)


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


PostgresTable = Table[Column]

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


def find_table(connection: psycopg.Connection[tuple[object, ...]], name: TableName) -> PostgresTable | None:
    """The table, or view, of this name; None: there is none that may be seen."""
    spelled = identifier(name).as_string(connection)
    columns = [Column(*row) for row in connection.execute(_COLUMNS, (spelled,))]  # type: ignore[arg-type]
    if not columns:
        return None
    keys = [frozenset(row[0]) for row in connection.execute(_UNIQUE_KEYS, (spelled,))]  # type: ignore[call-overload]
    return Table(name, columns, keys)
