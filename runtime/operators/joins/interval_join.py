"""Interval join: rows of two streams with the same key whose event times are at most so far apart."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import polars as pl
import pyarrow as pa

from onceflow.runtime.operators.joins.asked import Asked
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
from onceflow.runtime.operators.joins.rows_in_time import RowsInTime
from onceflow.runtime.operators.joins.runs import PAIRS_MAX, SideRows, limit_of, pairs
from onceflow.runtime.operators.operator import FrozenState, OperatorContext, Output, RestoredState
from onceflow.runtime.records import WATERMARK_MIN_MS, Indices, Int64s, Mask, Records, concatenated
from onceflow.runtime.state.asked_keys import AskedKeys
from onceflow.runtime.state.description import StateDescription
from onceflow.runtime.state.evolution.readers import Readers
from onceflow.runtime.state.operator_state import restored_watermark
from onceflow.runtime.state.rows import take_rows


@dataclass(frozen=True)
class IntervalJoin:
    """left.ts + lower_ms <= right.ts <= left.ts + upper_ms, for rows of one key. `passes`: see TwoInputs.

    A pair is sent when its second row comes, with the later of the two times. A row that is to come out
    alone is sent when the watermark says that no partner can come any more: with its own time, which lies
    behind the watermark then, so that of the output is `delay_ms` lower.
    """

    columns: JoinedColumns
    schemas: tuple[pa.Schema, pa.Schema]
    passes: Mapping[str, tuple[int, str]]
    lower_ms: int
    upper_ms: int
    condition: pl.Expr | None = None
    late: tuple[bool, bool] = (False, False)
    """Whether late rows of each side are sent on."""

    @property
    def keep_ms(self) -> tuple[int, int]:
        """How far behind a row of each side the watermark is when no partner can come any more."""
        return self.upper_ms, -self.lower_ms

    @property
    def delay_ms(self) -> int:
        return max([0, *(self.keep_ms[side] for side in self.columns.padded)])

    @property
    def output_schema(self) -> pa.Schema:
        return self.columns.schema(self.passes, *self.schemas)

    @property
    def description(self) -> StateDescription:
        kept = f"{self.columns.how}, right - left from {self.lower_ms} to {self.upper_ms} ms"
        return described_sides("interval join", self.columns, self.schemas, self.condition, kept)

    @property
    def readers(self) -> Readers:
        return side_readers(self.schemas)

    def create(self) -> IntervalJoinOperator:
        """A fresh operator for one subtask and attempt."""
        return IntervalJoinOperator(self)


class IntervalJoinOperator:
    """One subtask of an interval join. What it keeps is bounded by the watermark: `fire` tells of rows that
    expire alone, and all that expire are let go of."""

    def __init__(self, config: IntervalJoin) -> None:
        self._config = config
        self._gatherer = Gatherer(config.columns, config.passes, config.schemas, config.condition)
        padded = config.columns.padded
        self._sides = [SideRows(schema, n in padded) for n, schema in enumerate(config.schemas)]
        self._rows = RowsInTime(config.columns, config.schemas, self._sides, self._keep, self._due_ms)
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
        self._arrive(LEFT, records)

    def on_right_records(self, records: Records) -> None:
        self._arrive(RIGHT, records)

    def on_watermark(self, time_ms: int) -> None:
        self._watermark = max(time_ms, self._watermark)  # after a restore it begins again lower
        self._expire()

    def fire(self, rows_max: int) -> int:
        fired = self._send_due(rows_max)
        if fired:
            return fired
        self._expire()
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

    # --- Rows that come ---

    def _arrive(self, side: int, records: Records) -> None:
        records = self._on_time(side, records)
        if not len(records):
            return
        assert records.event_time is not None, "an interval join needs event time"
        row = self._rows.find_keys(side, records)
        no_key = null_keys(records.batch, self._config.columns.keys[side])
        matched = self._meet(side, records.batch, row, records.event_time, no_key)
        mine = self._sides[side]
        is_kept = np.ones(len(row), np.bool_)
        if not mine.is_padded:
            is_kept = np.asarray(records.event_time > self._limit(side))
            if no_key is not None:
                is_kept &= ~no_key
        if is_kept.all():
            mine.add(records.batch, row, records.event_time, matched)
        else:
            kept = np.flatnonzero(is_kept)
            mine.add(take_rows(records.batch, kept), row[kept], records.event_time[kept], matched[kept])
        self._make_room()

    def _meet(self, side: int, batch: pa.RecordBatch, row: Int64s, time: Int64s, no_key: Mask | None) -> Mask:
        """Send the pairs of these rows with those of the other side; which of them have one."""
        config = self._config
        earliest, latest = time + config.lower_ms, time + config.upper_ms
        if side == RIGHT:
            earliest, latest = time - config.upper_ms, time - config.lower_ms
        matched = np.zeros(len(row), np.bool_)
        made: list[Records] = []
        for run, begin, counts in Asked(row, earliest, latest).find(self._sides[1 - side].runs):
            if no_key is not None:
                counts[no_key] = 0
            batches = (batch, run.batch) if side == LEFT else (run.batch, batch)
            for mine, theirs in pairs(begin, counts):
                rows = (mine, theirs) if side == LEFT else (theirs, mine)
                holds = self._gatherer.holds(batches, rows)
                if holds is not None and not holds.all():
                    mine, theirs = mine[holds], theirs[holds]
                    rows = (mine, theirs) if side == LEFT else (theirs, mine)
                if not len(mine):
                    continue
                matched[mine] = True
                if run.is_matched is not None:
                    run.is_matched[theirs] = True
                times = np.maximum(time[mine], run.time[theirs])
                made.append(Records(self._gatherer.pairs(batches, rows), times))
                if sum(map(len, made)) >= PAIRS_MAX:
                    self._out.emit(concatenated(made))
                    made = []
        if made:  # those of all runs in one batch, since each costs those behind it something, too
            self._out.emit(concatenated(made))
        return matched

    def _on_time(self, side: int, records: Records) -> Records:
        """The rows whose time the watermark has not reached yet. All others join nothing."""
        assert records.event_time is not None, "an interval join needs event time"
        is_late = records.event_time <= self._watermark
        if not is_late.any():
            return records
        late = records.filter(is_late)
        self._context.count_late(len(late))
        if self._config.late[side]:
            self._out.emit(Records(late.batch, late.event_time), LATE_SIDES[side])
        return records.filter(~is_late)

    # --- Rows that go ---

    def _send_due(self, rows_max: int) -> int:
        """Send rows in memory that expire and had no partner; how many have expired."""
        fired = 0
        for side in self._config.columns.padded:
            for run, rows in self._sides[side].due(self._limit(side), rows_max - fired):
                fired += len(rows)
                self._rows.note_changed(run.row[rows])
                assert run.is_matched is not None
                alone = rows[~run.is_matched[rows]]
                if len(alone):
                    batch = self._gatherer.alone(side, take_rows(run.batch, alone))
                    self._out.emit(Records(batch, run.time[alone]))
        return fired

    def _limit(self, side: int) -> int:
        return limit_of(self._watermark, self._config.keep_ms[side])

    def _expire(self) -> None:
        for number, side in enumerate(self._sides):
            side.expire(self._limit(number))

    def _make_room(self) -> None:
        self._expire()
        self._rows.make_room()

    def _due_ms(self, keys: Indices) -> Int64s:
        return self._rows.table.expire_ms(keys, self._config.keep_ms, self._config.columns.padded)

    def _keep(self, side: int, batch: pa.RecordBatch, row: Indices, time: Int64s, is_matched: Mask) -> None:
        self._sides[side].add(batch, row, time, is_matched)
