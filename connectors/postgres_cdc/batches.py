"""CdcPlanner: the changes of a table in batches, each from one place in the server's log to another.

The slot stays where the batch begins until the batch is done, so its changes can be read again.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import replace

import psycopg

from onceflow.connectors.look_pace import LookPace
from onceflow.connectors.postgres_cdc.enumerator import CdcEnumerator
from onceflow.connectors.postgres_cdc.position import CdcPosition
from onceflow.connectors.postgres_cdc.settings import (
    CdcSettings,
    Connection,
    connect,
    lsn_of,
    lsn_text,
    raised,
)
from onceflow.connectors.postgres_cdc.table_rows import emit_message
from onceflow.runtime.clock import Clock
from onceflow.runtime.contracts import BatchLimit, Json, SplitState
from onceflow.runtime.errors import OptionError

_LOOK_MS = 500
_IDLE_BYTES = 16 << 20
"""A stretch of the log of this length without a change of the table is passed by an empty batch: the server
keeps the log from the slot's place on."""
_IN_USE = "55006"
_WAIT_S = 10.0
_LOOK_S = 0.1
_PEEK = (
    "SELECT lsn::text FROM pg_logical_slot_peek_binary_changes(%s, NULL, 1, 'proto_version', '1', "
    "'publication_names', %s)"
)


class CdcPlanner:
    """A BatchPlanner. A place is a position in the log: all that was committed before it was read."""

    def __init__(self, settings: CdcSettings, name: str, clock: Clock, limit: BatchLimit) -> None:
        if settings.reads_table or settings.is_bounded:
            raise OptionError(
                'a table that is read in batches gives its changes alone: use start="slot", without bounded'
            )
        self._settings = settings
        self._name = name
        self._bytes = limit.bytes
        self._enumerator = CdcEnumerator(settings, name)
        self._pace = LookPace(clock, _LOOK_MS)
        self._held_lsn: int | None = None

    def first(self) -> Json:
        return {"position": None}

    def next(self, place: Json) -> Json:
        if place["position"] is None:
            (split,) = self._enumerator.initial_splits()
            return {"position": dict(split.position)}
        if self._held_lsn is None and not self._pace.is_due():
            return place
        position = CdcPosition.of(place["position"])
        with connect(self._settings, self._name) as connection:
            end_lsn = self._log_end(connection) if self._held_lsn is None else self._held_lsn
            if end_lsn <= position.lsn:
                return place
            is_idle = self._held_lsn is None and end_lsn - position.lsn < _IDLE_BYTES
            if is_idle and not self._has_changes(connection):
                return place
        if self._bytes is not None:
            end_lsn = min(end_lsn, position.lsn + self._bytes)
        return {"position": dict(position.at(end_lsn).to_json())}

    def hold(self) -> None:
        with connect(self._settings, self._name) as connection:
            self._held_lsn = self._log_end(connection)

    def tasks(self, begin: Json, end: Json) -> Sequence[Sequence[SplitState]]:
        if begin["position"] is None or begin == end:
            return []
        position = replace(CdcPosition.of(begin["position"]), stop_lsn=CdcPosition.of(end["position"]).lsn)
        split = SplitState(str(self._settings.table), position.to_json())
        self._enumerator.check_restored([split])
        with connect(self._settings, self._name) as connection:
            emit_message(connection)  # the server tells of a place once its log goes on behind it
        return [[split]]

    def done(self, place: Json) -> None:
        """The server may forget the log up to here. A reader that has not let go of the slot yet is waited
        for; who does not let go keeps the log until the next batch is done."""
        if place["position"] is None:
            return
        lsn = CdcPosition.of(place["position"]).lsn
        deadline = time.monotonic() + _WAIT_S
        with connect(self._settings, self._name) as connection:
            while True:
                try:
                    connection.execute(
                        "SELECT pg_replication_slot_advance(slot_name, %s::pg_lsn) FROM pg_replication_slots "
                        "WHERE slot_name = %s AND confirmed_flush_lsn < %s::pg_lsn",
                        (lsn_text(lsn), self._settings.slot, lsn_text(lsn)),
                    )
                    return
                except psycopg.Error as error:
                    if error.sqlstate != _IN_USE or time.monotonic() > deadline:
                        raise raised(error, f"{self._settings.where}: moving the slot on") from error
                time.sleep(_LOOK_S)

    def close(self) -> None:
        self._enumerator.close()

    def _log_end(self, connection: Connection) -> int:
        found = connection.execute("SELECT pg_current_wal_insert_lsn()::text").fetchone()
        assert found is not None, "it has one row"
        return lsn_of(found[0])

    def _has_changes(self, connection: Connection) -> bool:
        """Whether the slot has anything; what is being read by somebody counts as something."""
        try:
            return (
                connection.execute(_PEEK, (self._settings.slot, self._settings.publication)).fetchone()
                is not None
            )
        except psycopg.Error as error:
            if error.sqlstate == _IN_USE:
                return True
            raise raised(error, f"{self._settings.where}: looking for changes") from error
