"""MySqlSession: a connection of an owner's, with its ledger and its rows; MySqlDialect opens it."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterable

import pyarrow as pa
import pymysql

from onceflow.connectors.mysql import bad_rows
from onceflow.connectors.mysql.catalog import (
    Connection,
    MySqlTable,
    check_key,
    check_transactional,
    find_table,
    identifier,
    quoted,
    rows_of,
)
from onceflow.connectors.mysql.columns import column_type, sent_column
from onceflow.connectors.mysql.ledger import Ledger
from onceflow.connectors.mysql.server_errors import (
    CHANGED_VALUES,
    meaning,
    meaning_of_commit,
)
from onceflow.connectors.mysql.server_errors import (
    bad_rows as refused,
)
from onceflow.connectors.mysql.settings import MySqlSettings
from onceflow.connectors.mysql.statements import Statements
from onceflow.connectors.sql_tables.ledger_owner import LedgerOwner
from onceflow.connectors.sql_tables.session import BadRowsError, RefusedRow, tried
from onceflow.connectors.sql_tables.table import check_may_create, check_table
from onceflow.connectors.staged_commits.last_of_each_key import LastOfEachKey, is_gone
from onceflow.runtime.errors import Fatal

_CLAIM_LOCK_S = 5
_PACKET_ROOM = 1024
_SQL_MODE = (
    "STRICT_ALL_TABLES,ERROR_FOR_DIVISION_BY_ZERO,NO_ZERO_DATE,NO_ZERO_IN_DATE,NO_ENGINE_SUBSTITUTION,"
    "NO_AUTO_VALUE_ON_ZERO"
)
"""What the session has, whatever the server's is: a value that does not fit is an error."""
_SETTINGS = (
    f"SET SESSION sql_mode = '{_SQL_MODE}', time_zone = '+00:00', foreign_key_checks = 1, "
    "unique_checks = 1, lock_wait_timeout = 60"
)
_ISOLATION = "SET SESSION TRANSACTION ISOLATION LEVEL READ COMMITTED"
"""Rows that a DELETE looks at and leaves stay unlocked, and so do gaps: fewer deadlocks between subtasks."""


class MySqlDialect:
    """A Dialect."""

    def __init__(self, settings: MySqlSettings, owner: LedgerOwner) -> None:
        self.settings = settings
        self.ledger = Ledger(settings.ledger_table, owner)
        self.where = f"sink {owner.uid!r}"
        self._statements: Statements | None = None

    def connect(self) -> MySqlSession:
        server = dict(self.settings.server)
        if "password" not in server and "read_default_file" not in server:
            server["password"] = os.environ.get("MYSQL_PWD", "")
        connection = pymysql.connect(
            **server, charset="utf8mb4", autocommit=True, program_name="onceflow", local_infile=False
        )
        try:
            with connection.cursor() as cursor:
                cursor.execute(_SETTINGS)
                cursor.execute(_ISOLATION)
        except BaseException:
            _close(connection)
            raise
        return MySqlSession(connection, self)

    def meaning(self, error: Exception, doing: str) -> Exception | None:
        return meaning(error, doing) if isinstance(error, pymysql.Error) else None

    def statements(self, connection: Connection) -> Statements:
        """What writes into the table, which is looked at once."""
        if self._statements is None:
            found = self._table(connection)
            columns = []
            for field in self.settings.schema:
                column = found.table.column(field.name)
                assert column is not None, "check_table has found it"
                columns.append(sent_column(field, column, field.name in self.settings.key, self.where))
            ((packet,),) = rows_of(connection, "SELECT @@max_allowed_packet")
            table = identifier(self.settings.table)
            self._statements = Statements(table, columns, self.settings.key, packet - _PACKET_ROOM)
        return self._statements

    def _table(self, connection: Connection) -> MySqlTable:
        name, key, where = self.settings.table, self.settings.key, self.where
        found = find_table(connection, name)
        if found is None:
            statement = self._create_statement()
            check_may_create(name, statement, where, self.settings.create_table)
            with connection.cursor() as cursor:
                cursor.execute(statement)
            found = find_table(connection, name)
        assert found is not None, "it was created"
        check_transactional(found, where)
        index = f"ALTER TABLE {name} ADD UNIQUE INDEX ({', '.join(key)})"
        check_table(found.table, self.settings.schema.names, key, where, index)
        if key:
            check_key(found, key, self.settings.schema.names, where)
        return found

    def _create_statement(self) -> str:
        key, parts = self.settings.key, []
        for field in self.settings.schema:
            of = column_type(field, field.name in key)
            if of is None:
                raise Fatal(
                    f"{self.where}: no column of MySQL takes column {field.name!r}, which is {field.type}: "
                    "cast it in the job"
                )
            parts.append(f"{quoted(field.name)} {of}")
        if key:
            parts.append(f"PRIMARY KEY ({', '.join(map(quoted, key))})")
        columns = ", ".join(parts)
        table = identifier(self.settings.table)
        return f"CREATE TABLE IF NOT EXISTS {table} ({columns}) ENGINE=InnoDB DEFAULT CHARSET=utf8mb4"


