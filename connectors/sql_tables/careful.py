"""Rows that the database refuses: found one by one, and put into a table of their own or named."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import pyarrow as pa

from onceflow.connectors.rows_as_text import json_lines
from onceflow.connectors.sql_tables.session import BadRowsError, RefusedRow, Session
from onceflow.connectors.sql_tables.table import TableName
from onceflow.connectors.staged_commits.staged_kinds import KIND
from onceflow.runtime.errors import Fatal


@dataclass(frozen=True, slots=True)
class CarefulWriter:
    """Writes what can be written, piece by piece, and deals with each row that can't. Inside a transaction.

    `sets_aside`: such rows go into a table, in the same transaction, so that they are there exactly once,
    too; otherwise the first of them ends the job.
    """

    session: Session
    uid: str
    table: TableName
    checkpoint_id: int
    sets_aside: bool

    def write(self, batches: Iterable[pa.RecordBatch]) -> None:
        """Raises Fatal naming a row if there is no table for bad rows; whatever else the session raises."""
        for batch in batches:
            self._write_piece(batch)

    def _write_piece(self, batch: pa.RecordBatch) -> None:
        """Halve what is refused until it is one row. The order stays: of a key the later row counts."""
        why = self.session.try_write(batch)
        if why is None:
            return
        if batch.num_rows == 1:
            self._set_aside(batch, why)
            return
        half = batch.num_rows // 2
        self._write_piece(batch.slice(0, half))
        self._write_piece(batch.slice(half))

    def _set_aside(self, row: pa.RecordBatch, why: BadRowsError) -> None:
        columns = [name for name in row.schema.names if name != KIND]
        text = next(json_lines(row.select(columns)))
        if not self.sets_aside:
            violates = f" (constraint {why.constraint})" if why.constraint else ""
            raise Fatal(
                f"sink {self.uid!r}: table {self.table} refuses a row{violates}: {why.reason}. "
                f"The row: {text}. Mend the table or the job, or name a table for such rows with bad_rows_to="
            )
        self.session.set_aside(RefusedRow(self.checkpoint_id, why, text))
