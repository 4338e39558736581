"""SqlTarget: an owner's rows and its ledger in one transaction of a database."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Generic, TypeVar

import pyarrow as pa

from onceflow.connectors.sql_tables.careful import CarefulWriter
from onceflow.connectors.sql_tables.session import BadRowsError, Dialect, Session
from onceflow.connectors.sql_tables.table import TableName
from onceflow.runtime.errors import Fatal, Retryable

S = TypeVar("S", bound=Session)
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Output:
    """What a target writes into. `sets_aside`: there is a table for rows that it refuses."""

    uid: str
    table: TableName
    sets_aside: bool


class SqlTarget(Generic[S]):
    """A Target. What differs between databases is its dialect's.

    A claim ends the connections of earlier attempts before it waits for the ledger's row: a writer that is
    frozen inside its transaction would keep the row locked, and a commit that is under way is over, one way
    or the other, when the row can be had. A commit changes that row first, so that a claim that comes
    meanwhile waits for it.
    """

    def __init__(self, dialect: Dialect[S], output: Output) -> None:
        self._dialect = dialect
        self._output = output
        self._where = f"sink {output.uid!r}"
        self._session: S | None = None
        self._is_careful = False
        """Rows were refused: they are written in pieces, to find those that are bad."""

    def claim(self) -> int:
        return self.in_new_session("claiming its ledger", lambda session: session.claim())

    def commit(self, checkpoint_id: int, rows: Iterator[pa.RecordBatch]) -> None:
        self.end_with("committing", checkpoint_id, rows, lambda session: session.commit())

    def end_with(
        self, doing: str, checkpoint_id: int, rows: Iterator[pa.RecordBatch], end: Callable[[S], T]
    ) -> T:
        """Write these rows and the ledger in a transaction that `end` ends. Raises as `commit` does."""
        session = self._session
        if session is None:
            raise Retryable(f"{self._where} has no connection: it is made by the next claim")
        self._telling("writing rows", lambda: self._write(session, checkpoint_id, rows))
        ended = self._telling(doing, lambda: end(session))
        self._is_careful = False
        return ended

    def in_new_session(self, doing: str, call: Callable[[S], T]) -> T:
        """Connect anew, and call; the session stays if nothing is raised."""
        self.close()

        def connect_and_call() -> T:
            session = self._session = self._dialect.connect()
            return call(session)

        return self._telling(doing, connect_and_call)

    @property
    def session(self) -> S | None:
        """What is connected. None after any error, until the next claim."""
        return self._session

    def close(self) -> None:
        session, self._session = self._session, None
        if session is not None:
            session.close()

    def _write(self, session: S, checkpoint_id: int, rows: Iterator[pa.RecordBatch]) -> None:
        session.begin(checkpoint_id, self._is_careful)
        if self._is_careful:
            output = self._output
            CarefulWriter(session, output.uid, output.table, checkpoint_id, output.sets_aside).write(rows)
        else:
            session.write(rows)

    def _telling(self, doing: str, call: Callable[[], T]) -> T:
        """The call. Whatever it raises, its connection is gone, and with it what was not committed."""
        try:
            return call()
        except Exception as error:
            self.close()
            if isinstance(error, BadRowsError):
                raise self._noticed(error) from error
            told = self._dialect.meaning(error, f"{self._where}: {doing}")
            if told is None:
                raise
            raise self._noticed(told) from error
        except BaseException:
            self.close()
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
