"""The table that is written to, as the server describes it, and what it has to be besides."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import pymysql

from onceflow.connectors.sql_tables.table import Table, TableName
from onceflow.runtime.errors import Fatal

Connection: TypeAlias = "pymysql.Connection[Any]"


@dataclass(frozen=True, slots=True)
class Column:
    """A column of the table."""

    name: str
    type: str
    """Its type's name, as in int."""
    declared: str
    """The type as people write it, as in int(10) unsigned."""
    is_nullable: bool
    is_required: bool
    is_generated: bool
    is_auto: bool
    """AUTO_INCREMENT."""
    characters: int | None
    bytes: int | None
    """How much a text takes."""
    precision: int | None
    scale: int | None
    fraction: int
    """Digits of a second."""
    collation: str


@dataclass(frozen=True, slots=True)
class UniqueIndex:
    """`is_whole`: it is on columns, and not on their beginnings or on an expression."""

    name: str
    columns: frozenset[str]
    is_whole: bool


@dataclass(frozen=True, slots=True)
class MySqlTable:
    """What is there. `engine`: empty for a view."""

    table: Table[Column]
    indexes: Sequence[UniqueIndex]
    engine: str
    is_transactional: bool


_TABLE = """
    SELECT coalesce(t.engine, ''), coalesce(e.transactions, '') = 'YES'
    FROM information_schema.tables t LEFT JOIN information_schema.engines e ON e.engine = t.engine
    WHERE t.table_schema = coalesce(%s, database()) AND t.table_name = %s
"""
_COLUMNS = """
    SELECT column_name, lower(data_type), column_type, is_nullable, column_default, extra,
           character_maximum_length, character_octet_length, numeric_precision, numeric_scale,
           datetime_precision, coalesce(collation_name, ''),
           coalesce(generation_expression, '') <> ''
    FROM information_schema.columns
    WHERE table_schema = coalesce(%s, database()) AND table_name = %s ORDER BY ordinal_position
"""
_INDEXES = """
    SELECT index_name, coalesce(column_name, ''), sub_part IS NULL AND column_name IS NOT NULL
    FROM information_schema.statistics
    WHERE table_schema = coalesce(%s, database()) AND table_name = %s AND non_unique = 0
    ORDER BY index_name, seq_in_index
"""


def quoted(name: str) -> str:
    return "`" + name.replace("`", "``") + "`"


def identifier(name: TableName) -> str:
    return f"{quoted(name.schema)}.{quoted(name.name)}" if name.schema else quoted(name.name)


def rows_of(connection: Connection, query: str, values: Sequence[Any] = ()) -> Sequence[tuple[Any, ...]]:
    """What a query gives."""
    with connection.cursor() as cursor:
        cursor.execute(query, tuple(values))
        found: Sequence[tuple[Any, ...]] = cursor.fetchall()
        return found


def find_table(connection: Connection, name: TableName) -> MySqlTable | None:
    """The table, or view, of this name; None: there is none that may be seen."""
    place = (name.schema or None, name.name)
    found = rows_of(connection, _TABLE, place)
    if not found:
        return None
    ((engine, is_transactional),) = found
    columns = [_column(row) for row in rows_of(connection, _COLUMNS, place)]
    parts: dict[str, list[tuple[str, bool]]] = {}
    for index, column, is_whole in rows_of(connection, _INDEXES, place):
        parts.setdefault(index, []).append((column, bool(is_whole)))
    indexes = [
        UniqueIndex(index, frozenset(name for name, _ in of), all(is_whole for _, is_whole in of))
        for index, of in parts.items()
    ]
    table = Table(name, columns, [index.columns for index in indexes if index.is_whole])
    return MySqlTable(table, indexes, engine, bool(is_transactional))


def check_transactional(found: MySqlTable, where: str) -> None:
    """Raises Fatal if a part of a commit could stay that is rolled back."""
    if found.is_transactional:
        return
    name = found.table.name
    if not found.engine:
        raise Fatal(
            f"{where}: {name} is a view, and what is below it may have no transactions: name the table itself"
        )
    raise Fatal(
        f"{where}: table {name} has the engine {found.engine}, which has no transactions, so rows of a "
        f"commit that fails would stay: ALTER TABLE {name} ENGINE=InnoDB"
    )


def check_key(found: MySqlTable, key: Sequence[str], written: Sequence[str], where: str) -> None:
    """Raises Fatal if ON DUPLICATE KEY UPDATE could change a row of another key: it looks at all unique
    indexes, and compares texts as the collation does."""
    name = found.table.name
    for index in found.indexes:
        made = [column for column in index.columns if column not in written]
        is_fresh = any((of := found.table.column(column)) is not None and of.is_auto for column in made)
        if index.columns != frozenset(key) and not is_fresh:
            raise Fatal(
                f"{where}: rows are written by key {', '.join(key)}, and table {name} has another unique "
                f"index, {index.name}: a row that collides there would change a row of another key. Drop "
                "that index, or write by its columns"
            )
    for each in key:
        column = found.table.column(each)
        if column is not None and column.collation and not _tells_all_apart(column.collation):
            raise Fatal(
                f"{where}: key column {each!r} of table {name} has the collation {column.collation}, for "
                "which different keys are the same (as A and a): give it one that ends in _bin, as "
                "utf8mb4_bin"
            )


def _tells_all_apart(collation: str) -> bool:
    return collation.endswith("_bin") or collation == "binary"


def _column(row: Sequence[Any]) -> Column:
    name, of, declared, nullable, default, extra = row[:6]
    characters, size, precision, scale, fraction = (None if n is None else int(n) for n in row[6:11])
    collation, is_generated = row[11:]
    is_nullable, is_auto = nullable == "YES", "auto_increment" in extra.lower()
    has_default = default is not None or is_auto or bool(is_generated)
    return Column(
        name=name,
        type=of,
        declared=declared,
        is_nullable=is_nullable,
        is_required=not is_nullable and not has_default,
        is_generated=bool(is_generated),
        is_auto=is_auto,
        characters=characters,
        bytes=size,
        precision=precision,
        scale=scale,
        fraction=fraction or 0,
        collation=collation,
    )
