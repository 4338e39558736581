"""The ledger of an owner: one row of a table beside the output, changed in the same transaction."""

from __future__ import annotations

from dataclasses import dataclass

import psycopg
from psycopg import sql

from onceflow.connectors.postgres.catalog import identifier
from onceflow.connectors.sql_tables.ledger_owner import LedgerOwner
from onceflow.connectors.sql_tables.table import TableName

Connection = psycopg.Connection[tuple[object, ...]]

_CREATE = """
    CREATE TABLE IF NOT EXISTS {} (
        lineage text, uid text, owner text, job text NOT NULL, attempt bigint NOT NULL,
        checkpoint bigint NOT NULL, changed timestamptz NOT NULL DEFAULT now(),
        PRIMARY KEY (lineage, uid, owner))
"""
_CLAIM = """
    INSERT INTO {} AS ledger (lineage, uid, owner, job, attempt, checkpoint) VALUES (%s, %s, %s, %s, %s, 0)
    ON CONFLICT (lineage, uid, owner) DO UPDATE SET attempt = excluded.attempt, changed = now()
    WHERE ledger.attempt <= excluded.attempt RETURNING checkpoint
"""
_ADVANCE = """
    UPDATE {} SET checkpoint = %s, changed = now()
    WHERE lineage = %s AND uid = %s AND owner = %s AND attempt = %s AND checkpoint < %s
"""
_READ = "SELECT attempt, checkpoint FROM {} WHERE lineage = %s AND uid = %s AND owner = %s"
_END_OLDER = """
    SELECT pg_terminate_backend(pid) FROM pg_stat_activity
    WHERE pid <> pg_backend_pid() AND usename = current_user AND starts_with(application_name, %s)
          AND split_part(application_name, ' ', 3)::bigint <= %s
"""

_PREPARED = """
    SELECT gid FROM pg_prepared_xacts
    WHERE owner = current_user AND database = current_database() AND starts_with(gid, %s)
          AND split_part(gid, ' ', 3)::bigint <= %s AND split_part(gid, ' ', 4)::bigint > %s
"""
_OWNERS = "SELECT owner FROM {} WHERE lineage = %s AND uid = %s"


@dataclass(frozen=True, slots=True)
class Ledger:
    """Where an owner's ledger is, and who writes under it."""

    table: TableName
    owner: LedgerOwner

    @property
    def application_name(self) -> str:
        """What the connections of this attempt are called in pg_stat_activity, by which a later one finds and
        ends them. At most 63 bytes."""
        return f"{self._owner_name()}{self.owner.attempt}"

    def prepared_name(self, checkpoint_id: int) -> str:
        """What the prepared transaction of this owner for a checkpoint is called; at most 200 bytes."""
        return f"{self.application_name} {checkpoint_id}"

    def prepared_after(self, connection: Connection, checkpoint_id: int) -> list[str]:
        """The prepared transactions of this owner, of this attempt and those before it, for checkpoints after
        this one."""
        return [
            str(row[0])
            for row in connection.execute(_PREPARED, (self._owner_name(), self.owner.attempt, checkpoint_id))
        ]

    def other_owners(self, connection: Connection, parallelism: int) -> list[str]:
        """The owners that have a ledger, and that no subtask is now."""
        owners = connection.execute(sql.SQL(_OWNERS).format(identifier(self.table)), self.owner.key[:2])
        return [str(row[0]) for row in owners if int(str(row[0])) >= parallelism]

    def create(self, connection: Connection) -> None:
        """Make the table if it is not there. Two at once may collide: try again."""
        connection.execute(sql.SQL(_CREATE).format(identifier(self.table)))

    def end_older(self, connection: Connection) -> None:
        """End the connections of earlier attempts and earlier ones of this one: their transactions are over
        when the row can be locked. One that hangs, or is frozen, would hold the row for ever. Another role's
        can't be ended; the claim waits for them."""
        connection.execute(_END_OLDER, (self._owner_name(), self.owner.attempt))

    def check_newest(self, connection: Connection) -> None:
        """Raises Fenced if a newer attempt has claimed it. Does not wait for who has the row locked."""
        row = connection.execute(sql.SQL(_READ).format(identifier(self.table)), self.owner.key).fetchone()
        if row is not None and int(str(row[0])) > self.owner.attempt:
            raise self.owner.fenced()

    def claim(self, connection: Connection) -> int:
        """Put our attempt into the row, and read the checkpoint. Waits for whoever has the row locked. Raises
        Fenced if a newer attempt has it."""
        values = (*self.owner.key, self.owner.job, self.owner.attempt)
        row = connection.execute(sql.SQL(_CLAIM).format(identifier(self.table)), values).fetchone()
        if row is None:
            raise self.owner.fenced()
        return int(row[0])  # type: ignore[call-overload, no-any-return]

    def advance(self, connection: Connection, checkpoint_id: int) -> None:
        """In the transaction with the rows, and before them: from here on no other attempt can claim it until
        this transaction has ended. Raises Fenced if one already has; Retryable if the ledger is there
        already: a claim says so."""
        values = (checkpoint_id, *self.owner.key, self.owner.attempt, checkpoint_id)
        done = connection.execute(sql.SQL(_ADVANCE).format(identifier(self.table)), values)
        if done.rowcount == 1:
            return
        row = connection.execute(sql.SQL(_READ).format(identifier(self.table)), self.owner.key).fetchone()
        attempt, at = (None, None) if row is None else (int(str(row[0])), int(str(row[1])))
        raise self.owner.not_advanced(attempt, at)

    def _owner_name(self) -> str:
        return f"onceflow {self.owner.digest[:32]} "
