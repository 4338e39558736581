"""CdcReader: the table's rows, then its changes from the log."""

from __future__ import annotations

import collections
import dataclasses
import json
import threading
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from onceflow.connectors.bad_records import bad_record_error
from onceflow.connectors.postgres_cdc.log_rows import LogRow, LogRows
from onceflow.connectors.postgres_cdc.messages import Value
from onceflow.connectors.postgres_cdc.position import CdcPosition, Key
from onceflow.connectors.postgres_cdc.settings import CdcSettings, application_name
from onceflow.connectors.postgres_cdc.stream import ReplicationStream
from onceflow.connectors.postgres_cdc.table_rows import TableRows
from onceflow.connectors.postgres_cdc.text_columns import to_batch
from onceflow.connectors.reconnects import Reconnects
from onceflow.runtime.contracts import Fetch, ReaderContext, SplitState
from onceflow.runtime.contracts.dead_letters import DEAD_LETTER_SCHEMA
from onceflow.runtime.errors import Retryable

Taken = tuple[Key, Sequence[Value], LogRow | None]


@dataclass(frozen=True, slots=True)
class Added:
    """What is beside the table's columns."""

    schema: pa.Schema
    """The columns of the rows, in their order: those of the table, then these."""
    commit_time: str | None
    lsn: str | None
    tolerates_bad: bool


