"""CdcEnumerator: looks at the server, makes the slot at the first start, and compares it with a
checkpoint."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import replace

import psycopg

from onceflow.connectors.postgres_cdc.position import CdcPosition
from onceflow.connectors.postgres_cdc.server_checks import (
    check_publication,
    check_server,
    check_slot,
    check_table,
)
from onceflow.connectors.postgres_cdc.settings import (
    CdcSettings,
    Connection,
    connect,
    connect_for_replication,
    lsn_of,
    lsn_text,
    raised,
)
from onceflow.connectors.postgres_cdc.table_rows import emit_message
from onceflow.runtime.contracts import Json, SplitState
from onceflow.runtime.errors import DataLossError, Fatal

_LOOK_S = 0.05


class CdcEnumerator:
    """A SplitEnumerator of one split, a WaitingEnumerator and a BoundingEnumerator."""

    discovery_interval_ms = None

    def __init__(self, settings: CdcSettings, name: str) -> None:
        self._settings = settings
        self._name = name
        self._waiting: str | None = None

    def initial_splits(self) -> Sequence[SplitState]:
        """Make the slot, unless it is there, and the position before all rows. May be called again: after a
        crash the slot of the call before is taken."""
        settings = self._settings
        with connect(settings, self._name) as connection:
            try:
                check_server(connection, settings)
                key, is_number = check_table(connection, settings)
                check_publication(connection, settings)
                lsn = self._slot(connection)
                if settings.reads_table:
                    self._wait_for_writers(connection)
                stop_lsn = self._stop(connection) if settings.is_bounded else None
            except psycopg.Error as error:
                raise raised(error, settings.where) from error
        system = self._system()
        position = CdcPosition(system, key, is_number, settings.reads_table, lsn, stop_lsn=stop_lsn)
        return [SplitState(str(settings.table), position.to_json())]

    def discover(self, known: frozenset[str]) -> Sequence[SplitState]:
        return []

    def bounded(self, splits: Sequence[SplitState], finished: Json) -> Sequence[SplitState]:
        """See BoundingEnumerator."""
        positions = [CdcPosition.of(split.position) for split in splits]
        if not self._settings.is_bounded or all(each.stop_lsn is not None for each in positions):
            return splits
        with connect(self._settings, self._name) as connection:
            try:
                stop_lsn = self._stop(connection)
            except psycopg.Error as error:
                raise raised(error, self._settings.where) from error
        ended = [
            each if each.stop_lsn is not None else replace(each, stop_lsn=stop_lsn) for each in positions
        ]
        return [SplitState(s.split_id, each.to_json()) for s, each in zip(splits, ended, strict=True)]

    def check_restored(self, splits: Sequence[SplitState]) -> None:
        """Raises DataLossError where the slot can't give the log from the checkpoint on."""
        settings = self._settings
        with connect(settings, self._name) as connection:
            try:
                check_server(connection, settings)
                check_table(connection, settings)
                check_publication(connection, settings)
                found = check_slot(connection, settings)
            except psycopg.Error as error:
                raise raised(error, settings.where) from error
        for split in splits:
            position = CdcPosition.of(split.position)
            if position.is_at_stop:
                continue
            if found is None:
                raise DataLossError(
                    f"replication slot {settings.slot!r} is gone, and with it the changes of table "
                    f"{settings.table} since {lsn_text(position.lsn)}: start with a new checkpoint folder"
                )
            if found["wal_status"] == "lost":
                raise DataLossError(
                    f"replication slot {settings.slot!r} has lost its log (wal_status lost), and with it "
                    f"changes of table {settings.table} since {lsn_text(position.lsn)}: start with a new "
                    "checkpoint folder and a new slot, and raise max_slot_wal_keep_size"
                )
            confirmed = lsn_of(found["confirmed_flush_lsn"] or "0/0")
            if confirmed > position.lsn:
                raise DataLossError(
                    f"replication slot {settings.slot!r} begins at {lsn_text(confirmed)}, and the checkpoint "
                    f"goes on at {lsn_text(position.lsn)}: changes of table {settings.table} in between are "
                    "gone; start from a newer checkpoint, or with a new checkpoint folder"
                )

    def waiting_for(self) -> str | None:
        """See WaitingEnumerator."""
        return self._waiting

    def close(self) -> None:
        """Nothing is open."""

    def _slot(self, connection: Connection) -> int:
        """The place in the log where the slot begins; it is made if it is not there."""
        settings = self._settings
        found = check_slot(connection, settings)
        if found is None:
            if not settings.creates_slot:
                raise Fatal(
                    f"{settings.where}: there is no replication slot {settings.slot!r}: SELECT "
                    f"pg_create_logical_replication_slot('{settings.slot}', 'pgoutput'), or leave out "
                    "create_slot=False"
                )
            self._waiting = (
                f"replication slot {settings.slot!r} is made when the transactions that write now have ended"
            )
            connection.execute("SELECT pg_create_logical_replication_slot(%s, 'pgoutput')", (settings.slot,))
            self._waiting = None
            found = check_slot(connection, settings)
        assert found is not None, "it was made just now"
        if found["wal_status"] == "lost":
            raise Fatal(
                f"{settings.where}: replication slot {settings.slot!r} has lost its log: SELECT "
                f"pg_drop_replication_slot('{settings.slot}'), so that it is made anew"
            )
        return lsn_of(found["confirmed_flush_lsn"])

    def _wait_for_writers(self, connection: Connection) -> None:
        """Wait until every transaction is seen that may have been committed before the slot's place: else it
        would be neither in the table as it is read nor in the log."""
        newest = _number(connection, "pg_snapshot_xmax(pg_current_snapshot())")
        while _number(connection, "pg_snapshot_xmin(pg_current_snapshot())") < newest:
            self._waiting = (
                f"transactions that began before replication slot {self._settings.slot!r} have to end"
            )
            time.sleep(_LOOK_S)
        self._waiting = None

    def _stop(self, connection: Connection) -> int:
        found = connection.execute("SELECT pg_current_wal_insert_lsn()::text").fetchone()
        assert found is not None, "it has one row"
        emit_message(connection)
        return lsn_of(found[0])

    def _system(self) -> str:
        with connect_for_replication(self._settings, self._name) as connection:
            return (connection.pgconn.exec_(b"IDENTIFY_SYSTEM").get_value(0, 0) or b"").decode()


def _number(connection: Connection, expression: str) -> int:
    found = connection.execute(f"SELECT ({expression})::text".encode()).fetchone()
    assert found is not None, "a SELECT without FROM has a row"
    return int(found[0])
