"""Dialect and Session: what a database has to do for a sink that writes into its tables."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Protocol, TypeVar

import pyarrow as pa

_SAVEPOINT = "onceflow_piece"


class BadRowsError(Exception):
    """The server, or a cast before it, refuses some of the rows, whenever they are tried.

    `constraint`: the constraint or column that they violate, if it is known; `code`: the server's number of
    the error, empty if the server was not asked.
    """

    def __init__(self, reason: str, constraint: str = "", code: str = "") -> None:
        super().__init__(reason)
        self.reason = reason
        self.constraint = constraint
        self.code = code


@dataclass(frozen=True, slots=True)
class RefusedRow:
    """A row that the table refuses, as JSON text, for the table of such rows."""

    checkpoint_id: int
    why: BadRowsError
    text: str


class Session(Protocol):
    """One connection to a database, for one owner in one attempt. One thread at a time.

    Its calls raise errors of the driver, which the dialect's `meaning` translates, errors of the runtime's,
    and BadRowsError. After any of them it is closed, which rolls back what was not committed.
    """

    def claim(self) -> int:
        """See Target.claim. The tables are there and fit when it returns."""
        ...

    def begin(self, checkpoint_id: int, is_careful: bool) -> None:
        """Begin a transaction that makes the ledger say `checkpoint_id`: from here on no other attempt can
        claim it until this transaction has ended. Raises Fenced if one already has, Retryable if the ledger
        is there already. `is_careful`: the rows come by `try_write`, and each violation is to be noticed
        there."""
        ...

    def write(self, batches: Iterable[pa.RecordBatch]) -> None:
        """Write these rows, in this order: of two with the same key the later one counts."""
        ...

    def try_write(self, batch: pa.RecordBatch) -> BadRowsError | None:
        """Write these rows, or none of them and say why."""
        ...

    def set_aside(self, row: RefusedRow) -> None:
        """Put it into the table of refused rows, in this transaction."""
        ...

    def commit(self) -> None:
        """End the transaction. Raises Indeterminate where nobody knows whether it is done."""
        ...

    def close(self) -> None:
        """Let go of the connection; raises nothing."""
        ...


S_co = TypeVar("S_co", bound=Session, covariant=True)


class Dialect(Protocol[S_co]):
    """How an owner of a sink speaks with one kind of database."""

    def connect(self) -> S_co:
        """A new session. What earlier sessions of this owner have open is not over yet: see `claim`."""
        ...

    def meaning(self, error: Exception, doing: str) -> Exception | None:
        """What an error of the driver before COMMIT means: an error of the runtime's or a BadRowsError. None:
        it is none of the driver's."""
        ...


def tried(
    write: Callable[[], None],
    execute: Callable[[str], object],
    meaning: Callable[[Exception, str], Exception | None],
) -> BadRowsError | None:
    """`try_write` for databases with savepoints: `write` the rows, or take back what was written and say why.
    `execute`: of the session's connection; `meaning`: the dialect's."""
    execute(f"SAVEPOINT {_SAVEPOINT}")
    try:
        write()
    except Exception as error:
        bad = error if isinstance(error, BadRowsError) else meaning(error, "writing rows")
        if not isinstance(bad, BadRowsError):
            raise
        execute(f"ROLLBACK TO SAVEPOINT {_SAVEPOINT}")
        return bad
    execute(f"RELEASE SAVEPOINT {_SAVEPOINT}")
    return None
