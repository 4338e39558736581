"""The ledger of an owner: one row of a table beside the output, changed in the same transaction; and the lock
by which the connections of earlier attempts are found."""

from __future__ import annotations

from dataclasses import dataclass

import pymysql

from onceflow.connectors.mysql.catalog import Connection, check_transactional, find_table, identifier, rows_of
from onceflow.connectors.mysql.server_errors import number
from onceflow.connectors.sql_tables.ledger_owner import LedgerOwner
from onceflow.connectors.sql_tables.table import TableName
from onceflow.runtime.errors import Retryable

_CREATE = """
    CREATE TABLE IF NOT EXISTS {} (
        id char(64) CHARACTER SET ascii COLLATE ascii_bin NOT NULL PRIMARY KEY,
        lineage text NOT NULL, uid text NOT NULL, owner text NOT NULL, job text NOT NULL,
        attempt bigint NOT NULL, `checkpoint` bigint NOT NULL, changed timestamp(6) NOT NULL)
    ENGINE=InnoDB DEFAULT CHARSET=utf8mb4
"""
_CLAIM = """
    INSERT INTO {} (id, lineage, uid, owner, job, attempt, `checkpoint`, changed)
    VALUES (%s, %s, %s, %s, %s, %s, 0, now(6))
    ON DUPLICATE KEY UPDATE changed = IF(attempt <= VALUES(attempt), now(6), changed),
                            attempt = GREATEST(attempt, VALUES(attempt))
"""
_ADVANCE = """
    UPDATE {} SET `checkpoint` = %s, changed = now(6)
    WHERE id = %s AND attempt = %s AND `checkpoint` < %s
"""
_READ = "SELECT attempt, `checkpoint` FROM {} WHERE id = %s"
_NO_SUCH_CONNECTION, _ANOTHER_USERS = 1094, 1095
_LOCK_S = 5


@dataclass(frozen=True, slots=True)
class Ledger:
    """Where an owner's ledger is, and who writes under it."""

    table: TableName
    owner: LedgerOwner

    def create(self, connection: Connection, where: str) -> None:
        """Make the table if it is not there. Ends a transaction; raises Fatal if it could not be trusted."""
        found = find_table(connection, self.table)
        if found is None:
            with connection.cursor() as cursor:
                cursor.execute(_CREATE.format(identifier(self.table)))
            found = find_table(connection, self.table)
        if found is not None:
            check_transactional(found, where)

    def end_older(self, connection: Connection) -> None:
        """End the connection of whoever wrote under this ledger before, which has a lock of this name, and
        take the lock: one that hangs, or is frozen, would hold the ledger's row for ever. The connection of
        another user can't be ended; then the claim waits for it. Raises Fenced if a newer attempt has the
        ledger, Retryable if the lock can't be had now."""
        read = rows_of(connection, _READ.format(identifier(self.table)), [self.owner.digest])
        if read and read[0][0] > self.owner.attempt:
            raise self.owner.fenced()
        ((holder, own),) = rows_of(connection, "SELECT is_used_lock(%s), connection_id()", [self._lock])
        if holder is not None and holder != own:
            self._kill(connection, holder)
        ((is_taken,),) = rows_of(connection, "SELECT get_lock(%s, %s)", [self._lock, _LOCK_S])
        if is_taken != 1:
            raise Retryable(
                f"another connection writes the output of sink {self.owner.uid!r}, subtask {self.owner.owner}"
            )

    def claim(self, connection: Connection) -> int:
        """Put our attempt into the row, and read the checkpoint. Waits for whoever has the row locked. Raises
        Fenced if a newer attempt has it."""
        owner = self.owner
        connection.begin()
        with connection.cursor() as cursor:
            cursor.execute(
                _CLAIM.format(identifier(self.table)), (owner.digest, *owner.key, owner.job, owner.attempt)
            )
        query = f"{_READ.format(identifier(self.table))} FOR UPDATE"
        ((attempt, checkpoint_id),) = rows_of(connection, query, [owner.digest])
        if attempt != owner.attempt:
            raise owner.fenced()
        connection.commit()
        return int(checkpoint_id)

    def advance(self, connection: Connection, checkpoint_id: int) -> None:
        """In the transaction with the rows, and before them: from here on no other attempt can claim it until
        this transaction has ended. Raises Fenced if one already has; Retryable if the ledger is there
        already: a claim says so."""
        owner = self.owner
        with connection.cursor() as cursor:
            values = (checkpoint_id, owner.digest, owner.attempt, checkpoint_id)
            if cursor.execute(_ADVANCE.format(identifier(self.table)), values) == 1:
                return
        read = rows_of(connection, _READ.format(identifier(self.table)), [owner.digest])
        raise owner.not_advanced(*(read[0] if read else (None, None)))

    @property
    def _lock(self) -> str:
        """The name of the lock: at most 64 characters, as the server wants it."""
        return f"onceflow {self.owner.digest[:48]}"

    def _kill(self, connection: Connection, holder: int) -> None:
        with connection.cursor() as cursor:
            try:
                cursor.execute(f"KILL CONNECTION {int(holder)}")
            except pymysql.Error as error:
                if number(error) not in (_NO_SUCH_CONNECTION, _ANOTHER_USERS):
                    raise
