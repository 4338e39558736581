"""Window join and co-group: rows of two streams with the same key in the same window."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import polars as pl
import pyarrow as pa

from onceflow.runtime.operators.assigners.firings import ONCE
from onceflow.runtime.operators.assigners.sliding import Sliding
from onceflow.runtime.operators.assigners.tumbling import Tumbling
from onceflow.runtime.operators.describe import windows_of
from onceflow.runtime.operators.joins.described_sides import described_sides, side_readers
from onceflow.runtime.operators.joins.frozen_sides import TABLE
from onceflow.runtime.operators.joins.joined_columns import (
    LATE_SIDES,
    LEFT,
    RIGHT,
    JoinedColumns,
)
from onceflow.runtime.operators.joins.window_groups import GroupConfig, WindowGroups
from onceflow.runtime.operators.joins.window_pairs import WINDOW_FIELDS, WindowPairs, with_bounds
from onceflow.runtime.operators.joins.window_rows import WindowRows
from onceflow.runtime.operators.joins.window_sides import (
    EndedWindows,
    WindowSides,
    watermark_meta,
)
from onceflow.runtime.operators.operator import FrozenState, OperatorContext, Output, RestoredState
from onceflow.runtime.records import WATERMARK_MIN_MS, Records
from onceflow.runtime.state.asked_keys import AskedKeys
from onceflow.runtime.state.description import StateDescription
from onceflow.runtime.state.evolution.readers import Readers
from onceflow.runtime.types.user_functions import function_name


@dataclass(frozen=True)
class WindowJoin:
    """The rows of both sides of each window: as pairs in columns or, with `group`, for a CoGroup."""

    columns: JoinedColumns
    schemas: tuple[pa.Schema, pa.Schema]
    window: Tumbling | Sliding
    passes: Mapping[str, tuple[int, str]]
    condition: pl.Expr | None = None
    late: bool = False
    group: GroupConfig | None = None

    @property
    def output_schema(self) -> pa.Schema:
        if self.group is not None:
            return self.group.writer.schema
        return pa.schema([*self.columns.schema(self.passes, *self.schemas), *WINDOW_FIELDS])

    @property
    def description(self) -> StateDescription:
        function = self.columns.how if self.group is None else function_name(type(self.group.function))
        kind, windows = "window join" if self.group is None else "co-group", windows_of(self.window, ONCE)
        return described_sides(kind, self.columns, self.schemas, self.condition, function, windows)

    @property
    def readers(self) -> Readers:
        return side_readers(self.schemas)

    def create(self) -> WindowJoinOperator:
        """A fresh operator for one subtask and attempt."""
        return WindowJoinOperator(self)


class WindowJoinOperator:
    """One subtask of a window join or a co-group. `fire` sends whole windows that have ended: those of a join
    together until they have enough rows, since each batch costs those behind it something, too."""

    def __init__(self, config: WindowJoin) -> None:
        self._config = config
        self._watermark = WATERMARK_MIN_MS
        self._made: WindowPairs | WindowGroups
        if config.group is None:
            self._made = WindowPairs(config.columns, config.passes, config.schemas, config.condition)
        else:
            self._made = WindowGroups(config.group, config.columns.keys)

    def open(self, context: OperatorContext, out: Output) -> None:
        self._context = context
        self._out = out
        config, state = self._config, context.state
        self._sides: WindowSides | WindowRows
        if state.is_unlimited and not state.snapshots.are_incremental:  # by window is the faster one
            self._sides = WindowSides(config.window, config.schemas, config.columns.keys)
        else:
            self._sides = WindowRows(config.window, config.schemas, config.columns)
        self._sides.open(context)
        if isinstance(self._made, WindowGroups):
            context.open_function(self._made.function)

    def restore(self, states: Sequence[RestoredState]) -> None:
        self._sides.restore(states)
        if states:
            self._watermark = watermark_meta([state.meta for state in states])

    def on_records(self, records: Records) -> None:
        self._arrive(LEFT, records)

    def on_right_records(self, records: Records) -> None:
        self._arrive(RIGHT, records)

    def on_watermark(self, time_ms: int) -> None:
        self._watermark = max(time_ms, self._watermark)  # after a restore it begins again lower

    def fire(self, rows_max: int) -> int:
        fired = 0
        while fired < rows_max:
            at_once = 1 if self._config.group is not None else rows_max - fired
            ended = self._sides.next_ends(self._watermark, at_once)
            if ended is None:
                break
            self._send(ended)
            fired += len(ended)
        return fired

    def snapshot(self) -> FrozenState:
        frozen = self._sides.freeze(self._context.max_parallelism)
        return FrozenState(self._context.key_groups, {TABLE: frozen}, {"watermark": self._watermark})

    def peek(self, asked: AskedKeys) -> list[pa.RecordBatch]:
        return self._sides.peek(asked, self._context.max_parallelism)

    def close(self) -> None:
        self._sides.close()

    def _arrive(self, side: int, records: Records) -> None:
        late = self._sides.add(side, records, self._watermark)
        if len(late):
            self._context.count_late(len(late))
            if self._config.late:
                its = records.take(late)
                self._out.emit(Records(its.batch, its.event_time), LATE_SIDES[side])

    def _send(self, ended: EndedWindows) -> None:
        size_ms = self._config.window.size_ms
        if isinstance(self._made, WindowPairs):
            for batch, starts in self._made.of(ended):
                ends = starts + size_ms
                self._out.emit(Records(with_bounds(batch, starts, ends), ends - 1))
            return
        [start] = ended.windows  # at_once of `fire` is one row
        made = self._made.of(ended, lambda _: (start, start + size_ms))
        if made is not None:
            self._out.emit(Records(made[0], np.full(made[0].num_rows, start + size_ms - 1)))
