"""PostgresSession: a connection of an owner's, with its ledger and its rows; PostgresDialect opens it."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable

import psycopg
import pyarrow as pa
from psycopg import sql

from onceflow.connectors.postgres import bad_rows
from onceflow.connectors.postgres.catalog import PostgresTable, find_table, identifier
from onceflow.connectors.postgres.columns import column_type, sent_column
from onceflow.connectors.postgres.ledger import Connection, Ledger
from onceflow.connectors.postgres.rows import RowWriter
from onceflow.connectors.postgres.server_errors import meaning, meaning_of_commit
from onceflow.connectors.postgres.settings import PostgresSettings
from onceflow.connectors.sql_tables.ledger_owner import LedgerOwner
from onceflow.connectors.sql_tables.session import BadRowsError, RefusedRow, tried
from onceflow.connectors.sql_tables.table import check_may_create, check_table
from onceflow.runtime.errors import Fatal, Indeterminate, Retryable

_LOCK_TIMEOUT = "5s"


class PostgresDialect:
    """A Dialect."""

    def __init__(self, settings: PostgresSettings, owner: LedgerOwner) -> None:
        self.settings = settings
        self.ledger = Ledger(settings.ledger_table, owner)
        self.where = f"sink {owner.uid!r}"
        self._rows: RowWriter | None = None

    def connect(self) -> PostgresSession:
        name = self.ledger.application_name
        return PostgresSession(psycopg.connect(self.settings.connection_string(name), autocommit=True), self)

    def meaning(self, error: Exception, doing: str) -> Exception | None:
        return meaning(error, doing) if isinstance(error, psycopg.Error) else None

    def rows(self, connection: Connection) -> RowWriter:
        """What writes into the table, which is looked at once."""
        if self._rows is None:
            self._rows = self._row_writer(self._table(connection))
        return self._rows

    def _table(self, connection: Connection) -> PostgresTable:
        name = self.settings.table
        table = find_table(connection, name)
        if table is None:
            statement = self._create_statement()
            check_may_create(name, statement, self.where, self.settings.create_table)
            connection.execute(statement.encode())
            table = find_table(connection, name)
        assert table is not None, "it was created"
        key = self.settings.key
        index = f"CREATE UNIQUE INDEX ON {name} ({', '.join(key)})"
        check_table(table, self.settings.schema.names, key, self.where, index)
        return table

    def _create_statement(self) -> str:
        settings = self.settings
        parts = [f"{_quoted(field.name)} {column_type(field)}" for field in settings.schema]
        if settings.key:
            parts.append(f"PRIMARY KEY ({', '.join(map(_quoted, settings.key))})")
        name = identifier(settings.table).as_string()
        return f"CREATE TABLE IF NOT EXISTS {name} ({', '.join(parts)})"

    def _row_writer(self, table: PostgresTable) -> RowWriter:
        columns = []
        for field in self.settings.schema:
            column = table.column(field.name)
            assert column is not None, "check_table has found it"
            columns.append(sent_column(field, column, self.where))
            if self.settings.two_phase and columns[-1].is_read_by_server:
                raise Fatal(
                    f"{self.where}: column {field.name!r} of table {table.name} is {column.declared}, which "
                    "the server reads from text by way of a temporary table, and that can't be prepared: "
                    "leave out two_phase=True"
                )
        return RowWriter(table, columns, self.settings.key)


class PostgresSession:
    """A Session."""

    def __init__(self, connection: Connection, dialect: PostgresDialect) -> None:
        self.connection = connection
        self._dialect = dialect
        self._ledger = dialect.ledger

    def claim(self) -> int:
        self._ledger.end_older(self.connection)
        return self._claim()

    def begin(self, checkpoint_id: int, is_careful: bool) -> None:
        connection, bad_table = self.connection, self._dialect.settings.bad_rows
        connection.execute("BEGIN")
        self._ledger.advance(connection, checkpoint_id)
        if is_careful:
            connection.execute("SET CONSTRAINTS ALL IMMEDIATE")
            if bad_table is not None:
                bad_rows.create(connection, bad_table)

    def write(self, batches: Iterable[pa.RecordBatch]) -> None:
        self._dialect.rows(self.connection).write(self.connection, batches)

    def try_write(self, batch: pa.RecordBatch) -> BadRowsError | None:
        return tried(
            lambda: self.write([batch]),
            lambda statement: self.connection.execute(statement.encode()),
            self._dialect.meaning,
        )

    def set_aside(self, row: RefusedRow) -> None:
        bad_table = self._dialect.settings.bad_rows
        assert bad_table is not None, "begin has created it"
        bad_rows.insert(self.connection, bad_table, self._ledger.owner, row)

    def commit(self) -> None:
        done = self._ending(sql.SQL("COMMIT"))
        if done != "COMMIT":
            raise Retryable(f"{self._dialect.where}: the server has rolled back what was to be committed")

    def prepare(self, name: str) -> None:
        """End the transaction so that it waits for `commit_prepared`. Raises as `commit` does."""
        self._ending(sql.SQL("PREPARE TRANSACTION {}").format(sql.Literal(name)))

    def commit_prepared(self, name: str) -> None:
        """Make a prepared transaction visible. Raises Indeterminate whatever goes wrong."""
        try:
            self.connection.execute(sql.SQL("COMMIT PREPARED {}").format(sql.Literal(name)))
        except psycopg.Error as error:
            raise Indeterminate(f"{self._dialect.where}: {name} has no answer: {error}") from error

    def settle(self, promised: str | None, after: int) -> int:
        """See PostgresTarget.settle."""
        connection, where = self.connection, self._dialect.where
        self._ledger.end_older(connection)
        if connection.execute("SELECT current_setting('max_prepared_transactions')").fetchone() == ("0",):
            raise Fatal(
                f"{where}: two_phase=True needs prepared transactions, and the server's "
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
        return self._claim()

    def close(self) -> None:
        with contextlib.suppress(psycopg.Error):
            self.connection.close()

    def _claim(self) -> int:
        connection = self.connection
        connection.execute(sql.SQL("SET lock_timeout = {}").format(sql.Literal(_LOCK_TIMEOUT)))
        self._ledger.create(connection)
        self._dialect.rows(connection)
        checkpoint_id = self._ledger.claim(connection)
        connection.execute("SET lock_timeout = DEFAULT")
        return checkpoint_id

    def _ending(self, statement: sql.Composed | sql.SQL) -> str | None:
        try:
            return self.connection.execute(statement).statusmessage
        except psycopg.Error as error:
            raise meaning_of_commit(error) from error


def _quoted(name: str) -> str:
    return sql.Identifier(name).as_string()
