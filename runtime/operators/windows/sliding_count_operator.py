"""SlidingCountOperator: windows of the last so many rows of a key, sent every so many rows.

Rows of a key are numbered from 0, and cut into panes where a window begins or ends, as sliding windows cut
time. Its table has a row for each pane; a window's panes are merged when its last row has come.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa

from onceflow.runtime.arrays.sorting import stable_order
from onceflow.runtime.errors import Fatal
from onceflow.runtime.operators.aggregation.accumulator import SumOverflow
from onceflow.runtime.operators.assigners.counting import CountWindow
from onceflow.runtime.operators.assigners.sliding import Sliding
from onceflow.runtime.operators.operator import FrozenState, OperatorContext, Output, RestoredState
from onceflow.runtime.operators.windows.pane_operator import MergeableValues
from onceflow.runtime.operators.windows.ranks import rank
from onceflow.runtime.records import Indices, Int64s, Records
from onceflow.runtime.state.asked_keys import AskedKeys
from onceflow.runtime.state.number_columns import NumberColumn
from onceflow.runtime.state.overflow import GroupedOverflow, GroupsInMemory
from onceflow.runtime.state.table import NOT_THERE, RowColumn
from onceflow.runtime.state.tables import Layout, grouped_table

TABLE = "count_panes"
_MERGED_MAX = 1 << 18
"""How many panes are merged at a time, about."""


@dataclass(frozen=True, slots=True)
class Panes:
    """The panes of a batch's keys, by key and first row."""

    rows: Indices
    """The row of each pane in the table."""
    keys: Indices
    """The place of its key among those of the batch."""
    firsts: Int64s
    """The number of its first row."""

    def between(self, keys: Indices, starts: Int64s, ends: Int64s) -> tuple[Indices, Indices]:
        """Where those that begin from `starts` up to `ends` lie, of each of these keys: from, and to."""
        base = np.zeros(int(self.keys[-1]) + 1, np.int64)
        base[self.keys[::-1]] = self.firsts[::-1]  # the lowest of each key
        into, upto = self.firsts - base[self.keys], ends - base[keys]
        width = int(max(into.max(), upto.max())) + 1
        order = self.keys * width + into
        since = np.maximum(starts - base[keys], 0)
        return np.searchsorted(order, keys * width + since), np.searchsorted(order, keys * width + upto)


