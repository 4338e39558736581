"""CountOperator: windows of so many rows; its table has a row for each key: the window that is not full."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pyarrow as pa

from onceflow.runtime.errors import Fatal
from onceflow.runtime.operators.aggregation.accumulator import SumOverflow
from onceflow.runtime.operators.assigners.counting import CountWindow
from onceflow.runtime.operators.operator import FrozenState, OperatorContext, Output, RestoredState
from onceflow.runtime.operators.windows.ranks import places_by_number, rank
from onceflow.runtime.operators.windows.window_operator import WindowValues
from onceflow.runtime.records import Indices, Int64s, Records
from onceflow.runtime.state.asked_keys import AskedKeys
from onceflow.runtime.state.number_columns import NumberColumn
from onceflow.runtime.state.overflow import InMemory, Overflow, make_room
from onceflow.runtime.state.tables import Layout, keyed_table

TABLE = "counts"
_EMPTY_MIN = 1 << 10


class CountOperator:
    """One subtask of count windows. A batch is taken in in rounds, each of which fills at most one window of
    a key: so a window has exactly its rows, however the rows are cut into batches."""

    def __init__(
        self,
        key_columns: Sequence[str],
        schema: pa.Schema,
        window: CountWindow,
        values: WindowValues,
        has_event_time: bool,
    ) -> None:
        """`has_event_time`: whether the stream has."""
        self._has_event_time = has_event_time
        self._rows_of_window = window.rows
        self._count = NumberColumn()
        self._values = values
        self._layout = Layout(key_columns, schema, {"rows": self._count, "value": values})
        self._table = keyed_table(self._layout)
        self._overflow: Overflow = InMemory(self._table)

    def open(self, context: OperatorContext, out: Output) -> None:
        self._context = context
        self._out = out
        context.begin(self._table)
        self._overflow = context.state.overflow(self._table, self._layout)
        for function in self._values.functions:
            context.open_function(function)

    def restore(self, states: Sequence[RestoredState]) -> None:
        for state in states:
            for piece in state.batches(TABLE):
                self._overflow.load(piece)
                make_room(self._overflow)

    def on_records(self, records: Records) -> None:
        if not len(records):
            return
        if records.event_time is None:  # aggregates that go by time go by arrival
            records = replace(records, event_time=np.zeros(len(records), np.int64))
        assert records.key_hash is not None, "windows come after a key_by"
        rows = self._overflow.find_or_add(records.batch, records.key_hash)
        self._take_in_windows(records, rows)
        make_room(self._overflow)

    def _take_in_windows(self, records: Records, rows: Indices) -> None:
        number = self._count.of(rows) + rank(rows)
        window = number // self._rows_of_window
        if not window.any() and number.max() < self._rows_of_window - 1:
            self._take_in(records, rows)
            return
        for places in places_by_number(window):
            is_last = number[places] % self._rows_of_window == self._rows_of_window - 1
            self._take_in(records.take(places), rows[places])
            if is_last.any():
                self._fire(records, places[is_last], rows[places[is_last]])

    def on_watermark(self, time_ms: int) -> None:
        pass

    def snapshot(self) -> FrozenState:
        self._forget_empty()
        rows = self._overflow.freeze(self._context.max_parallelism)
        return FrozenState(self._context.key_groups, {TABLE: rows})

    def peek(self, asked: AskedKeys) -> list[pa.RecordBatch]:
        return self._overflow.peek(asked, self._context.max_parallelism)

    def close(self) -> None:
        self._overflow.close()

    def _take_in(self, records: Records, rows: Indices) -> None:
        try:
            self._values.update(records, rows)
        except SumOverflow as error:
            [key] = self._table.keys(np.array([error.row])).to_pylist()
            named = ", ".join(f"{name}={value!r}" for name, value in key.items())
            where = f"operator {self._context.uid!r}, column {error.column!r}"
            raise Fatal(f"{where}: {error} for {named} in the window that is not full") from error
        distinct, counts = np.unique(rows, return_counts=True)
        self._count.add(distinct, counts)

    def _fire(self, records: Records, places: Indices, rows: Indices) -> None:
        """Send the windows of these keys, which their rows at these places have filled."""
        nothing: Int64s = np.zeros(len(rows), np.int64)
        batch = self._values.results(self._table.keys(rows), nothing, nothing, rows)
        assert records.event_time is not None
        self._out.emit(Records(batch, records.event_time[places] if self._has_event_time else None))
        self._table.reset(rows)

    def _forget_empty(self) -> None:
        """Let go of keys whose last window was full, when they are at least half."""
        counts = self._count.used()
        empty = np.flatnonzero(counts == 0)
        if len(empty) >= _EMPTY_MIN and 2 * len(empty) >= self._table.size:
            self._overflow.remove(empty)
            self._overflow.compact()
