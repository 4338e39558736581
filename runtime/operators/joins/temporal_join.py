"""Temporal join: each row of a stream with the version of a table that was valid when it happened."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import polars as pl
import pyarrow as pa

from onceflow.runtime.operators.describe import expression_form
from onceflow.runtime.operators.joins.described_sides import described_keys, side_readers
from onceflow.runtime.operators.joins.frozen_sides import NAMES, TABLE, FrozenSides, restored_rows
from onceflow.runtime.operators.joins.joined_columns import (
    LATE_SIDES,
    LEFT,
    RIGHT,
    Gatherer,
    JoinedColumns,
    null_keys,
)
from onceflow.runtime.operators.joins.key_numbers import KeyNumbers
from onceflow.runtime.operators.joins.runs import MERGE_RUNS, FrozenRun, Run, SideRows, limit_of
from onceflow.runtime.operators.operator import FrozenState, OperatorContext, Output, RestoredState
from onceflow.runtime.records import WATERMARK_MIN_MS, Indices, Int64s, Mask, Records
from onceflow.runtime.state.columns import one_batch
from onceflow.runtime.state.description import StateDescription, StatePart, type_text
from onceflow.runtime.state.evolution.readers import Readers
from onceflow.runtime.state.hashing import hash_keys
from onceflow.runtime.state.operator_state import restored_watermark
from onceflow.runtime.state.rows import take_rows

_VERSIONS_MIN = 1 << 10


@dataclass(frozen=True)
class TemporalJoin:
    """A left row waits until the watermark has reached its time, and then meets the latest right row of its
    key that happened at that time or before. `deleted`: says of which right rows the key is gone from then
    on; over the right columns."""

    columns: JoinedColumns
    schemas: tuple[pa.Schema, pa.Schema]
    passes: Mapping[str, tuple[int, str]]
    deleted: pl.Expr | None = None
    late: bool = False

    @property
    def output_schema(self) -> pa.Schema:
        return self.columns.schema(self.passes, *self.schemas)

    @property
    def description(self) -> StateDescription:
        deleted = None if self.deleted is None else expression_form(self.deleted)
        types = [type_text(pa.struct(list(schema))) for schema in self.schemas]
        parts = (
            StatePart(NAMES[LEFT], "rows", types[LEFT], function=self.columns.how),
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


class Versions:
    """The versions of each key by their time: those to come, and the last one before the watermark."""

    def __init__(self) -> None:
        self.runs: list[Run] = []
        """The older ones first; of two versions with the same time the later one counts."""
        self._looked_from = _VERSIONS_MIN

    def __len__(self) -> int:
        return sum(map(len, self.runs))

    def add(self, batch: pa.RecordBatch, row: Int64s, time: Int64s, is_deleted: Mask) -> None:
        if len(row):
            self.runs.append(Run(batch, row, time, np.asarray(is_deleted).copy()))
            while len(self.runs) >= MERGE_RUNS and self.runs[-MERGE_RUNS].level <= self.runs[-1].level:
                merged = _merged(self.runs[-MERGE_RUNS:], self.runs[-1].level + 1)
                self.runs[-MERGE_RUNS:] = [merged]

    def at(self, row: Int64s, time: Int64s) -> tuple[Indices, Indices]:
        """The run, and the place in it, of the version of each of these keys at this time; run -1: there is
        none, or the key is gone."""
        which, place = np.full(len(row), -1), np.zeros(len(row), np.int64)
        best = np.zeros(len(row), np.int64)
        for number, run in enumerate(self.runs):
            begin, counts = run.find(row, np.full(len(row), -(1 << 61)), time)
            last = begin + counts - 1
            found = run.time[np.maximum(last, 0)]
            is_newer = (counts > 0) & ((which < 0) | (found >= best))
            which[is_newer], place[is_newer], best[is_newer] = number, last[is_newer], found[is_newer]
        for number, run in enumerate(self.runs):
            assert run.is_matched is not None
            mine = which == number
            which[mine] = np.where(run.is_matched[place[mine]], -1, number)
        return which, place

    def forget(self, watermark_ms: int) -> None:
        """Let go of versions that no later row can meet, when there may be many."""
        if len(self) < self._looked_from:
            return
        run = _merged(self.runs)
        assert run.is_matched is not None
        is_over = run.time <= watermark_ms
        is_last = np.ones(len(run), np.bool_)
        is_last[:-1] = (run.row[1:] != run.row[:-1]) | ~is_over[1:]
        kept = np.flatnonzero(~is_over | (is_last & ~run.is_matched))
        self.runs = [run.take(kept, 0)] if len(kept) else []
        self._looked_from = max(_VERSIONS_MIN, 2 * len(kept))

    def frozen(self) -> list[FrozenRun]:
        return [FrozenRun(run, 0, run.is_matched, np.arange(len(run))) for run in self.runs]

    def renumber(self, kept: Indices) -> None:
        self.runs = [run.renumbered(kept) for run in self.runs]


class TemporalJoinOperator:
    """One subtask of a temporal join."""

    def __init__(self, config: TemporalJoin) -> None:
        self._config = config
        self._keys = KeyNumbers(config.columns.keys, config.schemas)
        self._gatherer = Gatherer(config.columns, config.passes, config.schemas, None)
        self._left = SideRows(config.schemas[LEFT], is_padded=True)
        self._right = Versions()
        self._watermark = WATERMARK_MIN_MS

    def open(self, context: OperatorContext, out: Output) -> None:
        self._context = context
        self._out = out

    def restore(self, states: Sequence[RestoredState]) -> None:
        for state in states:
            for side, batch, time, marks in restored_rows(state.batches(TABLE), self._config.schemas):
                row = self._keys.of(side, batch, hash_keys(batch, self._config.columns.keys[side]))
                (self._left if side == LEFT else self._right).add(batch, row, time, marks)
        if states:
            self._watermark = restored_watermark(min(int(state.meta["watermark"]) for state in states))

    def on_records(self, records: Records) -> None:
        assert records.event_time is not None, "a temporal join needs event time"
        is_late = records.event_time <= self._watermark
        if is_late.any():
            self._say_late(LEFT, records.filter(is_late))
            records = records.filter(~is_late)
        if len(records):
            row = self._numbers(LEFT, records)
            assert records.event_time is not None, "rows keep it"
            self._left.add(records.batch, row, records.event_time, np.zeros(len(records), np.bool_))

    def on_right_records(self, records: Records) -> None:
        """Late versions are counted, since rows were joined without them; they hold for those to come."""
        assert records.event_time is not None, "a temporal join needs event time"
        is_late = records.event_time <= self._watermark
        if is_late.any():
            self._say_late(RIGHT, records.filter(is_late))
        no_key = null_keys(records.batch, self._config.columns.keys[RIGHT])
        if no_key is not None:
            records = records.filter(~no_key)
        if len(records):
            row = self._numbers(RIGHT, records)
            assert records.event_time is not None, "rows keep it"
            self._right.add(records.batch, row, records.event_time, self._is_deleted(records.batch))

    def on_watermark(self, time_ms: int) -> None:
        self._watermark = max(time_ms, self._watermark)  # after a restore it begins again lower

    def fire(self, rows_max: int) -> int:
        fired = 0
        for run, rows in self._left.due(limit_of(self._watermark, 0), rows_max):
            fired += len(rows)
            self._send(take_rows(run.batch, rows), run.row[rows], run.time[rows])
        if not fired:
            self._left.expire(limit_of(self._watermark, 0))
            self._right.forget(self._watermark)
            used = [run.row for side in (self._left, self._right) for run in side.runs]
            kept = self._keys.forget(used)
            if kept is not None:
                self._left.renumber(kept)
                self._right.renumber(kept)
        return fired

    def snapshot(self) -> FrozenState:
        config = self._config
        sides = [self._left.frozen(), self._right.frozen()]
        frozen = FrozenSides(sides, config.schemas, config.columns.keys, self._context.max_parallelism)
        return FrozenState(self._context.key_groups, {TABLE: frozen}, {"watermark": self._watermark})

    def close(self) -> None:
        pass

    def _send(self, batch: pa.RecordBatch, row: Int64s, time: Int64s) -> None:
        which, place = self._right.at(row, time)
        no_key = null_keys(batch, self._config.columns.keys[LEFT])
        if no_key is not None:
            which[no_key] = -1
        for number, run in enumerate(self._right.runs):
            mine = np.flatnonzero(which == number)
            if len(mine):
                made = self._gatherer.pairs((batch, run.batch), (mine, place[mine]))
                self._out.emit(Records(made, time[mine]))
        alone = np.flatnonzero(which < 0)
        if len(alone) and LEFT in self._config.columns.padded:
            self._out.emit(Records(self._gatherer.alone(LEFT, take_rows(batch, alone)), time[alone]))

    def _numbers(self, side: int, records: Records) -> Indices:
        assert records.key_hash is not None, "a join comes after a key_by"
        return self._keys.of(side, records.batch, records.key_hash)

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


def _merged(runs: Sequence[Run], level: int = 0) -> Run:
    masks = [run.is_matched for run in runs if run.is_matched is not None]
    return Run(
        one_batch(pa.Table.from_batches([run.batch for run in runs])),
        np.concatenate([run.row for run in runs]),
        np.concatenate([run.time for run in runs]),
        np.concatenate(masks),
        level,
    )
