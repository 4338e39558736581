"""What PostgreSQL's errors mean for whoever writes."""

from __future__ import annotations

import psycopg
import pytest

from onceflow.connectors.postgres.server_errors import meaning
from onceflow.runtime.errors import Fatal, Retryable


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
