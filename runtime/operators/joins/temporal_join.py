"""Temporal join: each row of a stream with the version of a table that was valid when it happened."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import polars as pl
import pyarrow as pa

from onceflow.runtime.operators.describe import expression_form
from onceflow.runtime.operators.joins.described_sides import described_keys, side_readers
from onceflow.runtime.operators.joins.frozen_sides import NAMES, TABLE
from onceflow.runtime.operators.joins.joined_columns import (
    LATE_SIDES,
    LEFT,
    RIGHT,
    Gatherer,
    JoinedColumns,
    null_keys,
)
from onceflow.runtime.operators.joins.rows_in_time import RowsInTime
from onceflow.runtime.operators.joins.runs import EVER_MS, SideRows, limit_of
from onceflow.runtime.operators.joins.versions import Versions, turns_behind
from onceflow.runtime.operators.operator import FrozenState, OperatorContext, Output, RestoredState
from onceflow.runtime.records import WATERMARK_MIN_MS, Indices, Int64s, Mask, Records
from onceflow.runtime.state.asked_keys import AskedKeys
from onceflow.runtime.state.description import StateDescription, StatePart, type_text
from onceflow.runtime.state.evolution.readers import Readers
from onceflow.runtime.state.operator_state import restored_watermark
from onceflow.runtime.state.overflow import NO_WAKE_MS
from onceflow.runtime.state.rows import take_rows


@dataclass(frozen=True)
class TemporalJoin:
    """A left row waits until the watermark has reached its time, and then meets the latest right row of its
    key that happened at that time or before. `deleted`: says of which right rows the key is gone from then
    on; over the right columns. `condition`: has to be true of the pair as well; no older version is taken
    instead."""

    columns: JoinedColumns
    schemas: tuple[pa.Schema, pa.Schema]
    passes: Mapping[str, tuple[int, str]]
    deleted: pl.Expr | None = None
    late: bool = False
    condition: pl.Expr | None = None
    deletes_kept_ms: int = 86_400_000
    """How far the watermark is behind a delete when it is forgotten: it counts against late versions that are
    older until then."""

    @property
    def output_schema(self) -> pa.Schema:
        return self.columns.schema(self.passes, *self.schemas)

    @property
    def description(self) -> StateDescription:
        deleted = None if self.deleted is None else expression_form(self.deleted)
        where = None if self.condition is None else expression_form(self.condition)
        types = [type_text(pa.struct(list(schema))) for schema in self.schemas]
        parts = (
            StatePart(NAMES[LEFT], "rows", types[LEFT], expression=where, function=self.columns.how),
            StatePart(NAMES[RIGHT], "versions", types[RIGHT], expression=deleted),
        )
        left, right = described_keys(self.columns, self.schemas)
        return StateDescription("temporal join", TABLE, left, parts, right_keys=right)

    @property
    def readers(self) -> Readers:
        return side_readers(self.schemas)

    def create(self) -> TemporalJoinOperator:
        """A fresh operator for one subtask and attempt."""
        return TemporalJoinOperator(self)


class TemporalJoinOperator:
    """One subtask of a temporal join. A key goes to disk with its waiting rows and its versions; it comes
    back when the first of these rows is due or, if there is none, when a delete is to be let go of."""

    def __init__(self, config: TemporalJoin) -> None:
        self._config = config
        self._gatherer = Gatherer(config.columns, config.passes, config.schemas, config.condition)
        self._left = SideRows(config.schemas[LEFT], is_padded=True)
        self._right = Versions(config.deletes_kept_ms)
        sides = (self._left, self._right)
        self._rows = RowsInTime(config.columns, config.schemas, sides, self._keep, self._due_ms)
        self._watermark = WATERMARK_MIN_MS

    def open(self, context: OperatorContext, out: Output) -> None:
        self._context = context
        self._out = out
        self._rows.open(context)

    def restore(self, states: Sequence[RestoredState]) -> None:
        self._rows.restore(states)
        if states:
            self._watermark = restored_watermark(min(int(state.meta["watermark"]) for state in states))

    def on_records(self, records: Records) -> None:
        assert records.event_time is not None, "a temporal join needs event time"
        is_late = records.event_time <= self._watermark
        if is_late.any():
            self._say_late(LEFT, records.filter(is_late))
            records = records.filter(~is_late)
        if len(records):
            row = self._rows.find_keys(LEFT, records)
            assert records.event_time is not None, "rows keep it"
            self._left.add(records.batch, row, records.event_time, np.zeros(len(records), np.bool_))
            self._rows.make_room()

    def on_right_records(self, records: Records) -> None:
        """Late versions are counted, since rows were joined without them; they hold for those to come."""
        assert records.event_time is not None, "a temporal join needs event time"
        is_late = records.event_time <= self._watermark
        if is_late.any():
            self._say_late(RIGHT, records.filter(is_late))
        no_key = null_keys(records.batch, self._config.columns.keys[RIGHT])
        if no_key is not None:
            records, is_late = records.filter(~no_key), is_late[~no_key]
        if len(records):
            row, is_deleted = self._rows.find_keys(RIGHT, records), self._is_deleted(records.batch)
            assert records.event_time is not None, "rows keep it"
            if is_late.any():
                self._take_late(records.batch, row, records.event_time, is_deleted)
            else:
                self._right.add(records.batch, row, records.event_time, is_deleted)
            self._rows.make_room()

    def on_watermark(self, time_ms: int) -> None:
        self._watermark = max(time_ms, self._watermark)  # after a restore it begins again lower

    def fire(self, rows_max: int) -> int:
        fired = self._send_due(rows_max)
        if fired:
            return fired
        self._left.expire(limit_of(self._watermark, 0))
        # Who goes has nothing that is over, or it would come back at once.
        self._right.forget(self._watermark, is_asked=self._rows.needs_room())
        self._rows.forget_keys()
        self._rows.make_room()
        return max(1, self._send_due(rows_max)) if self._rows.wake(self._watermark) else 0

    def snapshot(self) -> FrozenState:
        frozen = self._rows.freeze(self._context.max_parallelism)
        return FrozenState(self._context.key_groups, {TABLE: frozen}, {"watermark": self._watermark})

    def peek(self, asked: AskedKeys) -> list[pa.RecordBatch]:
        return self._rows.peek(asked, self._context.max_parallelism)

    def close(self) -> None:
        self._rows.close()

    def _keep(self, side: int, batch: pa.RecordBatch, row: Indices, time: Int64s, marks: Mask) -> None:
        (self._left if side == LEFT else self._right).add(batch, row, time, marks)

    def _due_ms(self, keys: Indices) -> Int64s:
        waits = np.zeros(self._rows.table.key_count, np.bool_)
        for run in self._left.runs:
            waits[run.row[run.live(self._left.limit)]] = True
        due = self._rows.table.expire_ms(keys, (0, self._config.deletes_kept_ms), (LEFT,))
        has_effect = self._right.deleted_ms(keys) == EVER_MS
        return np.where(~waits[keys] & has_effect, NO_WAKE_MS, due)

    def _take_late(self, batch: pa.RecordBatch, row: Int64s, time: Int64s, is_deleted: Mask) -> None:
        """Versions come of which some are late. Rows that are due were there before them. A delete that is to
        be let go of counts no more, whether or not that was done, and however the batches are cut."""
        self._send_due(len(self._left))
        over_ms = limit_of(self._watermark, self._config.deletes_kept_ms)
        turns = turns_behind(row, is_deleted & (time <= over_ms))
        for turn in range(int(turns.max()) + 1):
            mine = np.flatnonzero(turns == turn)
            deleted_ms = self._right.deleted_ms(row[mine], self._watermark)
            if ((deleted_ms <= over_ms) & (time[mine] < deleted_ms)).any():
                self._right.forget(self._watermark, is_asked=True)
            self._right.add(take_rows(batch, mine), row[mine], time[mine], is_deleted[mine])

    def _send_due(self, rows_max: int) -> int:
        """Send rows in memory whose time has come; how many."""
        fired = 0
        for run, rows in self._left.due(limit_of(self._watermark, 0), rows_max):
            fired += len(rows)
            self._rows.note_changed(run.row[rows])
            self._send(take_rows(run.batch, rows), run.row[rows], run.time[rows])
        return fired

    def _send(self, batch: pa.RecordBatch, row: Int64s, time: Int64s) -> None:
        which, place = self._right.at(row, time)
        no_key = null_keys(batch, self._config.columns.keys[LEFT])
        if no_key is not None:
            which[no_key] = -1
        for number, run in enumerate(self._right.runs):
            mine = np.flatnonzero(which == number)
            holds = self._gatherer.holds((batch, run.batch), (mine, place[mine])) if len(mine) else None
            if holds is not None:
                which[mine[~holds]] = -1
                mine = mine[holds]
            if len(mine):
                made = self._gatherer.pairs((batch, run.batch), (mine, place[mine]))
                self._out.emit(Records(made, time[mine]))
        alone = np.flatnonzero(which < 0)
        if len(alone) and LEFT in self._config.columns.padded:
            self._out.emit(Records(self._gatherer.alone(LEFT, take_rows(batch, alone)), time[alone]))

    def _say_late(self, side: int, late: Records) -> None:
        self._context.count_late(len(late))
        if self._config.late:
            self._out.emit(Records(late.batch, late.event_time), LATE_SIDES[side])

    def _is_deleted(self, batch: pa.RecordBatch) -> Mask:
        if self._config.deleted is None:
            return np.zeros(batch.num_rows, np.bool_)
        reads = sorted(set(self._config.deleted.meta.root_names()))
        frame = pl.from_arrow(batch.select(reads))
        assert isinstance(frame, pl.DataFrame)
        return np.asarray(frame.select(self._config.deleted.fill_null(False).alias("_"))["_"].to_numpy())
