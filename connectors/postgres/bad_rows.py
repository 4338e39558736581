"""Rows that the database refuses: found one by one, and put into a table of their own or named."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import psycopg
import pyarrow as pa
from psycopg import sql

from onceflow.connectors.postgres.catalog import TableName
from onceflow.connectors.postgres.ledger import Ledger
from onceflow.connectors.postgres.rows import RowWriter
from onceflow.connectors.postgres.server_errors import BadRowsError, meaning
from onceflow.connectors.rows_as_text import json_lines
from onceflow.connectors.staged_commits.staged_kinds import KIND
from onceflow.runtime.errors import Fatal

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
_SAVEPOINT = "onceflow_piece"


@dataclass(frozen=True, slots=True)
class CarefulWriter:
    """Writes what can be written, piece by piece, and deals with each row that can't. Inside a transaction.

    `bad_rows`: where such rows go, in the same transaction, so that they are there exactly once, too; None:
    the first of them ends the job.
    """

    rows: RowWriter
    ledger: Ledger
    checkpoint_id: int
    bad_rows: TableName | None

    def write(self, connection: Connection, batches: Iterable[pa.RecordBatch]) -> None:
        """Raises Fatal naming a row if there is no table for bad rows; psycopg.Error for whatever else."""
        connection.execute("SET CONSTRAINTS ALL IMMEDIATE")
        if self.bad_rows is not None:
            connection.execute(sql.SQL(_CREATE).format(self.bad_rows.identifier()))
        for batch in batches:
            self._write_piece(connection, batch)

    def _write_piece(self, connection: Connection, batch: pa.RecordBatch) -> None:
        """Halve what is refused until it is one row. The order stays: of a key the later row counts."""
        bad = self._try(connection, batch)
        if bad is None:
            return
        if batch.num_rows == 1:
            self._set_aside(connection, batch, bad)
            return
        half = batch.num_rows // 2
        self._write_piece(connection, batch.slice(0, half))
        self._write_piece(connection, batch.slice(half))

    def _try(self, connection: Connection, batch: pa.RecordBatch) -> BadRowsError | None:
        connection.execute(f"SAVEPOINT {_SAVEPOINT}")
        try:
            self.rows.write(connection, [batch])
        except (psycopg.Error, BadRowsError) as error:
            bad = error if isinstance(error, BadRowsError) else meaning(error, "writing rows")
            if not isinstance(bad, BadRowsError):
                raise
            connection.execute(f"ROLLBACK TO SAVEPOINT {_SAVEPOINT}")
            return bad
        connection.execute(f"RELEASE SAVEPOINT {_SAVEPOINT}")
        return None

    def _set_aside(self, connection: Connection, row: pa.RecordBatch, bad: BadRowsError) -> None:
        columns = [name for name in row.schema.names if name != KIND]
        text = next(json_lines(row.select(columns)))
        ledger = self.ledger
        if self.bad_rows is None:
            violates = f" (constraint {bad.constraint})" if bad.constraint else ""
            raise Fatal(
                f"sink {ledger.uid!r}: table {self.rows.table.name} refuses a row{violates}: {bad.reason}. "
                f"The row: {text}. Mend the table or the job, or name a table for such rows with bad_rows_to="
            )
        values = (
            *(ledger.job, ledger.lineage, ledger.uid, ledger.owner, self.checkpoint_id),
            *(bad.reason, bad.constraint or None, bad.sqlstate or None, text),
        )
        connection.execute(sql.SQL(_INSERT).format(self.bad_rows.identifier()), values)
