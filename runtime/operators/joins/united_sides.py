"""Two streams as one: how a window of any kind holds rows of both, and what is made of them when it fires.

A row is in the column of its side, and the other one is null, as in Flink's TaggedUnion. So sessions are
those of both streams together, and each window that a single stream knows serves a join.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np
import polars as pl
import pyarrow as pa

from onceflow.runtime.operators.joins.joined_columns import LEFT, RIGHT, JoinedColumns
from onceflow.runtime.operators.joins.window_groups import GroupConfig, WindowGroups
from onceflow.runtime.operators.joins.window_pairs import WINDOW_FIELDS, WindowPairs, with_bounds
from onceflow.runtime.operators.joins.window_sides import EndedWindows
from onceflow.runtime.operators.operator import FrozenState, OperatorContext, Output, RestoredState
from onceflow.runtime.operators.stateless import Stateless
from onceflow.runtime.records import Int64s, Mask, Records

SIDE_COLUMNS = ("left", "right")
"""The columns in which the rows are, each a struct of all columns of its stream."""
ROWS = "(rows)"
"""The column of the rows of a window that fired: a list of structs with SIDE_COLUMNS."""


@dataclass(frozen=True)
class UnitedSides:
    """The columns of two streams as one: those of the key under their left names, and SIDE_COLUMNS."""

    keys: tuple[tuple[str, ...], tuple[str, ...]]
    schemas: tuple[pa.Schema, pa.Schema]

    @property
    def schema(self) -> pa.Schema:
        named = zip(*self.keys, strict=True)
        keys = [
            self.schemas[LEFT]
            .field(left)
            .with_nullable(
                self.schemas[LEFT].field(left).nullable or self.schemas[RIGHT].field(right).nullable
            )
            for left, right in named
        ]
        sides = zip(SIDE_COLUMNS, self.schemas, strict=True)
        return pa.schema([*keys, *(pa.field(name, pa.struct(list(schema))) for name, schema in sides)])

    def together(self, side: int, records: Records) -> Records:
        """The rows of one side as rows of both."""
        batch, schema = records.batch.select(self.schemas[side].names), self.schema
        columns = [batch.column(name) for name in self.keys[side]]
        rows = pa.StructArray.from_arrays(batch.columns, fields=list(self.schemas[side]))
        nothing = pa.nulls(len(records), schema.field(SIDE_COLUMNS[1 - side]).type)
        columns += [rows, nothing] if side == LEFT else [nothing, rows]
        return records.with_batch(pa.RecordBatch.from_arrays(columns, schema=schema))

    def apart(self, side: int, records: Records) -> Records | None:
        """The rows of one side that are among rows of both."""
        is_its = _is_there(records.batch.column(SIDE_COLUMNS[side]))
        if not is_its.any():
            return None
        its = records.filter(is_its)
        return its.with_batch(_rows(its.batch.column(SIDE_COLUMNS[side])))

    def ended(self, windows: pa.RecordBatch) -> EndedWindows:
        """Windows that fired, with the rows of each in the column ROWS; in place of a start each row has the
        place of its window."""
        lists = windows.column(ROWS)
        flat, counts = lists.flatten(), lists.value_lengths().to_numpy()
        window = np.repeat(np.arange(windows.num_rows), counts)
        columns = [flat.field(name) for name in SIDE_COLUMNS]
        is_its = [_is_there(column) for column in columns]
        left, right = (
            _rows(column.filter(pa.array(its))) for column, its in zip(columns, is_its, strict=True)
        )
        places = (window[is_its[LEFT]], window[is_its[RIGHT]])
        return EndedWindows((left, right), places, places)


@dataclass(frozen=True)
class SideStep:
    """The rows of one side as rows of both, before the windows; or, behind them, late ones as they were."""

    sides: UnitedSides
    side: int
    is_together: bool

    def create(self) -> Stateless:
        """A fresh operator for one subtask and attempt."""
        its = self.sides.together if self.is_together else self.sides.apart
        return Stateless(partial(its, self.side))


@dataclass(frozen=True)
class UnitedJoin:
    """What is made of the windows of two streams that are one: pairs in columns or, with `group`, what a
    CoGroup makes."""

    sides: UnitedSides
    columns: JoinedColumns
    passes: Mapping[str, tuple[int, str]]
    condition: pl.Expr | None = None
    group: GroupConfig | None = None

    @property
    def output_schema(self) -> pa.Schema:
        if self.group is not None:
            return self.group.writer.schema
        return pa.schema([*self.columns.schema(self.passes, *self.sides.schemas), *WINDOW_FIELDS])

    def create(self) -> UnitedJoinOperator:
        """A fresh operator for one subtask and attempt."""
        return UnitedJoinOperator(self)


class UnitedJoinOperator:
    """Makes rows of windows as they come. It keeps nothing."""

    def __init__(self, config: UnitedJoin) -> None:
        self._sides = config.sides
        self._made: WindowPairs | WindowGroups
        if config.group is None:
            self._made = WindowPairs(config.columns, config.passes, config.sides.schemas, config.condition)
        else:
            self._made = WindowGroups(config.group, config.columns.keys)

    def open(self, context: OperatorContext, out: Output) -> None:
        self._out = out
        if isinstance(self._made, WindowGroups):
            context.open_function(self._made.function)

    def restore(self, states: Sequence[RestoredState]) -> None:
        assert not states, "its windows are kept by the operator before it"

    def on_records(self, records: Records) -> None:
        ended = self._sides.ended(records.batch)
        starts, ends = (records.batch.column(field.name).to_numpy() for field in WINDOW_FIELDS)
        if isinstance(self._made, WindowPairs):
            for batch, place in self._made.of(ended):
                self._emit(with_bounds(batch, starts[place], ends[place]), records, place)
            return
        made = self._made.of(ended, lambda place: (int(starts[place]), int(ends[place])))
        if made is not None:
            batch, place = made
            self._emit(batch, records, place)

    def on_watermark(self, time_ms: int) -> None:
        pass

    def snapshot(self) -> FrozenState | None:
        return None

    def close(self) -> None:
        pass

    def _emit(self, batch: pa.RecordBatch, windows: Records, place: Int64s) -> None:
        times = windows.event_time
        self._out.emit(Records(batch, None if times is None else times[place]))


def _is_there(side: pa.StructArray) -> Mask:
    return np.asarray(side.is_valid().to_numpy(zero_copy_only=False))


def _rows(side: pa.StructArray) -> pa.RecordBatch:
    return pa.RecordBatch.from_struct_array(side)
