"""What a server has to have, so that changes of a table can be read: each thing that lacks is one
sentence."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from psycopg.rows import dict_row

from onceflow.connectors.postgres.catalog import PostgresTable, find_table, identifier
from onceflow.connectors.postgres_cdc.settings import CdcSettings, Connection
from onceflow.connectors.postgres_cdc.text_columns import check_column
from onceflow.runtime.errors import Fatal
from onceflow.runtime.nearest import nearest

_VERSION_MIN = 140_000
_NUMBERS = frozenset({"int2", "int4", "int8"})
_TABLE = """
    SELECT c.relkind::text, c.relreplident::text, c.relpersistence::text,
           (SELECT i.indexrelid FROM pg_index i WHERE i.indrelid = c.oid AND i.indisprimary) IS NOT DISTINCT
           FROM (SELECT i.indexrelid FROM pg_index i WHERE i.indrelid = c.oid AND i.indisreplident)
    FROM pg_class c WHERE c.oid = %s::regclass
"""
_KEY = """
    SELECT a.attname FROM pg_index i
    CROSS JOIN unnest(i.indkey) WITH ORDINALITY AS k (number, place)
    JOIN pg_attribute a ON a.attrelid = i.indrelid AND a.attnum = k.number
    WHERE i.indrelid = %s::regclass AND i.indisprimary ORDER BY k.place
"""


def check_server(connection: Connection, settings: CdcSettings) -> None:
    """Raises Fatal for a server from which changes can't be read."""
    if connection.info.server_version < _VERSION_MIN:
        raise Fatal(
            f"{settings.where}: PostgreSQL {connection.info.server_version // 10_000} is too old: use 14 or "
            "newer"
        )
    (level,) = _one(connection, "SHOW wal_level")
    if level != "logical":
        raise Fatal(
            f"{settings.where}: the server has wal_level={level}, and its log has no rows: set "
            "wal_level=logical and start it again"
        )
    if _one(connection, "SELECT pg_is_in_recovery()")[0]:
        raise Fatal(
            f"{settings.where}: the server is a standby, which has no such slots: give the primary's url"
        )


def check_table(connection: Connection, settings: CdcSettings) -> tuple[tuple[str, ...], tuple[bool, ...]]:
    """The columns of its primary key, and which of them are numbers. Raises Fatal for a table that does not
    fit."""
    where = settings.where
    table = find_table(connection, settings.table)
    if table is None:
        raise Fatal(f"{where} is not there, or the role may not see it: create it, or give another table=")
    spelled = identifier(settings.table).as_string(connection)
    kind, identity, persistence, is_key_identity = _one(connection, _TABLE, spelled)
    if kind not in "rp" or persistence != "p":
        raise Fatal(f"{where} is no ordinary table, and has no changes in the log: give another table=")
    for field in settings.schema:
        column = table.column(field.name)
        if column is None:
            names = [each.name for each in table.columns]
            raise Fatal(
                f"{where} has no column {field.name!r}; it has {', '.join(names)}{nearest(field.name, names)}"
            )
        if column.is_generated:
            raise Fatal(f"{where}: column {field.name!r} is generated, and not in the log: leave it out")
        check_column(field, column, where)
    key = tuple(row[0] for row in connection.execute(_KEY, (spelled,)))
    if settings.reads_table and not key:
        raise Fatal(
            f'{where} has no primary key, in whose order it could be read: give it one, or say start="slot" '
            "for its changes only"
        )
    is_whole = identity == "f"
    if not is_whole and not (key and (identity == "d" or (identity == "i" and is_key_identity))):
        raise Fatal(
            f"{where}: its replica identity does not tell which row was changed: set it with ALTER "
            f"TABLE {spelled} REPLICA IDENTITY FULL"
        )
    if not is_whole:
        _check_rows_without_before(settings, key, spelled)
    return key, _are_numbers(settings, table, key)


