"""The table of the rows that the database refuses."""

from __future__ import annotations

from onceflow.connectors.mysql.catalog import Connection, check_transactional, find_table, identifier
from onceflow.connectors.sql_tables.ledger_owner import LedgerOwner
from onceflow.connectors.sql_tables.session import RefusedRow
from onceflow.connectors.sql_tables.table import TableName

_CREATE = """
    CREATE TABLE IF NOT EXISTS {} (
        `at` timestamp(6) NOT NULL, job text, lineage text, uid text, owner text, `checkpoint` bigint,
        reason text, `constraint` text, code int, `row` longtext)
    ENGINE=InnoDB DEFAULT CHARSET=utf8mb4
"""
_INSERT = """
    INSERT INTO {} (`at`, job, lineage, uid, owner, `checkpoint`, reason, `constraint`, code, `row`)
    VALUES (now(6), %s, %s, %s, %s, %s, %s, %s, %s, %s)
"""


def create(connection: Connection, table: TableName, where: str) -> None:
    """Make the table if it is not there. Ends a transaction."""
    found = find_table(connection, table)
    if found is None:
        with connection.cursor() as cursor:
            cursor.execute(_CREATE.format(identifier(table)))
    else:
        check_transactional(found, where)


def insert(connection: Connection, table: TableName, owner: LedgerOwner, row: RefusedRow) -> None:
    why = row.why
    values = (
        *(owner.job, owner.lineage, owner.uid, owner.owner, row.checkpoint_id),
        *(why.reason, why.constraint or None, why.code or None, row.text),
    )
    with connection.cursor() as cursor:
        cursor.execute(_INSERT.format(identifier(table)), values)