class MySqlSession:
    """A Session."""

    def __init__(self, connection: Connection, dialect: MySqlDialect) -> None:
        self.connection = connection
        self._dialect = dialect
        self._ledger = dialect.ledger

    def claim(self) -> int:
        connection, dialect = self.connection, self._dialect
        self.execute(f"SET SESSION innodb_lock_wait_timeout = {_CLAIM_LOCK_S}")
        self._ledger.create(connection, dialect.where)
        self._ledger.end_older(connection)
        if dialect.settings.bad_rows is not None:
            bad_rows.create(connection, dialect.settings.bad_rows, dialect.where)
        dialect.statements(connection)
        checkpoint_id = self._ledger.claim(connection)
        self.execute("SET SESSION innodb_lock_wait_timeout = DEFAULT")
        return checkpoint_id

    def begin(self, checkpoint_id: int, is_careful: bool) -> None:
        self.connection.begin()
        self._ledger.advance(self.connection, checkpoint_id)

    def write(self, batches: Iterable[pa.RecordBatch]) -> None:
        statements = self._dialect.statements(self.connection)
        if not statements.key:
            for batch in batches:
                for statement in statements.inserts(batch):
                    self.execute(statement)
            return
        last = LastOfEachKey(statements.key, batches)
        for rows in last.nulls:
            name = next(name for name in statements.key if rows.column(name).null_count)
            raise BadRowsError(f"key column {name!r} is null", name)
        if last.batches:
            self._merge(statements, pa.Table.from_batches(last.batches))

    def try_write(self, batch: pa.RecordBatch) -> BadRowsError | None:
        return tried(lambda: self.write([batch]), self.execute, self._dialect.meaning)

    def set_aside(self, row: RefusedRow) -> None:
        table = self._dialect.settings.bad_rows
        assert table is not None, "claim has created it"
        bad_rows.insert(self.connection, table, self._ledger.owner, row)

    def commit(self) -> None:
        try:
            self.connection.commit()
        except pymysql.Error as error:
            raise meaning_of_commit(error) from error

    def execute(self, statement: str | bytes) -> None:
        """Raises BadRowsError also where the server only warns that it has changed a value."""
        with self.connection.cursor() as cursor:
            cursor.execute(statement)  # bytes are sent as they are
            if not cursor.warning_count:
                return
            for _, code, text in rows_of(self.connection, "SHOW WARNINGS"):
                if code in CHANGED_VALUES:
                    raise refused(code, text)

    def close(self) -> None:
        _close(self.connection)

    def _merge(self, statements: Statements, rows: pa.Table) -> None:
        """In the order of the keys, so that two writers lock rows in one order."""
        for batch in rows.sort_by([(name, "ascending") for name in statements.key]).to_batches():
            gone = is_gone(batch)
            for statement in statements.deletes(batch.filter(pa.array(gone))):
                self.execute(statement)
            for statement in statements.inserts(batch.filter(pa.array(~gone))):
                self.execute(statement)


def _close(connection: Connection) -> None:
    with contextlib.suppress(pymysql.Error, OSError):
        connection.close()
