"""ReplicationStream: the log from a slot, taken on a thread of its own, which also tells the server how far
checkpoints have come."""

from __future__ import annotations

import collections
import select
import threading
from collections.abc import Callable
from contextlib import suppress
from struct import Struct

import psycopg
from psycopg import pq, sql

from onceflow.connectors.postgres_cdc.messages import EPOCH_MS
from onceflow.connectors.postgres_cdc.settings import (
    CdcSettings,
    Connection,
    connect,
    connect_for_replication,
    lsn_text,
    raised,
)
from onceflow.runtime.clock import Clock
from onceflow.runtime.errors import DataLossError, Fatal, OnceflowError, Retryable

_QUEUE_BYTES = 8 << 20
_WAIT_S = 0.2
"""How soon the thread sees that a checkpoint is complete, or that it is to end."""
_TELL_MS = 10_000
_XLOG = Struct(">cQQq")
_KEEPALIVE = Struct(">cQqB")
_STATUS = Struct(">cQQQqB")
_IN_USE = "55006"
_COPY_BOTH = 8
_GONE = ("can no longer get changes", "cannot read from logical replication slot", "WAL segment")


class ReplicationStream:
    """What the log has from `start_lsn` on: messages of pgoutput as bytes, and numbers: the server has sent
    all that was committed before that place.

    `on_wake` is called when something has come. `takes_over`: a connection of this name that has the slot is
    an older attempt's, and is ended.
    """

    def __init__(
        self,
        settings: CdcSettings,
        name: str,
        start_lsn: int,
        system: str,
        clock: Clock,
        on_wake: Callable[[], None],
        *,
        takes_over: bool,
    ) -> None:
        self._settings = settings
        self._name = name
        self._start_lsn = start_lsn
        self._system = system
        self._clock = clock
        self._on_wake = on_wake
        self._takes_over = takes_over
        self._queue: collections.deque[bytes | int] = collections.deque()
        self._bytes = 0
        self._changed = threading.Condition()
        self._closed = threading.Event()
        self._error: OnceflowError | None = None
        self._received_lsn = start_lsn
        self._confirmed_lsn = 0
        """Up to where the server may forget."""
        self.has_begun = False
        """Whether the server has begun to send."""
        self._thread = threading.Thread(target=self._run, name="onceflow-postgres-cdc", daemon=True)
        self._thread.start()

    def take(self) -> bytes | int | None:
        """The next of it; None: there is none now. Raises what ended the thread, once all before it is taken:
        Retryable (begin a new stream), Fatal."""
        with self._changed:
            if self._queue:
                found = self._queue.popleft()
                self._bytes -= len(found) if isinstance(found, bytes) else 0
                if self._bytes <= _QUEUE_BYTES // 2:
                    self._changed.notify_all()
                return found
            if self._error is not None:
                raise self._error
        return None

    def confirm(self, lsn: int) -> None:
        """All before `lsn` is in a complete checkpoint. On any thread."""
        self._confirmed_lsn = max(self._confirmed_lsn, lsn)

    def close(self) -> None:
        """Tell the server a last time how far checkpoints have come, and give the slot free."""
        self._closed.set()
        with self._changed:
            self._changed.notify_all()
        self._thread.join(5)

    # --- The thread ---

    def _run(self) -> None:
        try:
            self._receive()
        except psycopg.Error as error:
            self._end(raised(error, f"{self._settings.where}: reading its changes"))
        except OnceflowError as error:
            self._end(error)
        except Exception as error:  # a bug: told where it is polled, and not on a thread that nobody sees
            self._end(Fatal(f"{self._settings.where}: {type(error).__name__}: {error}"))

    def _end(self, error: OnceflowError) -> None:
        with self._changed:
            self._error = error
        self._on_wake()

    def _receive(self) -> None:
        connection = connect_for_replication(self._settings, self._name)
        try:
            self._begin(connection)
            told_ms = self._clock.monotonic_ms()
            told_lsn = 0
            while not self._closed.is_set():
                asked = self._take_in(connection)
                now_ms, confirmed = self._clock.monotonic_ms(), self._confirmed_lsn
                if asked or confirmed != told_lsn or now_ms - told_ms >= _TELL_MS:
                    self._tell(connection, confirmed)
                    told_ms, told_lsn = now_ms, confirmed
                self._wait(connection)
            with suppress(psycopg.Error):
                self._tell(connection, self._confirmed_lsn)
                connection.pgconn.put_copy_end()
                connection.pgconn.flush()
        finally:
            connection.close()

    def _begin(self, connection: Connection) -> None:
        settings, pgconn = self._settings, connection.pgconn
        found = pgconn.exec_(b"IDENTIFY_SYSTEM")
        system = (found.get_value(0, 0) or b"").decode()
        if system != self._system:
            raise DataLossError(
                f"{settings.where}: the checkpoint was made with another database cluster ({self._system}) "
                f"than this one ({system}), so its place in the log means nothing here: start with a new "
                "checkpoint folder"
            )
        command = sql.SQL("START_REPLICATION SLOT {} LOGICAL").format(sql.Identifier(settings.slot))
        options = sql.SQL("(proto_version '1', publication_names {})").format(
            sql.Literal(sql.Identifier(settings.publication).as_string(connection))
        )
        words = (
            command.as_bytes(connection),
            lsn_text(self._start_lsn).encode(),
            options.as_bytes(connection),
        )
        result = pgconn.exec_(b" ".join(words))
        if result.status != _COPY_BOTH:
            self._refused(psycopg.errors.error_from_result(result, encoding="utf-8"))
        pgconn.nonblocking = 1
        self.has_begun = True

    def _refused(self, error: psycopg.Error) -> None:
        text = str(error).strip().splitlines()[0]
        slot = self._settings.slot
        if error.sqlstate == _IN_USE:
            if self._takes_over:
                end_older_connection(self._settings, self._name)
            raise Retryable(f"replication slot {slot!r} is in use by another connection: {text}")
        if any(sign in text for sign in _GONE):
            raise DataLossError(
                f"replication slot {slot!r} has lost its log ({text}): changes of table "
                f"{self._settings.table} are gone; start with a new checkpoint folder and a new slot, and "
                "raise max_slot_wal_keep_size"
            )
        raise raised(error, f"{self._settings.where}: starting from replication slot {slot!r}")

    def _take_in(self, connection: Connection) -> bool:
        """Take what is there, as far as it fits; whether the server asks for an answer."""
        asked, came = False, False
        pgconn = connection.pgconn
        pgconn.consume_input()
        while self._bytes < _QUEUE_BYTES:
            size, data = pgconn.get_copy_data(1)
            if size == 0:
                break
            if size < 0:
                result = pgconn.get_result()
                if result is not None and result.status == pq.ExecStatus.FATAL_ERROR:
                    self._refused(psycopg.errors.error_from_result(result, encoding="utf-8"))
                raise Retryable(f"{self._settings.where}: the server has ended the stream of changes")
            message = bytes(data)
            came = True
            if message[:1] == b"w":
                self._received_lsn = max(self._received_lsn, _XLOG.unpack_from(message)[1])
                self._put(message[_XLOG.size :])
            elif message[:1] == b"k":
                _, sent_lsn, _, asks = _KEEPALIVE.unpack_from(message)
                self._received_lsn = max(self._received_lsn, sent_lsn)
                self._put(sent_lsn)
                asked = asked or bool(asks)
        if came:
            self._on_wake()
        return asked

    def _put(self, what: bytes | int) -> None:
        with self._changed:
            self._queue.append(what)
            self._bytes += len(what) if isinstance(what, bytes) else 0

    def _tell(self, connection: Connection, confirmed_lsn: int) -> None:
        now_us = (self._clock.now_ms() - EPOCH_MS) * 1000
        status = _STATUS.pack(b"r", self._received_lsn, confirmed_lsn, confirmed_lsn, now_us, 0)
        connection.pgconn.put_copy_data(status)
        connection.pgconn.flush()

    def _wait(self, connection: Connection) -> None:
        if self._bytes < _QUEUE_BYTES:
            select.select([connection.pgconn.socket], [], [], _WAIT_S)
            return
        with self._changed:
            if self._bytes > _QUEUE_BYTES // 2 and not self._closed.is_set():
                self._changed.wait(_WAIT_S)


def end_older_connection(settings: CdcSettings, name: str) -> None:
    """An attempt that died without a word, or stands still, keeps the slot: end its connection."""
    with connect(settings, name) as connection:
        connection.execute(
            "SELECT pg_terminate_backend(s.active_pid) FROM pg_replication_slots s "
            "JOIN pg_stat_replication r ON r.pid = s.active_pid "
            "WHERE s.slot_name = %s AND r.application_name = %s",
            (settings.slot, name),
        )