class CdcReader:
    """A SourceReader and an AcknowledgingReader of the one split. The server may forget the log up to where
    the last complete checkpoint is, and hears it when that is complete."""

    def __init__(self, settings: CdcSettings, added: Added, context: ReaderContext) -> None:
        self._settings = settings
        self._added = added
        self._context = context
        self._name = application_name(context.job, context.uid)
        self._split_id = ""
        self._position: CdcPosition | None = None
        self._is_finished = False
        self._table: TableRows | None = None
        self._stream: ReplicationStream | None = None
        self._log: LogRows | None = None
        self._pending: collections.deque[LogRow | int] = collections.deque()
        self._has_begun = False
        """Whether a stream of this reader has begun: from then on nobody older has the slot."""
        self._was_at_end = False
        self._lock = threading.Lock()
        self._frozen: dict[int, int] = {}
        """Where in the log each checkpoint is."""
        self._confirmed_lsn = 0
        self._reconnects = Reconnects(context.clock, context.on_wait, settings.timeout_ms)

    def add_splits(self, splits: Sequence[SplitState]) -> None:
        for split in splits:
            self._split_id = split.split_id
            self._position = CdcPosition.of(split.position)

    def poll(self, timeout_ms: int, records_max: int) -> Fetch | None:
        """The next rows; there is no waiting."""
        position = self._position
        if position is None or self._is_finished or not self._reconnects.is_time:
            return None
        try:
            if position.is_reading_table:
                return self._poll_table(position, records_max)
            return self._poll_log(position, records_max)
        except Retryable as error:
            self._again(error)
            return None

    def snapshot(self) -> Sequence[SplitState]:
        if self._position is None:
            return []
        return [SplitState(self._split_id, self._now().to_json())]

    def on_barrier(self, checkpoint_id: int) -> None:
        """See AcknowledgingReader."""
        if self._position is not None:
            with self._lock:
                self._frozen[checkpoint_id] = self._now().lsn

    def on_completed(self, checkpoint_id: int) -> None:
        """See AcknowledgingReader: the server hears it within some tenths of a second, on another thread."""
        with self._lock:
            lsn = self._frozen.get(checkpoint_id, 0)
            self._frozen = {number: at for number, at in self._frozen.items() if number > checkpoint_id}
            self._confirmed_lsn = max(lsn, self._confirmed_lsn)
            stream = self._stream
        if stream is not None:
            stream.confirm(lsn)

    def publish_offsets(self, splits: Sequence[SplitState]) -> None:
        """The slot's own place in the log is what monitors look at: see on_completed."""

    def close(self) -> None:
        self._let_go()

    # --- Parts ---

    def _now(self) -> CdcPosition:
        assert self._position is not None, "a split was added"
        if self._log is None:
            return self._position
        return dataclasses.replace(self._log.position(), rows=self._position.rows)

    def _poll_table(self, position: CdcPosition, records_max: int) -> Fetch | None:
        if self._table is None:
            self._table = TableRows(self._settings, position, self._name)
            position = position.begin_range(self._table.snapshot, self._table.high_lsn)
        rows = self._table.take(records_max)
        self._is_there()
        if rows:
            self._position = position.after_rows(rows[-1][0], len(rows))
            return self._fetch([(key, values, None) for key, values in rows], position.rows)
        self._table.end()
        self._table = None
        self._position = position.after_table()
        return None

    def _poll_log(self, position: CdcPosition, records_max: int) -> Fetch | None:
        if position.is_at_stop:
            return self._finish(position)
        stream, log = self._opened(position)
        taken: list[Taken] = []
        is_at_end = False
        while len(taken) < records_max:
            if not self._pending:
                data = stream.take() if not taken else _next(stream)
                if data is None:
                    break
                self._pending.extend(log.feed(data))
                is_at_end = isinstance(data, int)
                continue
            what = self._pending.popleft()
            log.took(what)
            if isinstance(what, LogRow):
                taken.append((what.key, what.values, what))
            elif log.position().is_at_stop:
                break
        if stream.has_begun:
            self._is_there()
        self._position = dataclasses.replace(self._now(), rows=position.rows + len(taken))
        if taken:
            self._was_at_end = False
            return self._fetch(taken, position.rows)
        if is_at_end and not self._was_at_end and not self._position.is_at_stop:
            self._was_at_end = True
            return dataclasses.replace(self._fetch([], 0), at_end=frozenset({self._split_id}))
        return None

    def _opened(self, position: CdcPosition) -> tuple[ReplicationStream, LogRows]:
        if self._stream is None or self._log is None:
            self._log = LogRows(self._settings, position)
            stream = ReplicationStream(
                self._settings,
                self._name,
                position.lsn,
                position.system,
                self._context.clock,
                self._context.wake,
                takes_over=not self._has_begun,
            )
            with self._lock:
                self._stream = stream
                stream.confirm(self._confirmed_lsn)
        return self._stream, self._log

    def _finish(self, position: CdcPosition) -> Fetch:
        self._let_go()
        self._position = position
        self._is_finished = True
        return dataclasses.replace(self._fetch([], 0), finished=frozenset({self._split_id}))

    def _is_there(self) -> None:
        """The server answers."""
        self._has_begun = self._has_begun or self._stream is not None
        self._reconnects.worked()

    def _again(self, error: Retryable) -> None:
        """Let go of what does not work; a later poll tries again. Raises Unavailable when the time is up."""
        if self._log is not None:
            self._position = self._now()
        self._let_go()
        self._reconnects.failed(error)

    def _let_go(self) -> None:
        """Close what is open. What was taken from the log, and is not in the position, comes again."""
        if self._table is not None:
            self._table.close()
        with self._lock:
            stream, self._stream = self._stream, None
        if stream is not None:
            stream.close()
        self._table, self._log = None, None
        self._pending.clear()

    def _fetch(self, taken: Sequence[Taken], first: int) -> Fetch:
        """`first`: how many rows were read before these."""
        rows, bad = to_batch([values for _, values, _ in taken], self._settings.schema)
        out = {each.row for each in bad}
        kept = [place for place in range(len(taken)) if place not in out]
        logged = [taken[place][2] for place in kept]
        kinds = None
        if any(each is not None for each in logged):
            kinds = np.array([0 if each is None else each.kind for each in logged], np.int8)
        letters = [(first + each.row, taken[each.row], each.reason) for each in bad]
        return Fetch(
            self._with_added(rows, logged),
            np.zeros(len(kept), np.uint16),
            (self._split_id,),
            np.array(kept, np.int64) + first if self._context.with_origin else None,
            dead_letters=self._dead_letters(letters) if letters else None,
            kind=kinds,
        )

    def _with_added(self, rows: pa.RecordBatch, logged: Sequence[LogRow | None]) -> pa.RecordBatch:
        arrays = list(rows.columns)
        if self._added.commit_time is not None:
            times = [None if each is None else each.begin.at_ms for each in logged]
            arrays.append(pa.array(times, pa.timestamp("ms", "UTC")))
        if self._added.lsn is not None:
            lsns = [None if each is None else each.begin.commit_lsn for each in logged]
            arrays.append(pa.array(lsns, pa.int64()))
        if not arrays:
            return rows
        return pa.RecordBatch.from_arrays(arrays, schema=self._added.schema)

    def _dead_letters(self, letters: Sequence[tuple[int, Taken, str]]) -> pa.RecordBatch:
        names = self._settings.schema.names
        if not self._added.tolerates_bad:
            _, (key, _, _), reason = letters[0]
            raise bad_record_error(f"{self._settings.where}: the row with the key {', '.join(key)}", reason)
        rows = [
            {
                "topic": str(self._settings.table),
                "partition": 0,
                "offset": number,
                "timestamp": None if logged is None else logged.begin.at_ms,
                "key": json.dumps(key).encode(),
                "value": json.dumps(dict(zip(names, map(_shown, values), strict=True))).encode(),
                "reason": reason,
                "stage": "value",
            }
            for number, (key, values, logged), reason in letters
        ]
        return pa.RecordBatch.from_pylist(rows, schema=DEAD_LETTER_SCHEMA)


def _next(stream: ReplicationStream) -> bytes | int | None:
    """The next of it, if there is one; what ended the stream is told once nothing is left."""
    try:
        return stream.take()
    except Retryable:
        return None


def _shown(value: Value) -> str | None:
    return value.decode(errors="replace") if isinstance(value, bytes) else None
