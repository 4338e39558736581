"""WindowRows: the rows of two inputs by key, each with the start of its window, where keys may go to disk."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa

from onceflow.runtime.operators.assigners.sliding import Sliding
from onceflow.runtime.operators.assigners.tumbling import Tumbling
from onceflow.runtime.operators.joins.joined_columns import LEFT, RIGHT, JoinedColumns
from onceflow.runtime.operators.joins.rows_in_time import RowsInTime
from onceflow.runtime.operators.joins.runs import Run, SideRows, limit_of
from onceflow.runtime.operators.joins.window_sides import EndedWindows, open_windows
from onceflow.runtime.operators.operator import OperatorContext, RestoredState
from onceflow.runtime.records import Indices, Int64s, Mask, Records
from onceflow.runtime.state.asked_keys import AskedKeys
from onceflow.runtime.state.columns import one_batch
from onceflow.runtime.state.operator_state import FrozenRows
from onceflow.runtime.state.rows import take_rows

_Found = list[tuple[Run, Indices]]


class WindowRows:
    """What WindowSides is, and keys go to disk and come back, each with all its windows, when the first of
    them ends. A window may be given in several parts, each with all rows of its keys; those of a key are in
    the order of their ends. The start of its window stands in the place of a row's time."""

    def __init__(
        self, window: Tumbling | Sliding, schemas: tuple[pa.Schema, pa.Schema], columns: JoinedColumns
    ) -> None:
        self._window = window
        self._schemas = schemas
        self._sides = [SideRows(schema, is_padded=True) for schema in schemas]
        self._rows = RowsInTime(columns, schemas, self._sides, self._keep, self._due_ms)

    def __len__(self) -> int:
        return sum(map(len, self._sides))

    def open(self, context: OperatorContext) -> None:
        self._rows.open(context)

    def restore(self, states: Sequence[RestoredState]) -> None:
        self._rows.restore(states)

    def add(self, side: int, records: Records, watermark_ms: int) -> Indices:
        """Put rows into all their windows that the watermark has not passed; those that are in none."""
        row = self._rows.find_keys(side, records)
        is_in_one = np.zeros(len(records), np.bool_)
        for starts, rows in open_windows(self._window, records, watermark_ms):
            is_in_one[rows] = True
            batch = records.batch if len(rows) == len(records) else take_rows(records.batch, rows)
            self._sides[side].add(batch, row[rows], starts[rows], np.zeros(len(rows), np.bool_))
        self._make_room(watermark_ms)
        return np.flatnonzero(~is_in_one)

    def next_ends(self, watermark_ms: int, rows_max: int) -> EndedWindows | None:
        """The first window in memory that ends by then, however many rows it has, which is let go of; None:
        there is none, nor on disk."""
        limit = limit_of(watermark_ms, self._window.size_ms - 1)
        while (start := self._first_start()) is None or start > limit:
            self._make_room(watermark_ms)
            if not self._rows.wake(watermark_ms):
                self._rows.forget_keys()
                return None
        found = [side.due(start, len(side)) for side in self._sides]
        left, right = (_joined(schema, its) for schema, its in zip(self._schemas, found, strict=True))
        keys, numbers = np.unique(np.concatenate([left[1], right[1]]), return_inverse=True)
        self._rows.note_changed(keys)
        starts = (np.full(len(left[1]), start), np.full(len(right[1]), start))
        rows = (numbers[: len(left[1])], numbers[len(left[1]) :])
        return EndedWindows((left[0], right[0]), starts, rows)

    def freeze(self, max_parallelism: int) -> FrozenRows:
        return self._rows.freeze(max_parallelism)

    def peek(self, asked: AskedKeys, max_parallelism: int) -> list[pa.RecordBatch]:
        return self._rows.peek(asked, max_parallelism)

    def close(self) -> None:
        self._rows.close()

    def _first_start(self) -> int | None:
        """The start of the first window in memory."""
        runs = [run for side in self._sides for run in side.runs if run.expired < len(run)]
        firsts = [run.time[run.by_time[run.expired]] for run in runs if run.by_time is not None]
        return int(min(firsts)) if firsts else None

    def _make_room(self, watermark_ms: int) -> None:
        for side in self._sides:
            side.expire(limit_of(watermark_ms, self._window.size_ms - 1))
        self._rows.make_room()

    def _due_ms(self, keys: Indices) -> Int64s:
        behind = self._window.size_ms - 1
        return self._rows.table.expire_ms(keys, (behind, behind), (LEFT, RIGHT))

    def _keep(self, side: int, batch: pa.RecordBatch, row: Indices, starts: Int64s, marks: Mask) -> None:
        self._sides[side].add(batch, row, starts, marks)


def _joined(schema: pa.Schema, found: _Found) -> tuple[pa.RecordBatch, Indices]:
    """These rows as one batch, and the numbers of their keys."""
    if not found:
        return pa.RecordBatch.from_pylist([], schema), np.zeros(0, np.int64)
    batches = [take_rows(run.batch, rows) for run, rows in found]
    return one_batch(pa.Table.from_batches(batches)), np.concatenate([run.row[rows] for run, rows in found])
