"""The table of the rows that the database refuses."""

from __future__ import annotations

import psycopg
from psycopg import sql

from onceflow.connectors.postgres.catalog import identifier
from onceflow.connectors.sql_tables.ledger_owner import LedgerOwner
from onceflow.connectors.sql_tables.session import RefusedRow
from onceflow.connectors.sql_tables.table import TableName

Connection = psycopg.Connection[tuple[object, ...]]

_CREATE = """
    CREATE TABLE IF NOT EXISTS {} (
        at timestamptz NOT NULL DEFAULT now(),
        job text, lineage text, uid text, owner text, checkpoint bigint,
        reason text, "constraint" text, sqlstate text, row text)
"""
_INSERT = """
    INSERT INTO {} (job, lineage, uid, owner, checkpoint, reason, "constraint", sqlstate, row)
    VALUES (%s, %s, %s, %s, %s, %s, %s, %s, %s)
"""


def create(connection: Connection, table: TableName) -> None:
    """Make the table if it is not there."""
    connection.execute(sql.SQL(_CREATE).format(identifier(table)))


def insert(connection: Connection, table: TableName, owner: LedgerOwner, row: RefusedRow) -> None:
    why = row.why
    values = (
        *(owner.job, owner.lineage, owner.uid, owner.owner, row.checkpoint_id),
        *(why.reason, why.constraint or None, why.code or None, row.text),
    )
    connection.execute(sql.SQL(_INSERT).format(identifier(table)), values)
