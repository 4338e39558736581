"""PostgresTarget: an owner's rows and its ledger in one transaction of PostgreSQL, prepared or not."""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa

from onceflow.connectors.postgres.session import PostgresDialect, PostgresSession
from onceflow.connectors.postgres.settings import PostgresSettings
from onceflow.connectors.sql_tables.ledger_owner import LedgerOwner
from onceflow.connectors.sql_tables.target import Output, SqlTarget
from onceflow.runtime.errors import Indeterminate


class PostgresTarget:
    """A Target, that also knows prepared transactions."""

    def __init__(self, settings: PostgresSettings, owner: LedgerOwner) -> None:
        dialect = PostgresDialect(settings, owner)
        output = Output(owner.uid, settings.table, settings.bad_rows is not None)
        self._where, self._ledger = dialect.where, dialect.ledger
        self._target: SqlTarget[PostgresSession] = SqlTarget(dialect, output)

    def claim(self) -> int:
        return self._target.claim()

    def commit(self, checkpoint_id: int, rows: Iterator[pa.RecordBatch]) -> None:
        self._target.commit(checkpoint_id, rows)

    def prepare(self, checkpoint_id: int, rows: Iterator[pa.RecordBatch]) -> str:
        """Write these rows, and the ledger at `checkpoint_id`, in a transaction that waits for
        `commit_prepared`, and outlives the connection and this process. Returns its name. Raises as `commit`
        does; the next try begins with `settle`."""
        name = self._ledger.prepared_name(checkpoint_id)
        self._target.end_with("preparing", checkpoint_id, rows, lambda session: session.prepare(name))
        return name

    def commit_prepared(self, name: str) -> None:
        """Make a prepared transaction visible. Raises Indeterminate whatever goes wrong: `settle` tells."""
        session = self._target.session
        if session is None:
            raise Indeterminate(f"{self._where} has no connection")
        try:
            session.commit_prepared(name)
        except Indeterminate:
            self._target.close()
            raise

    def settle(self, promised: str | None, after: int) -> int:
        """Connect, end what earlier attempts have open, roll back what is prepared for checkpoints later than
        `after`, commit what is promised if it is there still, and claim the ledger; returns what that says.
        Raises what `claim` does."""
        return self._target.in_new_session(
            "settling prepared transactions", lambda session: session.settle(promised, after)
        )

    def other_owners(self, parallelism: int) -> list[str]:
        """Owners with a ledger that no subtask is now. Called after `settle`."""
        session = self._target.session
        assert session is not None, "it was settled"
        return self._ledger.other_owners(session.connection, parallelism)

    def close(self) -> None:
        self._target.close()
