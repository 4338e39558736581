"""Window join and co-group: rows of two streams with the same key in the same window."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

import numpy as np
import polars as pl
import pyarrow as pa

from onceflow.runtime.arrays.sorting import stable_order
from onceflow.runtime.errors import UserFunctionError
from onceflow.runtime.functions.lives import own_instance
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
    Gatherer,
    JoinedColumns,
    null_keys,
)
from onceflow.runtime.operators.joins.runs import PAIRS_MAX, pairs
from onceflow.runtime.operators.joins.window_rows import WindowRows
from onceflow.runtime.operators.joins.window_sides import (
    EndedWindows,
    WindowSides,
    equal_rows,
    groups,
    watermark_meta,
)
from onceflow.runtime.operators.operator import FrozenState, OperatorContext, Output, RestoredState
from onceflow.runtime.records import WATERMARK_MIN_MS, Int64s, Records
from onceflow.runtime.state.columns import one_batch
from onceflow.runtime.state.description import StateDescription
from onceflow.runtime.state.evolution.readers import Readers
from onceflow.runtime.state.rows import take_rows
from onceflow.runtime.types.columns_of_records import RecordWriter, WrongFieldError
from onceflow.runtime.types.records_of_columns import RecordReader
from onceflow.runtime.types.user_functions import function_name, read_records, user_error_at

WINDOW_FIELDS = (
    pa.field("window_start", pa.int64(), nullable=False),
    pa.field("window_end", pa.int64(), nullable=False),
)

Left = TypeVar("Left")
Right = TypeVar("Right")
Out = TypeVar("Out")


@dataclass(frozen=True, slots=True)
class GroupWindow:
    """What a CoGroup is told of the rows that it gets."""

    key: Any
    """The column's value; a tuple if there are several key columns."""
    start: int
    end: int
    """The first ms behind the window."""


class CoGroup(Generic[Left, Right, Out]):
    """The user's class for `a.key_by(k).co_group(b.key_by(k), window, YourCoGroup())`: CoGroup[L, R, O]."""

    def group(self, left: list[Left], right: list[Right], window: GroupWindow, /) -> Iterable[Out] | None:
        """Called once for each key and window with all rows of both sides, one of which may have none. Yields
        records, or returns an iterable or None; they get the last ms of the window as event time."""
        raise NotImplementedError


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


@dataclass(frozen=True)
class GroupConfig:
    """A CoGroup, checked when the graph is built: what makes its records, and columns of what it makes."""

    uid: str
    function: CoGroup[Any, Any, Any]
    readers: tuple[RecordReader, RecordReader]
    writer: RecordWriter


class WindowJoinOperator:
    """One subtask of a window join or a co-group. `fire` sends whole windows that have ended: those of a join
    together until they have enough rows, since each batch costs those behind it something, too."""

    def __init__(self, config: WindowJoin) -> None:
        self._config = config
        self._watermark = WATERMARK_MIN_MS
        self._send: Callable[[EndedWindows], None]
        if config.group is None:
            self._gatherer = Gatherer(config.columns, config.passes, config.schemas, config.condition)
            self._send = self._send_pairs
        else:
            self._function = own_instance(config.group.function, config.group.uid)
            self._send = self._send_groups

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
        if self._config.group is not None:
            context.open_function(self._function)

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

    def close(self) -> None:
        self._sides.close()

    def _arrive(self, side: int, records: Records) -> None:
        late = self._sides.add(side, records, self._watermark)
        if len(late):
            self._context.count_late(len(late))
            if self._config.late:
                its = records.take(late)
                self._out.emit(Records(its.batch, its.event_time), LATE_SIDES[side])

    # --- Pairs ---

    def _send_pairs(self, ended: EndedWindows) -> None:
        keys, is_padded = self._config.columns.keys, bool(self._config.columns.padded)
        begin, counts = equal_rows(ended)
        no_key = null_keys(ended.batches[LEFT], keys[LEFT])
        if no_key is not None:
            counts[no_key[ended.by_key[LEFT]]] = 0
        is_mixed = is_padded and len(ended.windows) > 1
        if is_mixed and int(counts.sum()) > PAIRS_MAX:  # so many are sent as they are made
            for window in ended.apart():
                self._send_pairs(window)
            return
        made = self._made(ended, begin, counts)
        if not is_mixed:
            for batch, starts in made:
                self._emit(batch, starts)
        elif parts := list(made):  # what has no partner goes behind the pairs of its window
            starts = np.concatenate([its for _, its in parts])
            order = stable_order(starts)
            batch = one_batch(pa.Table.from_batches([its for its, _ in parts]))
            self._emit(take_rows(batch, order), starts[order])

    def _made(
        self, ended: EndedWindows, begin: Int64s, counts: Int64s
    ) -> Iterator[tuple[pa.RecordBatch, Int64s]]:
        """The pairs, and the rows that have no partner; with the start of the window of each."""
        padded = self._config.columns.padded
        matched = [np.zeros(batch.num_rows, np.bool_) for batch in ended.batches]
        for asked, found in pairs(begin, counts):
            rows = [ended.by_key[LEFT][asked], ended.by_key[RIGHT][found]]
            holds = self._gatherer.holds(ended.batches, rows)
            if holds is not None:
                rows = [its[holds] for its in rows]
            if not len(rows[LEFT]):
                continue
            for side in padded:
                matched[side][rows[side]] = True
            yield self._gatherer.pairs(ended.batches, rows), ended.starts[LEFT][rows[LEFT]]
        for side in padded:
            alone = np.flatnonzero(~matched[side])
            if len(alone):
                batch = take_rows(ended.batches[side], alone)
                yield self._gatherer.alone(side, batch), ended.starts[side][alone]

    def _emit(self, batch: pa.RecordBatch, starts: Int64s) -> None:
        ends = starts + self._config.window.size_ms
        schema = pa.schema([*batch.schema, *WINDOW_FIELDS])
        columns = [*batch.columns, pa.array(starts), pa.array(ends)]
        self._out.emit(Records(pa.RecordBatch.from_arrays(columns, schema=schema), ends - 1))

    # --- Groups ---

    def _send_groups(self, ended: EndedWindows) -> None:
        config = self._config.group
        assert config is not None
        sides = [
            read_records(config.uid, reader, Records(batch))
            for reader, batch in zip(config.readers, ended.batches, strict=True)
        ]
        [start] = ended.windows  # at_once of `fire` is one row
        end = start + self._config.window.size_ms
        made: list[Any] = []
        group = self._function.group
        for left, right in groups(ended):
            of = LEFT if len(left) else RIGHT
            key = self._key(of, ended.batches[of], int((left if of == LEFT else right)[0]))
            rows = [[side[n] for n in its.tolist()] for side, its in zip(sides, (left, right), strict=True)]
            try:
                made.extend(group(rows[0], rows[1], GroupWindow(key, start, end)) or ())
            except Exception as error:
                place = f"key {key!r} in the window from {start} to {end}"
                raise user_error_at(config.uid, group, error, place) from error
        if not made:
            return
        try:
            batch = config.writer.write(made)
        except WrongFieldError as error:
            raise UserFunctionError(
                f"operator {config.uid!r}: {function_name(group)} made a wrong record: {error}"
            ) from error
        self._out.emit(Records(batch, np.full(len(made), end - 1)))

    def _key(self, side: int, batch: pa.RecordBatch, row: int) -> Any:
        values = [batch.column(name)[row].as_py() for name in self._config.columns.keys[side]]
        return values[0] if len(values) == 1 else tuple(values)
