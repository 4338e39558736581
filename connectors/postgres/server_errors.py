"""What an error of the server means for whoever writes. Pure."""

from __future__ import annotations

import psycopg

from onceflow.connectors.sql_tables.session import BadRowsError
from onceflow.runtime.errors import Fatal, Indeterminate, OnceflowError, Retryable

_BAD_VALUES = ("22", "23")
"""The classes of SQLSTATE for data exceptions and violated constraints."""
_RAISED = "P0001"
"""RAISE EXCEPTION in a trigger."""
_CREATED_MEANWHILE = ("42P07", "42710")
"""CREATE TABLE IF NOT EXISTS, of two subtasks at one time, finds a table or its type that was not there when
it looked; or a key of PostgreSQL's own catalogue, whose tables no row of a user's is in."""
_PASSING = ("08", "25", "40", "53", "55", "57", "58", "XX")
"""The connection, a standby that takes no writes, rollback, resources, a lock, an operator, I/O."""
_HOPELESS_ANSWERS = (
    "password authentication failed",
    "no pg_hba.conf entry",
    "no password supplied",
    "does not exist",
    "certificate",
)
"""libpq has no SQLSTATE for a connection that is refused: only its sentence, in the server's language."""


def meaning(error: psycopg.Error, doing: str) -> OnceflowError | BadRowsError:
    """What to raise for an error of a statement before COMMIT, or of connecting: nothing was committed."""
    state, text = error.sqlstate or "", _first_line(error)
    diagnosis = error.diag
    if state in _CREATED_MEANWHILE or diagnosis.schema_name == "pg_catalog":
        return Retryable(f"{doing}: {text} (SQLSTATE {state})")
    if state[:2] in _BAD_VALUES or state == _RAISED:
        return BadRowsError(text, diagnosis.constraint_name or diagnosis.column_name or "", state)
    if not state:
        if isinstance(error, psycopg.OperationalError) and not any(a in text for a in _HOPELESS_ANSWERS):
            return Retryable(f"{doing}: {text}")
        return Fatal(f"{doing}: {text}")
    if state[:2] in _PASSING and state != "57P04":  # the database was dropped
        return Retryable(f"{doing}: {text} (SQLSTATE {state})")
    return Fatal(f"{doing}: {text} (SQLSTATE {state})")


def meaning_of_commit(error: psycopg.Error) -> OnceflowError | BadRowsError:
    """What to raise for an error of COMMIT itself."""
    state = error.sqlstate or ""
    if not state or state[:2] in ("08", "57", "58", "XX"):
        return Indeterminate(f"the commit has no answer: {_first_line(error)}")
    return meaning(error, "committing")


def _first_line(error: psycopg.Error) -> str:
    """The first line of an error, without what libpq says below it; the detail names the key of a violated
    constraint."""
    text = (str(error).strip().splitlines() or [type(error).__name__])[0]
    detail = error.diag.message_detail
    return (f"{text}: {detail}" if detail and detail not in text else text).rstrip(".")
