"""What PostgreSQL's errors mean for whoever writes."""

from __future__ import annotations

import psycopg
import pytest

from onceflow.connectors.postgres.server_errors import meaning, meaning_of_commit
from onceflow.connectors.sql_tables.session import BadRowsError
from onceflow.runtime.errors import Fatal, Indeterminate, Retryable


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        (psycopg.errors.DuplicateObject('type "totals" already exists'), Retryable),
        (psycopg.errors.DuplicateTable('relation "totals" already exists'), Retryable),
        (psycopg.errors.DuplicateColumn('column "n" already exists'), Fatal),
    ],
)
def test_a_table_that_another_subtask_has_just_created_is_no_failure_of_the_job(
    error: psycopg.Error, kind: type[Exception]
) -> None:
    """IF NOT EXISTS does not keep two subtasks from creating it at one time."""
    assert isinstance(meaning(error, "claiming its ledger"), kind)


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        (psycopg.errors.DeadlockDetected("deadlock detected"), Retryable),
        (psycopg.errors.SerializationFailure("could not serialize access"), Retryable),
        (psycopg.errors.LockNotAvailable("canceling statement due to lock timeout"), Retryable),
        (psycopg.errors.AdminShutdown("terminating connection"), Retryable),
        (psycopg.errors.DiskFull("could not extend file"), Retryable),
        (psycopg.errors.ReadOnlySqlTransaction("cannot execute INSERT"), Retryable),
        (psycopg.OperationalError("server closed the connection unexpectedly"), Retryable),
        (psycopg.OperationalError('FATAL: password authentication failed for user "shop"'), Fatal),
        (psycopg.errors.DatabaseDropped("the database was dropped"), Fatal),
        (psycopg.errors.InsufficientPrivilege("permission denied for table totals"), Fatal),
        (psycopg.errors.UndefinedTable('relation "totals" does not exist'), Fatal),
        (psycopg.errors.UniqueViolation("duplicate key"), BadRowsError),
        (psycopg.errors.NumericValueOutOfRange("integer out of range"), BadRowsError),
        (psycopg.errors.RaiseException("a trigger says no"), BadRowsError),
    ],
)
def test_what_passes_by_itself_is_tried_again(error: psycopg.Error, kind: type[Exception]) -> None:
    assert type(meaning(error, "writing")) is kind


def test_only_an_answer_says_for_sure_that_a_commit_is_not_done() -> None:
    for error in (psycopg.errors.SerializationFailure("x"), psycopg.errors.DeadlockDetected("x")):
        assert isinstance(meaning_of_commit(error), Retryable)
    for lost in (psycopg.OperationalError("connection lost"), psycopg.errors.AdminShutdown("x")):
        assert isinstance(meaning_of_commit(lost), Indeterminate)
