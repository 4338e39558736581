"""PostgresTarget: an owner's rows and its ledger in one transaction of PostgreSQL."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import TypeVar

import psycopg
import pyarrow as pa
from psycopg import sql

from onceflow.connectors.postgres.bad_rows import CarefulWriter
from onceflow.connectors.postgres.catalog import Table, check_table, find_table
from onceflow.connectors.postgres.columns import column_type, sent_column
from onceflow.connectors.postgres.ledger import Connection, Ledger
from onceflow.connectors.postgres.rows import RowWriter
from onceflow.connectors.postgres.server_errors import BadRowsError, meaning, meaning_of_commit
from onceflow.connectors.postgres.settings import PostgresSettings
from onceflow.runtime.errors import Fatal, Indeterminate, Retryable

T = TypeVar("T")
_LOCK_TIMEOUT = "5s"


class PostgresTarget:
    """A Target.

    A claim ends the connections of earlier attempts before it waits for the ledger's row: a writer that is
    frozen inside its transaction would keep the row locked, and a commit that is under way is over, one way
    or the other, when the row can be had. A commit changes that row first, so that a claim that comes
    meanwhile waits for it.
    """

    def __init__(self, settings: PostgresSettings, ledger: Ledger) -> None:
        self._settings = settings
        self._ledger = ledger
        self._where = f"sink {ledger.uid!r}"
        self._connection: Connection | None = None
        self._rows: RowWriter | None = None
        self._is_careful = False
        """Rows were refused: they are written in pieces, to find those that are bad."""

    def claim(self) -> int:
        self._drop()
        return self._telling("claiming its ledger", self._claim)

    def commit(self, checkpoint_id: int, rows: Iterator[pa.RecordBatch]) -> None:
        connection, writer = self._connection, self._rows
        if connection is None or writer is None:
            raise Retryable(f"{self._where} has no connection: it is made by the next claim")
        self._telling("writing rows", lambda: self._write(connection, writer, checkpoint_id, rows))
        try:
            done = connection.execute("COMMIT")
        except psycopg.Error as error:
            self._drop()
            raise self._noticed(meaning_of_commit(error)) from error
        if done.statusmessage != "COMMIT":
            self._drop()
            raise Retryable(f"{self._where}: the server has rolled back what was to be committed")
        self._is_careful = False

    def prepare(self, checkpoint_id: int, rows: Iterator[pa.RecordBatch]) -> str:
        """Write these rows, and the ledger at `checkpoint_id`, in a transaction that waits for
        `commit_prepared`, and outlives the connection and this process. Returns its name. Raises as `commit`
        does; the next try begins with `settle`."""
        connection, writer, name = self._connection, self._rows, self._ledger.prepared_name(checkpoint_id)
        if connection is None or writer is None:
            raise Retryable(f"{self._where} has no connection: it is made by the next claim")
        self._telling("writing rows", lambda: self._write(connection, writer, checkpoint_id, rows))
        try:
            connection.execute(sql.SQL("PREPARE TRANSACTION {}").format(sql.Literal(name)))
        except psycopg.Error as error:
            self._drop()
            raise self._noticed(meaning_of_commit(error)) from error
        self._is_careful = False
        return name

    def commit_prepared(self, name: str) -> None:
        """Make a prepared transaction visible. Raises Indeterminate whatever goes wrong: `settle` tells."""
        try:
            if self._connection is None:
                raise Indeterminate(f"{self._where} has no connection")
            self._connection.execute(sql.SQL("COMMIT PREPARED {}").format(sql.Literal(name)))
        except psycopg.Error as error:
            self._drop()
            raise Indeterminate(f"{self._where}: {name} has no answer: {error}") from error

    def settle(self, promised: str | None, after: int) -> int:
        """Connect, end what earlier attempts have open, roll back what is prepared for checkpoints later than
        `after`, commit what is promised if it is there still, and claim the ledger; returns what that says.
        Raises what `claim` does."""
        self._drop()
        return self._telling("settling prepared transactions", lambda: self._settle(promised, after))

    def other_owners(self, parallelism: int) -> list[str]:
        """Owners with a ledger that no subtask is now. Called after `settle`."""
        assert self._connection is not None, "it was settled"
        return self._ledger.other_owners(self._connection, parallelism)

    def close(self) -> None:
        self._drop()

    def _settle(self, promised: str | None, after: int) -> int:
        connection = self._connect()
        if connection.execute("SELECT current_setting('max_prepared_transactions')").fetchone() == ("0",):
            raise Fatal(
                f"{self._where}: two_phase=True needs prepared transactions, and the server's "
                "max_prepared_transactions is 0: set it to the number of subtasks or more, and restart the "
                "server"
            )
        self._ledger.create(connection)
        self._ledger.check_newest(connection)  # whose prepared transaction would keep a claim waiting
        for name in self._ledger.prepared_after(connection, after):
            connection.execute(sql.SQL("ROLLBACK PREPARED {}").format(sql.Literal(name)))
        if promised is not None:
            with contextlib.suppress(psycopg.errors.UndefinedObject):  # committed before; the ledger tells
                connection.execute(sql.SQL("COMMIT PREPARED {}").format(sql.Literal(promised)))
        return self._claim_on(connection)

    def _claim(self) -> int:
        return self._claim_on(self._connect())

    def _connect(self) -> Connection:
        settings, name = self._settings, self._ledger.application_name
        connection = psycopg.connect(settings.connection_string(name), autocommit=True)
        self._connection = connection
        self._ledger.end_older(connection)
        return connection

    def _claim_on(self, connection: Connection) -> int:
        connection.execute(sql.SQL("SET lock_timeout = {}").format(sql.Literal(_LOCK_TIMEOUT)))
        self._ledger.create(connection)
        if self._rows is None:
            self._rows = self._row_writer(self._table(connection))
        checkpoint_id = self._ledger.claim(connection)
        connection.execute("SET lock_timeout = DEFAULT")
        return checkpoint_id

    def _write(
        self, connection: Connection, writer: RowWriter, checkpoint_id: int, rows: Iterator[pa.RecordBatch]
    ) -> None:
        connection.execute("BEGIN")
        self._ledger.advance(connection, checkpoint_id)
        if self._is_careful:
            bad_rows = self._settings.bad_rows
            CarefulWriter(writer, self._ledger, checkpoint_id, bad_rows).write(connection, rows)
        else:
            writer.write(connection, rows)

    def _table(self, connection: Connection) -> Table:
        name = self._settings.table
        table = find_table(connection, name)
        if table is None:
            statement = self._create_statement()
            if not self._settings.create_table:
                raise Fatal(
                    f"{self._where}: there is no table {name}, or it may not be seen: create it, or say "
                    f"create_table=True, which does: {statement}"
                )
            connection.execute(statement.encode())
            table = find_table(connection, name)
        assert table is not None, "it was created"
        check_table(table, self._settings.schema.names, self._settings.key, self._where)
        return table

    def _create_statement(self) -> str:
        settings = self._settings
        parts = [f"{_quoted(field.name)} {column_type(field)}" for field in settings.schema]
        if settings.key:
            parts.append(f"PRIMARY KEY ({', '.join(map(_quoted, settings.key))})")
        name = settings.table.identifier().as_string()
        return f"CREATE TABLE IF NOT EXISTS {name} ({', '.join(parts)})"

    def _row_writer(self, table: Table) -> RowWriter:
        columns = []
        for field in self._settings.schema:
            column = table.column(field.name)
            assert column is not None, "check_table has found it"
            columns.append(sent_column(field, column, self._where))
            if self._settings.two_phase and columns[-1].is_read_by_server:
                raise Fatal(
                    f"{self._where}: column {field.name!r} of table {table.name} is {column.declared}, which "
                    "the server reads from text by way of a temporary table, and that can't be prepared: "
                    "leave out two_phase=True"
                )
        return RowWriter(table, columns, self._settings.key)

    def _telling(self, doing: str, call: Callable[[], T]) -> T:
        """The call. Whatever it raises, its connection is gone, and with it what was not committed."""
        try:
            return call()
        except psycopg.Error as error:
            self._drop()
            raise self._noticed(meaning(error, f"{self._where}: {doing}")) from error
        except BaseException as error:
            self._drop()
            if isinstance(error, BadRowsError):
                raise self._noticed(error) from error
            raise

    def _noticed(self, error: Exception) -> Exception:
        """Bad rows are looked for by a second try of the same checkpoint, row by row where need be."""
        if not isinstance(error, BadRowsError):
            return error
        if self._is_careful:
            return Fatal(
                f"{self._where}: {error.reason}, which is true of no single row: see what the "
                "rows of a checkpoint violate together"
            )
        self._is_careful = True
        return Retryable(f"{self._where}: the table refuses rows: {error.reason}")

    def _drop(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            with contextlib.suppress(psycopg.Error):
                connection.close()


def _quoted(name: str) -> str:
    return sql.Identifier(name).as_string()
