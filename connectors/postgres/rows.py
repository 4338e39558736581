"""How rows come into the table: COPY, or COPY beside it and a merge by key."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, LiteralString, cast

import numpy as np
import pgpq
import psycopg
import pyarrow as pa
from psycopg import sql

from onceflow.connectors.postgres.catalog import PostgresTable, identifier
from onceflow.connectors.postgres.columns import SentColumn
from onceflow.connectors.sql_tables.session import BadRowsError
from onceflow.connectors.staged_commits.staged_kinds import KIND
from onceflow.runtime.records import RowKind

_ORDER, _IS_GONE = "onceflow order", "onceflow is gone"
_STAGE = sql.Identifier("pg_temp", "onceflow rows")

Connection = psycopg.Connection[tuple[object, ...]]


@dataclass(frozen=True, slots=True)
class RowWriter:
    """Writes rows into one table, inside a transaction that somebody else ends. `key`: empty to append."""

    table: PostgresTable
    columns: Sequence[SentColumn]
    key: Sequence[str]

    def write(self, connection: Connection, batches: Iterable[pa.RecordBatch]) -> None:
        """Write all of these rows, in this order: of two with the same key the later one counts. Raises
        BadRowsError if some can't be written, psycopg.Error for whatever else went wrong."""
        if not self._is_staged:
            names = [sql.Identifier(column.name) for column in self.columns]
            self._copy(connection, identifier(self.table.name), names, map(self._sent, batches))
            return
        connection.execute(self._create_stage())
        names = [
            sql.Identifier(_ORDER),
            sql.Identifier(_IS_GONE),
            *(sql.Identifier(c.name) for c in self.columns),
        ]
        self._copy(connection, _STAGE, names, self._numbered(batches))
        connection.execute(self._merge() if self.key else self._insert(_STAGE))
        connection.execute(sql.SQL("TRUNCATE {}").format(_STAGE))

    @property
    def _is_staged(self) -> bool:
        return bool(self.key) or any(column.is_read_by_server for column in self.columns)

    def _sent(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        arrays = []
        for column in self.columns:
            if column.name in self.key and batch.column(column.name).null_count:
                # A unique index lets nulls in again and again: such rows would be added, not replaced.
                raise BadRowsError(f"key column {column.name!r} is null", column.name)
            try:
                arrays.append(column.cast(batch.column(column.name)))
            except (pa.ArrowInvalid, ValueError) as error:
                raise BadRowsError(f"column {column.name!r}: {error}", column.name) from error
        return pa.record_batch(arrays, names=[column.name for column in self.columns])

    def _numbered(self, batches: Iterable[pa.RecordBatch]) -> Iterable[pa.RecordBatch]:
        first = 0
        for batch in batches:
            sent = self._sent(batch)
            is_gone = np.zeros(len(batch), bool)
            if KIND in batch.schema.names:
                kinds = batch.column(KIND).to_numpy()
                # What a row was before is taken back. If its key is the same, what it is now comes behind it.
                is_gone = (kinds == RowKind.DELETE) | (kinds == RowKind.UPDATE_BEFORE)
            order = pa.array(np.arange(first, first + len(batch)))
            first += len(batch)
            arrays = [order, pa.array(is_gone), *sent.columns]
            yield pa.record_batch(arrays, names=[_ORDER, _IS_GONE, *sent.schema.names])

    def _copy(
        self,
        connection: Connection,
        into: sql.Identifier,
        names: Sequence[sql.Identifier],
        batches: Iterable[pa.RecordBatch],
    ) -> None:
        encoder: Any = None
        statement = sql.SQL("COPY {} ({}) FROM STDIN (FORMAT binary)").format(into, sql.SQL(", ").join(names))
        with connection.cursor() as cursor, cursor.copy(statement) as copy:
            for batch in batches:
                if encoder is None:
                    encoder = pgpq.ArrowToPostgresBinaryEncoder(batch.schema)
                    copy.write(encoder.write_header())
                copy.write(encoder.write_batch(batch))
            if encoder is not None:
                copy.write(encoder.finish())

    def _create_stage(self) -> sql.Composed:
        columns = [sql.SQL("{} bigint, {} bool").format(sql.Identifier(_ORDER), sql.Identifier(_IS_GONE))]
        for column in self.columns:
            of: LiteralString = "text" if column.is_read_by_server else self._declared(column.name)
            columns.append(sql.SQL("{} {}").format(sql.Identifier(column.name), sql.SQL(of)))
        return sql.SQL("CREATE TEMP TABLE IF NOT EXISTS {} ({}) ON COMMIT DELETE ROWS").format(
            sql.Identifier("onceflow rows"), sql.SQL(", ").join(columns)
        )

    def _declared(self, name: str) -> LiteralString:
        """The type as the catalog spells it, which is no text of anybody else's."""
        column = self.table.column(name)
        assert column is not None, "check_table has found it"
        return cast(LiteralString, column.declared)  # type: ignore[redundant-cast]

    def _insert(self, source: sql.Identifier) -> sql.Composed:
        names = sql.SQL(", ").join(sql.Identifier(column.name) for column in self.columns)
        values = sql.SQL(", ").join(
            sql.SQL("{}::{}").format(sql.Identifier(c.name), sql.SQL(self._declared(c.name)))
            if c.is_read_by_server
            else sql.Identifier(c.name)
            for c in self.columns
        )
        return sql.SQL("INSERT INTO {} ({}) SELECT {} FROM {}").format(
            identifier(self.table.name), names, values, source
        )

    def _merge(self) -> sql.Composed:
        """The last row of each key, in the order of the keys, so that two writers lock rows in one order."""
        key = sql.SQL(", ").join(map(sql.Identifier, self.key))
        last = sql.Identifier("last")
        others = [c.name for c in self.columns if c.name not in self.key]
        assignments = sql.SQL(", ").join(
            sql.SQL("{0} = excluded.{0}").format(sql.Identifier(name)) for name in others
        )
        conflict = sql.SQL("DO UPDATE SET {}").format(assignments) if others else sql.SQL("DO NOTHING")
        same = sql.SQL(" AND ").join(
            sql.SQL("old.{0} = last.{0}").format(sql.Identifier(name)) for name in self.key
        )
        return sql.SQL(
            "WITH last AS MATERIALIZED "
            "(SELECT DISTINCT ON ({key}) * FROM {stage} ORDER BY {key}, {order} DESC), "
            "gone AS (DELETE FROM {table} old USING last WHERE last.{is_gone} AND {same}) "
            "{insert} WHERE NOT {is_gone} ON CONFLICT ({key}) {conflict}"
        ).format(
            key=key,
            stage=_STAGE,
            order=sql.Identifier(_ORDER),
            is_gone=sql.Identifier(_IS_GONE),
            table=identifier(self.table.name),
            same=same,
            insert=self._insert(last),
            conflict=conflict,
        )
