"""WindowOperator: a table of (key, window), results out when the watermark passes a window's end.

What is computed per window is its WindowValues: built-in and user aggregates, or a reduce function.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

import numpy as np
import pyarrow as pa

from onceflow.runtime.contracts import Json
from onceflow.runtime.errors import Fatal
from onceflow.runtime.operators.aggregation.accumulator import SumOverflow
from onceflow.runtime.operators.assigners.sliding import Sliding
from onceflow.runtime.operators.assigners.tumbling import Tumbling
from onceflow.runtime.operators.operator import FrozenState, OperatorContext, Output, RestoredState
from onceflow.runtime.operators.windows.lateness import Lateness
from onceflow.runtime.records import Indices, Int64s, Records
from onceflow.runtime.state.asked_keys import AskedKeys
from onceflow.runtime.state.overflow import InMemory, Overflow, make_room
from onceflow.runtime.state.table import DueRows, RowColumn
from onceflow.runtime.state.tables import Layout, keyed_table

LATE = "late"
"""The tag of the side output for rows that came after their window had fired."""

TABLE = "windows"
EMIT_ROWS_MAX = 1 << 15
_BY_START = 0
"""The kind of times at which rows come back that are away: their window's start."""
_WOKEN_MAX = 1 << 13
"""How many of them come back at a time."""


class WindowResults(Protocol):
    """What can be made into output."""

    def results(self, keys: pa.RecordBatch, start: Int64s, end: Int64s, rows: Indices) -> pa.RecordBatch:
        """The output of these rows, of the output's schema."""
        ...


class WindowValues(WindowResults, RowColumn, Protocol):
    """What a window operator keeps by row, and what it makes of it when the window fires."""

    @property
    def functions(self) -> Sequence[Any]:
        """What is called of the user's: to be opened before the first record."""
        ...

    def update(self, records: Records, rows: Indices) -> None:
        """Take in a batch: the row of the table for each of its records."""
        ...

    def merge(self, into: Indices, rows: Indices) -> None:
        """Take in, for each row of `into`, what is in the other one, in this order. None is in both. Raises
        SumOverflow."""
        ...


