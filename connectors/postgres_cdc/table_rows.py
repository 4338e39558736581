"""TableRows: the rows of the table in the order of its key, in one transaction."""

from __future__ import annotations

from collections.abc import Sequence

import psycopg
from psycopg import sql

from onceflow.connectors.postgres.catalog import identifier
from onceflow.connectors.postgres_cdc.messages import Value
from onceflow.connectors.postgres_cdc.position import CdcPosition, Key
from onceflow.connectors.postgres_cdc.settings import CdcSettings, connect, lsn_of, raised
from onceflow.runtime.errors import Retryable


class TableRows:
    """The rows behind those that `position` has read. Opens a transaction of its own when it is made.

    Its key's columns come first in each row, then those of the schema. Raises Retryable or Fatal, as does
    `take`; then it is closed, and another one goes on in a later transaction.
    """

    def __init__(self, settings: CdcSettings, position: CdcPosition, name: str) -> None:
        self._settings = settings
        self._connection = connect(settings, name)
        try:
            self.snapshot, self.high_lsn = self._begin(position)
        except psycopg.Error as error:
            self.close()
            raise raised(error, f"{settings.where}: reading it") from error

    def take(self, count: int) -> list[tuple[Key, Sequence[Value]]]:
        """The next rows, `count` at most; none at the end of the table."""
        result = self._connection.pgconn.exec_(b"FETCH FORWARD %d FROM onceflow_rows" % count)
        if result.error_message:
            self.close()
            error = psycopg.errors.error_from_result(result, encoding="utf-8")
            if not error.sqlstate:
                raise Retryable(f"{self._settings.where}: reading it: {str(error).strip()}")
            raise raised(error, f"{self._settings.where}: reading it")
        value, columns, first = result.get_value, range(self._keys, result.nfields), range(self._keys)
        return [
            (
                tuple((value(row, column) or b"").decode() for column in first),
                [value(row, column) for column in columns],
            )
            for row in range(result.ntuples)
        ]

    def end(self) -> None:
        """The table was read: end the transaction. For a bounded source the log gets an entry that says
        nothing, so that it goes on behind all that it has to read."""
        self._connection.execute("COMMIT")
        if self._settings.is_bounded:
            emit_message(self._connection)
        self.close()

    def close(self) -> None:
        self._connection.close()

    def _begin(self, position: CdcPosition) -> tuple[str, int]:
        execute = self._connection.execute
        execute("BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY")
        found = execute("SELECT pg_current_snapshot()::text, pg_current_wal_insert_lsn()::text").fetchone()
        assert found is not None, "a SELECT without FROM has a row"
        table = identifier(self._settings.table)
        of_table = (table.as_string(),)
        kind = execute("SELECT relkind FROM pg_class WHERE oid = %s::regclass", of_table).fetchone()
        places = [
            sql.Identifier(name) if number else sql.SQL('{}::text COLLATE "C"').format(sql.Identifier(name))
            for name, number in zip(position.key, position.is_number, strict=True)
        ]
        self._keys = len(places)
        wanted = [sql.Identifier(name) for name in (*position.key, *self._settings.schema.names)]
        behind: sql.Composable = sql.SQL("")
        if (last := position.read_up_to) is not None:
            behind = sql.SQL("WHERE ({}) > ({})").format(
                sql.SQL(", ").join(places), sql.SQL(", ").join(map(sql.Literal, last))
            )
        query = sql.SQL("DECLARE onceflow_rows NO SCROLL CURSOR FOR SELECT {} FROM {} {} {} ORDER BY {}")
        execute(
            query.format(
                sql.SQL(", ").join(wanted),
                sql.SQL("ONLY" if kind is not None and kind[0] == "r" else ""),
                table,
                behind,
                sql.SQL(", ").join(places),
            )
        )
        return found[0], lsn_of(found[1])


def emit_message(connection: psycopg.Connection[tuple[object, ...]]) -> None:
    """Put an entry that says nothing into the log, durable at once."""
    connection.execute("SELECT pg_logical_emit_message(true, 'onceflow', '')")