class SlidingCountOperator:
    """One subtask of sliding count windows. What a window is made of does not hang on how rows are cut into
    batches, since no row behind its last one is in its panes; the windows of a batch are sent in the order of
    their last rows."""

    def __init__(
        self,
        key_columns: Sequence[str],
        schema: pa.Schema,
        window: CountWindow,
        values: MergeableValues,
        has_event_time: bool,
    ) -> None:
        """`has_event_time`: whether the stream has."""
        assert window.slide is not None, "it is a sliding one"
        self._size, self._slide = window.rows, window.slide
        self._cuts = Sliding(self._size, self._slide, -self._size % self._slide)
        """Windows end with multiples of the slide."""
        self._has_event_time = has_event_time
        self._first, self._count = NumberColumn(), NumberColumn()
        self._values = values
        columns: dict[str, RowColumn] = {"first": self._first, "rows": self._count, "value": values}
        self._layout = Layout(key_columns, schema, columns)
        self._table = grouped_table(self._layout)
        self._overflow: GroupedOverflow = GroupsInMemory(self._table)

    def open(self, context: OperatorContext, out: Output) -> None:
        self._context = context
        self._out = out
        context.begin(self._table)
        self._overflow = context.state.grouped_overflow(self._table, list(self._layout.columns))
        for function in self._values.functions:
            context.open_function(function)

    def restore(self, states: Sequence[RestoredState]) -> None:
        for state in states:
            for piece in state.batches(TABLE):
                self._overflow.load(piece)
                self._make_room()

    def on_records(self, records: Records) -> None:
        if not len(records):
            return
        if records.event_time is None:  # aggregates that go by time go by arrival
            records = replace(records, event_time=np.zeros(len(records), np.int64))
        assert records.key_hash is not None, "windows come after a key_by"
        numbers = self._overflow.find_keys(records.batch, records.key_hash)
        keys, key = np.unique(numbers, return_inverse=True)
        there = self._panes_of(keys)
        position = self._rows_so_far(there, len(keys))[key] + rank(key)
        self._take_in(records, keys, key, position, there)
        panes = self._panes_of(keys)
        self._fire(records, key, position, panes)
        self._let_go(panes, self._rows_so_far(panes, len(keys)))

    def on_watermark(self, time_ms: int) -> None:
        pass

    def snapshot(self) -> FrozenState:
        rows = self._overflow.freeze(self._context.max_parallelism)
        return FrozenState(self._context.key_groups, {TABLE: rows})

    def peek(self, asked: AskedKeys) -> list[pa.RecordBatch]:
        return self._overflow.peek(asked, self._context.max_parallelism)

    def close(self) -> None:
        self._overflow.close()

    def _make_room(self) -> None:
        """Let keys go that have no room, each with all its panes; they come back with their next row."""
        while self._overflow.needs_room():
            self._overflow.make_room(self._overflow.going(), {})

    def _panes_of(self, keys: Indices) -> Panes:
        """The panes of these keys, which rise."""
        rows = self._table.rows_of_keys(keys)
        places, firsts = np.searchsorted(keys, self._table.key_numbers(rows)), self._first.of(rows)
        order = np.lexsort((firsts, places))
        return Panes(rows[order], places[order], firsts[order])

    def _rows_so_far(self, panes: Panes, key_count: int) -> Int64s:
        """How many rows of each key have come: the end of its last pane, which is always there."""
        so_far = np.zeros(key_count, np.int64)
        so_far[panes.keys] = panes.firsts + self._count.of(panes.rows)  # of several the last stays
        return so_far

    def _take_in(self, records: Records, keys: Indices, key: Indices, position: Int64s, there: Panes) -> None:
        """Let the records count in their panes: the last one of their key, or new ones."""
        last_row, last_first = np.full((2, len(keys)), NOT_THERE, np.int64)
        last_row[there.keys], last_first[there.keys] = there.rows, there.firsts
        order = stable_order(key)
        by_key, firsts = key[order], self._cuts.pane_starts(position)[order]
        begins = np.ones(len(order), np.bool_)
        begins[1:] = (by_key[1:] != by_key[:-1]) | (firsts[1:] != firsts[:-1])
        at = np.flatnonzero(begins)
        pane_key, pane_first = by_key[at], firsts[at]
        row = np.where(pane_first == last_first[pane_key], last_row[pane_key], NOT_THERE)
        is_new = row == NOT_THERE
        row[is_new] = self._table.add(keys[pane_key[is_new]])
        self._first.put(row[is_new], pane_first[is_new])
        self._count.add(row, np.diff(np.append(at, len(order))))
        rows = np.empty(len(order), np.int64)
        rows[order] = row[np.cumsum(begins) - 1]
        try:
            self._values.update(records, rows)
        except SumOverflow as error:
            raise self._too_large(error, error.row) from error

    def _fire(self, records: Records, key: Indices, position: Int64s, panes: Panes) -> None:
        """Send the windows whose last row is among these."""
        places = np.flatnonzero((position + 1) % self._slide == 0)
        if not len(places):
            return
        ends = position[places] + 1
        first, behind = panes.between(key[places], ends - self._size, ends)
        assert records.event_time is not None
        for piece in _pieces(behind - first):
            counts = (behind - first)[piece]
            groups = np.repeat(np.arange(len(counts)), counts)
            into = np.arange(len(groups)) - np.repeat(np.cumsum(counts) - counts, counts)
            batch = self._merged(panes.rows[first[piece][groups] + into], groups, panes.rows[first[piece]])
            event_time = records.event_time[places[piece]] if self._has_event_time else None
            self._out.emit(Records(batch, event_time))

    def _merged(self, rows: Indices, groups: Indices, first: Indices) -> pa.RecordBatch:
        """The results of windows that are these panes each; `first`: a pane of each."""
        try:
            merged = self._values.merged(rows, groups, len(first))
        except SumOverflow as error:
            raise self._too_large(error, int(first[error.row])) from error
        nothing: Int64s = np.zeros(len(first), np.int64)
        return merged.results(self._table.keys(first), nothing, nothing, np.arange(len(first)))

    def _let_go(self, panes: Panes, so_far: Int64s) -> None:
        """Forget the panes that are before each key's next window."""
        next_start = (so_far // self._slide + 1) * self._slide - self._size
        self._table.remove(panes.rows[panes.firsts < next_start[panes.keys]])
        self._overflow.compact()
        self._make_room()

    def _too_large(self, error: SumOverflow, row: int) -> Fatal:
        [key] = self._table.keys(np.array([row])).to_pylist()
        named = ", ".join(f"{name}={value!r}" for name, value in key.items())
        where = f"operator {self._context.uid!r}, column {error.column!r}"
        return Fatal(f"{where}: {error} for {named} in a window of its last {self._size} rows")


def _pieces(counts: Int64s) -> Iterator[slice]:
    """Slices of these windows, each of at least one, with so many panes that they are merged together."""
    number = (np.cumsum(counts) - 1) // _MERGED_MAX
    cuts = np.flatnonzero(np.diff(number)) + 1
    for start, end in zip([0, *cuts.tolist()], [*cuts.tolist(), len(counts)], strict=True):
        yield slice(start, end)