class WindowOperator:
    """One subtask of event-time windows, with a row of its table for each key and window.

    A window fires once: when the watermark reaches its last millisecond. Rows for whose windows it has are
    late: counted, and sent to the tag "late" if asked for. That holds across restores too: see Lateness.
    Windows that are due fire piece by piece (FiringOperator); a snapshot between two pieces holds those that
    have not fired, and they fire when the watermark has come there again.
    """

    def __init__(
        self,
        key_columns: Sequence[str],
        schema: pa.Schema,
        window: Tumbling | Sliding,
        values: WindowValues,
        late: bool,
    ) -> None:
        self._layout = Layout(key_columns, schema, {"value": values}, "window_start", window.slide_ms)
        self._table = keyed_table(self._layout)
        self._overflow: Overflow = InMemory(self._table)
        self._window = window
        self._values = values
        self._late = late
        self._due: DueRows | None = None
        """What is being fired. No row is renumbered meanwhile."""

    def open(self, context: OperatorContext, out: Output) -> None:
        self._context = context
        self._out = out
        context.begin(self._table)
        self._overflow = context.state.overflow(self._table, self._layout)
        self._lateness = Lateness(context.max_parallelism, context.key_groups)
        for function in self._values.functions:
            context.open_function(function)

    def restore(self, states: Sequence[RestoredState]) -> None:
        for state in states:
            check_window(state, self._window, self._context.uid)
            for piece in state.batches(TABLE):
                self._overflow.load(piece)
                self._make_room()
        self._lateness.restore(state.meta for state in states)

    def on_records(self, records: Records) -> None:
        assert records.event_time is not None, "windows need event time"
        assert records.key_hash is not None, "windows come after a key_by"
        if not len(records):
            return
        starts = self._window.starts(records.event_time)
        last_ms, late_out = starts + (self._window.size_ms - 1), self._out if self._late else None
        records, starts = without_late(records, starts, last_ms, self._lateness, self._context, late_out)
        for step in range(self._window.windows_max):
            if step:
                records, starts = self._in_the_window_before(records, starts)
            if not len(records):
                break
            self._update(records, starts)
        self._make_room()

    def on_watermark(self, time_ms: int) -> None:
        self._lateness.reached_ms = max(time_ms, self._lateness.reached_ms)

    def fire(self, rows_max: int) -> int:
        due = self._due = self._due or self._find_due()
        if due is None:
            self._lateness.note_all_fired()
            return 0
        fired = self._fire_piece(due, min(rows_max, EMIT_ROWS_MAX))
        if due.is_through:
            self._due = None
            self._overflow.compact()
        return fired

    def snapshot(self) -> FrozenState:
        rows = self._overflow.freeze(self._context.max_parallelism)
        meta: dict[str, Json] = {**self._lateness.as_meta(), "window": window_as_json(self._window)}
        return FrozenState(self._context.key_groups, {TABLE: rows}, meta)

    def peek(self, asked: AskedKeys) -> list[pa.RecordBatch]:
        return self._overflow.peek(asked, self._context.max_parallelism)

    def close(self) -> None:
        self._overflow.close()

    def _make_room(self) -> None:
        if self._due is None:
            make_room(self._overflow, lambda going: {_BY_START: self._table.starts(going)})

    def _update(self, records: Records, starts: Int64s) -> None:
        assert records.key_hash is not None
        rows = self._overflow.find_or_add(records.batch, records.key_hash, starts)
        try:
            self._values.update(records, rows)
        except SumOverflow as error:
            where = f"operator {self._context.uid!r}, column {error.column!r}"
            raise Fatal(f"{where}: {error} {self._describe(error.row)}") from error

    def _find_due(self) -> DueRows | None:
        """The windows that the watermark has reached; None: there are none. They come by window, within it
        in the order in which the keys came, where memory is read from front to back."""
        limit = self._lateness.reached_ms + 1 - self._window.size_ms
        while (first_ms := self._overflow.first_wake(_BY_START)) is not None and first_ms <= limit:
            # What starts before all that is away fires first.
            if (due := self._table.due(first_ms - 1)) is not None:
                return due
            self._overflow.wake(_BY_START, first_ms, _WOKEN_MAX)
            if (due := self._table.due(first_ms)) is not None:
                return due
        return self._table.due(limit)

    def _fire_piece(self, due: DueRows, count: int) -> int:
        """Emit some of what is due: sent, and then gone, so that between two pieces the state holds exactly
        what was not sent."""
        rows, starts = due.take(count)
        ends = starts + self._window.size_ms
        batch = self._values.results(self._table.keys(rows), starts, ends, rows)
        self._out.emit(Records(batch, ends - 1))
        self._overflow.remove(rows)
        return len(rows)

    def _in_the_window_before(self, records: Records, starts: Int64s) -> tuple[Records, Int64s]:
        """The rows that the window one slide earlier has too, unless it has fired; and its start for each."""
        assert isinstance(self._window, Sliding)
        assert records.key_hash is not None
        assert records.event_time is not None
        starts = starts - self._window.slide_ms
        last_ms = starts + (self._window.size_ms - 1)
        in_it = (last_ms >= records.event_time) & (last_ms > self._lateness.late_until(records.key_hash))
        return records.filter(in_it), starts[in_it]

    def _describe(self, row: int) -> str:
        """`for user='u1' in the window [0, 10000)`."""
        [key] = self._table.keys(np.array([row])).to_pylist()
        [start] = self._table.starts(np.array([row])).tolist()
        named = ", ".join(f"{name}={value!r}" for name, value in key.items())
        return f"for {named} in the window [{start}, {start + self._window.size_ms})"


def without_late(
    records: Records,
    starts: Int64s,
    last_ms: Int64s,
    lateness: Lateness,
    context: OperatorContext,
    late_out: Output | None,
) -> tuple[Records, Int64s]:
    """The rows, at least one, and their starts, without those that came after `last_ms`, the end of what
    they belong to, was reached. The late ones are counted, and emitted with the tag LATE to `late_out`."""
    assert records.key_hash is not None
    if not lateness.has_floors and int(last_ms.min()) > lateness.reached_ms:
        return records, starts
    on_time = np.asarray(last_ms > lateness.late_until(records.key_hash))
    if on_time.all():
        return records, starts
    context.count_late(len(records) - int(np.count_nonzero(on_time)))
    if late_out is not None:
        late_out.emit(records.filter(~on_time), LATE)
    return records.filter(on_time), starts[on_time]


def window_as_json(window: Tumbling | Sliding) -> list[Json]:
    """What a snapshot says of the window that it is for."""
    return [window.size_ms, window.slide_ms, window.offset_ms]


def check_window(state: RestoredState, window: Tumbling | Sliding, uid: str) -> None:
    """Raises Fatal if the state is of other windows: its panes would not fit these."""
    found = state.meta.get("window", window_as_json(window))
    if found != window_as_json(window):
        raise Fatal(
            f"operator {uid!r}: the checkpoint holds windows of [size, slide, offset] {found} ms, the job "
            f"asks for {window_as_json(window)}: keep the old windows, or give the operator a new uid"
        )
