"""Errors of pyiceberg and of what is below it, as what the engine does next."""

from __future__ import annotations

import contextlib
import sqlite3
from collections.abc import Iterator

from onceflow.runtime.errors import Indeterminate, OnceflowError, Retryable, Unavailable


@contextlib.contextmanager
def asking(what: str) -> Iterator[None]:
    """Nothing is changed inside: what fails can be tried again. Catalogs raise what their clients do, of
    databases, of HTTP and of clouds, which have no root in common. A catalog that is there, and busy, is no
    wrong setting."""
    try:
        yield
    except OnceflowError:
        raise
    except Exception as error:
        said = f"{what} can't be read: {in_a_line(error)}"
        if _is_busy(error):
            raise Retryable(said) from error
        raise Unavailable(said) from error


@contextlib.contextmanager
def committing(what: str) -> Iterator[None]:
    """A commit. Whatever it says of others who have committed, it may have met itself, sent twice by the
    client below: so nothing but the ledger tells."""
    try:
        yield
    except OnceflowError:
        raise
    except Exception as error:
        raise Indeterminate(f"{what}: the commit is in doubt: {in_a_line(error)}") from error


def _is_busy(error: BaseException) -> bool:
    """Whether another process has the database, as one that was killed may until it is gone: SQLite waits for
    it for some seconds. SQLAlchemy, if it is between, has the database's own error in `orig`."""
    of_database = getattr(error, "orig", error)
    code = getattr(of_database, "sqlite_errorcode", sqlite3.SQLITE_OK)
    return code & 0xFF in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED)  # the rest of it says how it came


def in_a_line(error: BaseException) -> str:
    """What it says, without the statements and links that SQL's client appends."""
    lines = [line.strip() for line in str(error).splitlines()]
    said = [line for line in lines if line and not line.startswith(("[SQL", "[parameters", "(Background"))]
    return f"{type(error).__name__}: {' '.join(said)}".removesuffix(": ")
