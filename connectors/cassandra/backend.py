"""CassandraBackend: rows of one table, each under its primary key, with its version as the write's time."""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from dataclasses import dataclass
from hashlib import sha256

import pyarrow as pa
from cassandra.query import PreparedStatement

from onceflow.connectors.cassandra.server_errors import is_rows_fault, meaning, reason_of
from onceflow.connectors.cassandra.servers import Access, CassandraServers
from onceflow.connectors.cassandra.table import Column, Table, TableRows, quoted
from onceflow.connectors.versioned_upserts.backend import Answer, BadRow, Note, Piece
from onceflow.runtime.errors import Fatal, OnceflowError, Retryable

_FAMILY = uuid.UUID("6d5b2a3e-64c0-4b0e-9d6b-0c7b2f1b7a55")
"""What the ids of tables that are made here come from."""


@dataclass(frozen=True, slots=True)
class TableSettings:
    """See CassandraSink, whose arguments these are. `schema`: of the rows."""

    keyspace: str
    table: str
    key: Sequence[str]
    ledger_table: str
    bad_rows_to: str | None
    schema: pa.Schema


class CassandraBackend:
    """See Backend.

    The version is the time of a write (USING TIMESTAMP), by which the server itself keeps what is newer, cell
    by cell. Notes are rows of a table of their own, changed by compare-and-set (IF), and read by the same
    agreement (SERIAL). They belong to a table by its id: one that was dropped and made again has none.
    """

    calls_max = 1
    """Each has many statements under way."""
    rows_max = 2_000
    bytes_max = 4 << 20
    generation_first = 1 << 21
    """Others may have written rows with the clock's times, which are below 2**53 us until 2255."""

    def __init__(self, access: Access, settings: TableSettings, uid: str) -> None:
        self._settings = settings
        self._where = f"sink {uid!r}"
        self._servers = CassandraServers(access, self._where)
        self._identity = ""
        """The table's, while it is open."""

    def open(self) -> None:
        self._identity = ""
        self._servers.open()
        settings = self._settings
        table = self._table()
        self._rows = TableRows(table, settings.schema, settings.key, self._where)
        self._make("making its ledger", settings.ledger_table, "name text PRIMARY KEY, text text")
        if settings.bad_rows_to is not None:
            columns = "name text PRIMARY KEY, key text, reason text, row text"
            self._make("making the table of bad rows", settings.bad_rows_to, columns)
        self._put = self._servers.prepare("writing rows", self._rows.put)
        self._delete = self._servers.prepare("writing rows", self._rows.delete)
        self._identity = table.identity

    def read_note(self, name: str) -> Note | None:
        self._check_open()
        if self._found_identity() != self._identity:
            self._identity = ""
            raise Retryable(f"{self._where}: the table is another one now: its ledger is claimed again")
        asked = f"SELECT text FROM {self._ledger} WHERE name = %s"
        rows = self._servers.ask("reading its ledger", asked, self._named(name), is_serial=True)
        return Note(name, rows[0].text) if rows else None

    def put_note(self, name: str, text: str, over: Note | None) -> Note | None:
        self._check_open()
        place, doing = self._named(name), "changing its ledger"
        if over is None:
            new = f"INSERT INTO {self._ledger} (name, text) VALUES (%s, %s) IF NOT EXISTS"
            (row,) = self._servers.ask(doing, new, place, text)
        else:
            changed = f"UPDATE {self._ledger} SET text = %s WHERE name = %s IF text = %s"
            (row,) = self._servers.ask(doing, changed, text, place, over.text)
        return Note(name, text) if row[0] else None

    def write(self, piece: Piece, version: int, under: Sequence[Note]) -> Answer:
        """`under` can't be compared in the same step: versions keep what is newer."""
        self._check_open()
        values, bad = self._rows.values(piece, version)
        places = [n for n in range(len(piece)) if n not in bad]
        gone = piece.is_gone
        statements = [(self._delete if gone[n] else self._put, values[n]) for n in places]
        busy: list[int] = []
        failure: OnceflowError | None = None
        for n, error in zip(places, self._servers.write(statements), strict=True):
            if error is None:
                continue
            if is_rows_fault(error):
                bad[n] = reason_of(error)
                continue
            busy.append(n)
            failure = meaning(error, f"{self._where}: writing rows")
            if isinstance(failure, Fatal):
                raise failure
        if failure is not None and len(busy) == len(places):
            raise failure
        return Answer(busy=busy, bad=bad)

    def set_aside(self, bad: Sequence[BadRow]) -> None:
        place = self._settings.bad_rows_to
        assert place is not None, "asked for only where the user has named one"
        doing = "setting rows aside"
        text = f"INSERT INTO {self._in_keyspace(place)} (name, key, reason, row) VALUES (?, ?, ?, ?)"
        put = self._servers.prepare(doing, text)
        statements: list[tuple[PreparedStatement, Sequence[str]]] = [
            (put, (sha256(row.name.encode()).hexdigest(), row.key, row.reason, row.row)) for row in bad
        ]
        for error in self._servers.write(statements):
            if error is not None:
                raise meaning(error, f"{self._where}: {doing}")

    def close(self) -> None:
        self._identity = ""
        self._servers.close()

    @property
    def _ledger(self) -> str:
        return self._in_keyspace(self._settings.ledger_table)

    def _in_keyspace(self, table: str) -> str:
        return f"{quoted(self._settings.keyspace)}.{quoted(table)}"

    def _named(self, name: str) -> str:
        return f"{self._identity} {name}"

    def _check_open(self) -> None:
        if not self._identity:
            raise Retryable(f"{self._where} is not open: it is opened by the next claim")

    def _found_identity(self) -> str:
        settings = self._settings
        asked = "SELECT id FROM system_schema.tables WHERE keyspace_name = %s AND table_name = %s"
        rows = self._servers.ask("looking at the table", asked, settings.keyspace, settings.table)
        return str(rows[0].id) if rows else ""

    def _table(self) -> Table:
        """The table, as the catalog has it. Raises Fatal if there is none."""
        keyspace, name = self._settings.keyspace, self._settings.table
        doing = "looking at the table"
        asked = "SELECT durable_writes FROM system_schema.keyspaces WHERE keyspace_name = %s"
        spaces = self._servers.ask(doing, asked, keyspace)
        if not spaces:
            raise Fatal(
                f"{self._where}: there is no keyspace {keyspace!r}: make it before, or correct the name"
            )
        asked = (
            "SELECT id, gc_grace_seconds, flags FROM system_schema.tables "
            "WHERE keyspace_name = %s AND table_name = %s"
        )
        found = self._servers.ask(doing, asked, keyspace, name)
        if not found:
            raise Fatal(
                f"{self._where}: there is no table {name!r} in keyspace {keyspace!r}: make it before, or "
                "correct the name (it is in small letters, unless it was made in quotes)"
            )
        asked = (
            "SELECT column_name, kind, type FROM system_schema.columns "
            "WHERE keyspace_name = %s AND table_name = %s"
        )
        columns = [Column(*row) for row in self._servers.ask(doing, asked, keyspace, name)]
        is_counting = any(column.cql == "counter" for column in columns)
        (told,) = found
        identity = str(told.id)
        return Table(
            keyspace, name, identity, columns, told.gc_grace_seconds, is_counting, spaces[0].durable_writes
        )

    def _make(self, doing: str, table: str, columns: str) -> None:
        """A table of ours, if it is not there. Its id comes from its name: subtasks that make it at the same
        time make the same one."""
        asked = "SELECT id FROM system_schema.tables WHERE keyspace_name = %s AND table_name = %s"
        if self._servers.ask(doing, asked, self._settings.keyspace, table):
            return
        place = self._in_keyspace(table)
        identity = uuid.uuid5(_FAMILY, place)
        self._servers.ask(doing, f"CREATE TABLE IF NOT EXISTS {place} ({columns}) WITH id = {identity}")