def check_publication(connection: Connection, settings: CdcSettings) -> None:
    """Raises Fatal if the publication does not have all changes of the table, which is there."""
    where, name = settings.where, settings.publication
    with connection.cursor(row_factory=dict_row) as cursor:
        found = cursor.execute("SELECT * FROM pg_publication WHERE pubname = %s", (name,)).fetchone()
        if found is None:
            raise Fatal(
                f"{where}: there is no publication {name!r}: CREATE PUBLICATION {name} FOR TABLE "
                f"{settings.table}, as its owner"
            )
        table = cursor.execute(
            "SELECT * FROM pg_publication_tables WHERE pubname = %s AND schemaname = %s AND tablename = %s",
            (name, settings.table.schema, settings.table.name),
        ).fetchone()
    if missing := [what for what in ("insert", "update", "delete") if not found[f"pub{what}"]]:
        raise Fatal(
            f"{where}: publication {name!r} leaves out each {missing[0]}: ALTER PUBLICATION {name} SET "
            "(publish = 'insert, update, delete, truncate')"
        )
    if table is None:
        raise Fatal(
            f"{where} is not in publication {name!r}: ALTER PUBLICATION {name} ADD TABLE {settings.table}; "
            "of a partitioned table also SET (publish_via_partition_root)"
        )
    if table.get("rowfilter"):
        raise Fatal(
            f"{where}: publication {name!r} has a WHERE for it, and the table would be read without: filter "
            "in the job, and leave WHERE out of the publication"
        )
    published = table.get("attnames")
    if published is not None and (missing := [n for n in settings.schema.names if n not in published]):
        raise Fatal(
            f"{where}: publication {name!r} leaves out column {missing[0]!r}: add it to the publication's "
            "columns"
        )


def check_slot(connection: Connection, settings: CdcSettings) -> dict[str, Any] | None:
    """The slot's row of pg_replication_slots; None: it is not there. Raises Fatal for one of another kind."""
    with connection.cursor(row_factory=dict_row) as cursor:
        found = cursor.execute(
            "SELECT *, database = current_database() AS is_here FROM pg_replication_slots WHERE slot_name = "
            "%s",
            (settings.slot,),
        ).fetchone()
    if found is not None and (found["plugin"] != "pgoutput" or not found["is_here"]):
        raise Fatal(
            f"{settings.where}: replication slot {settings.slot!r} is of another kind (plugin "
            f"{found['plugin']}, database {found['database']}): give another slot="
        )
    return found


def _check_rows_without_before(settings: CdcSettings, key: Sequence[str], spelled: str) -> None:
    """Raises Fatal for what a table can't give whose log has only the key of what was deleted or updated."""
    if settings.needs_before:
        raise Fatal(
            f"{settings.where}: its log does not have rows as they were before an update or a delete: ALTER "
            "TABLE "
            f'{spelled} REPLICA IDENTITY FULL, or say before="optional" if what follows goes by the key alone'
        )
    for field in settings.schema:
        if field.name not in key and not field.nullable:
            raise Fatal(
                f"{settings.where}: a delete has its key only, and field {field.name!r} may not be null: "
                f"make it optional, or ALTER TABLE {spelled} REPLICA IDENTITY FULL"
            )


def _are_numbers(settings: CdcSettings, table: PostgresTable, key: Sequence[str]) -> tuple[bool, ...]:
    types = [column.type for name in key if (column := table.column(name)) is not None]
    if settings.reads_table and "bpchar" in types:
        raise Fatal(
            f"{settings.where}: its primary key has a column of type character(n), whose spaces count for "
            "nothing: "
            'make it varchar, or say start="slot" for its changes only'
        )
    return tuple(each in _NUMBERS for each in types)


def _one(connection: Connection, query: str, *arguments: object) -> tuple[Any, ...]:
    found = connection.execute(query.encode(), arguments).fetchone()
    assert found is not None, "it has one row"
    return tuple(found)
