"""Regular join: rows of two streams with the same key, whenever they come; its result as changes."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import polars as pl
import pyarrow as pa

from onceflow.runtime.arrays.sorting import stable_order
from onceflow.runtime.operators.joins.described_sides import described_sides, side_readers
from onceflow.runtime.operators.joins.frozen_sides import TABLE
from onceflow.runtime.operators.joins.joined_columns import LEFT, RIGHT, Gatherer, JoinedColumns, null_keys
from onceflow.runtime.operators.joins.joined_rows import JoinedRows, Kept
from onceflow.runtime.operators.joins.meetings import PARTNERS, SINCE, Arrivals, FrozenKept, Meetings
from onceflow.runtime.operators.joins.ordered_changes import OrderedChanges
from onceflow.runtime.operators.joins.runs import PAIRS_MAX, limit_of
from onceflow.runtime.operators.operator import FrozenState, OperatorContext, Output, RestoredState
from onceflow.runtime.records import WATERMARK_MIN_MS, Indices, Int64s, Kinds, Mask, Records, RowKind
from onceflow.runtime.state.asked_keys import AskedKeys
from onceflow.runtime.state.description import StateDescription, TimeToLive
from onceflow.runtime.state.evolution.readers import Readers
from onceflow.runtime.state.operator_state import restored_watermark
from onceflow.runtime.state.overflow import GroupedOverflow, GroupsInMemory


@dataclass(frozen=True)
class RegularJoin:
    """Each row of either side meets all rows of the other one that are kept. `passes`: see TwoInputs.

    Without `ttl` a row is kept until it is taken back. With it, a row that comes at t is there for those that
    come before t + ttl, and two rows meet if each is there for the other: if they came less than ttl apart. A
    row comes at its event time, or at the watermark if that is further; or when the clock says.
    """

    columns: JoinedColumns
    schemas: tuple[pa.Schema, pa.Schema]
    passes: Mapping[str, tuple[int, str]]
    condition: pl.Expr | None = None
    ttl: TimeToLive | None = None
    has_event_time: bool = True

    @property
    def output_schema(self) -> pa.Schema:
        return self.columns.schema(self.passes, *self.schemas)

    @property
    def kept(self) -> str:
        """How long rows are kept, in words."""
        if self.ttl is None:
            return "rows kept for good"
        return f"rows kept for {self.ttl.ms} ms of {'processing' if self.ttl.is_by_clock else 'event'} time"

    @property
    def description(self) -> StateDescription:
        function = f"{self.columns.how}, {self.kept}{'' if self.has_event_time else ', without event time'}"
        return described_sides("regular join", self.columns, self.schemas, self.condition, function)

    @property
    def readers(self) -> Readers:
        return side_readers(self.schemas)

    def create(self) -> RegularJoinOperator:
        """A fresh operator for one subtask and attempt."""
        return RegularJoinOperator(self)


_EXPIRED = 0
"""The kind of time at which a key comes back: its last row has expired."""
_WOKEN_MAX = 1 << 12


class RegularJoinOperator:
    """One subtask of a regular join. What a batch causes is sent at once; a watermark lets go of rows."""

    def __init__(self, config: RegularJoin) -> None:
        self._config = config
        gatherer = Gatherer(config.columns, config.passes, config.schemas, config.condition)
        ttl_ms = None if config.ttl is None else config.ttl.ms
        self._meetings = Meetings(config.schemas, gatherer, config.columns.padded, ttl_ms)
        self._kept = Kept(self._meetings.sides, self._load, FrozenKept, (SINCE, PARTNERS))
        self._rows = JoinedRows(config.columns, config.schemas, self._kept)
        self._overflow: GroupedOverflow = GroupsInMemory(self._rows)
        self._watermark = WATERMARK_MIN_MS
        self._clock_ms = WATERMARK_MIN_MS

    def open(self, context: OperatorContext, out: Output) -> None:
        self._context = context
        self._out = out
        context.begin(self._rows)
        self._overflow = context.state.grouped_overflow(self._rows, self._kept.table_columns)

    def restore(self, states: Sequence[RestoredState]) -> None:
        for state in states:
            for piece in state.batches(TABLE):
                self._overflow.load(piece)
                self._make_room()
        if states:
            self._watermark = restored_watermark(min(int(state.meta["watermark"]) for state in states))

    def on_records(self, records: Records) -> None:
        self._arrive(LEFT, records)

    def on_right_records(self, records: Records) -> None:
        self._arrive(RIGHT, records)

    def on_watermark(self, time_ms: int) -> None:
        self._watermark = max(time_ms, self._watermark)  # after a restore it begins again lower
        self._forget()
        self._make_room()

    def snapshot(self) -> FrozenState:
        self._forget()
        frozen = self._overflow.freeze(self._context.max_parallelism)
        return FrozenState(self._context.key_groups, {TABLE: frozen}, {"watermark": self._watermark})

    def peek(self, asked: AskedKeys) -> list[pa.RecordBatch]:
        return self._overflow.peek(asked, self._context.max_parallelism)

    def close(self) -> None:
        self._overflow.close()

    # --- Rows that come ---

    def _arrive(self, side: int, records: Records) -> None:
        assert records.key_hash is not None, "a join comes after a key_by"
        since = self._since(records)
        numbers = self._overflow.find_keys(self._rows.keys_of(side, records.batch), records.key_hash)
        rows = self._arrivals(side, records.batch, records.event_time, since, numbers)
        adds = _adds(records.kind)
        if adds is None and not self._config.columns.padded:
            out = OrderedChanges(self._out.emit, sends_at_once=True)
            self._meetings.add(rows, np.arange(len(rows)), out)
        else:
            self._change(rows, np.ones(len(rows), np.bool_) if adds is None else adds)
        self._forget()
        self._make_room()

    def _change(self, rows: Arrivals, adds: Mask) -> None:
        for first, end in self._pieces(rows):
            piece = rows if end - first == len(rows) else rows.slice(first, end)
            out = OrderedChanges(self._out.emit, sends_at_once=len(piece) == 1)
            self._meet_in_turns(piece, adds[first:end], out)
            out.send()

    def _meet_in_turns(self, rows: Arrivals, adds: Mask, out: OrderedChanges) -> None:
        turns = _turns(rows.row, adds)
        for turn in range(int(turns.max()) + 1):
            is_due = turns == turn
            for is_add, meet in ((False, self._meetings.take_back), (True, self._meetings.add)):
                mine = np.flatnonzero(is_due & (adds == is_add))
                if len(mine):
                    meet(rows, mine, out)

    def _since(self, records: Records) -> Int64s:
        """When these rows come, in the time that rows expire by."""
        ttl = self._config.ttl
        if ttl is not None and ttl.is_by_clock:
            return np.full(len(records), self._clock())
        if records.event_time is None:
            return np.zeros(len(records), np.int64)
        return records.event_time if ttl is None else np.maximum(records.event_time, self._watermark)

    def _pieces(self, rows: Arrivals) -> Iterator[tuple[int, int]]:
        """The rows are cut so that about `PAIRS_MAX` changes are held, to put them in order."""
        ends = np.cumsum(self._meetings.partners_within(rows))
        first = 0
        while first < len(rows):
            before = int(ends[first - 1]) if first else 0
            end = max(first + 1, int(np.searchsorted(ends, before + PAIRS_MAX, side="right")))
            yield first, end
            first = end

    def _load(self, side: int, batch: pa.RecordBatch, row: Indices, its: pa.RecordBatch) -> None:
        """Keep rows of a snapshot."""
        time, since = (its.column(name).to_numpy() for name in ("event_time", SINCE))
        partners = np.array(its.column(PARTNERS).fill_null(0))  # they will change
        self._meetings.load(self._arrivals(side, batch, time, since, row), partners)

    def _arrivals(
        self, side: int, batch: pa.RecordBatch, time: Int64s | None, since: Int64s, row: Indices
    ) -> Arrivals:
        no_key = null_keys(batch, self._config.columns.keys[side])
        event_time = time if self._config.has_event_time else None
        return Arrivals(side, batch, event_time, since, row, None if no_key is None else ~no_key)

    # --- Rows that go ---

    def _forget(self) -> None:
        """Let go of what has expired, of some that is away, and of keys without rows."""
        ttl = self._config.ttl
        if ttl is not None:
            now_ms = self._clock() if ttl.is_by_clock else self._watermark
            first_ms = self._overflow.first_wake(_EXPIRED)
            if first_ms is not None and first_ms <= now_ms:
                self._overflow.wake(_EXPIRED, now_ms, _WOKEN_MAX)
            for side in self._meetings.sides:
                side.expire(limit_of(now_ms, ttl.ms))
        self._overflow.compact()

    def _make_room(self) -> None:
        while self._overflow.needs_room():
            going, ttl = self._overflow.going(), self._config.ttl
            wakes = {} if ttl is None else {_EXPIRED: self._rows.expire_ms(going, (ttl.ms, ttl.ms))}
            self._overflow.make_room(going, wakes)

    def _clock(self) -> int:
        """The time of the clock; it does not go back, since what had expired may be gone."""
        self._clock_ms = max(self._clock_ms, self._context.clock.now_ms())
        return self._clock_ms


def _adds(kinds: Kinds | None) -> Mask | None:
    """Which rows are added and not taken back; None: all."""
    if kinds is None:
        return None
    adds = np.asarray((kinds == RowKind.INSERT) | (kinds == RowKind.UPDATE_AFTER))
    return None if adds.all() else adds


def _turns(row: Int64s, adds: Mask) -> Int64s:
    """The turn in which each row is taken, from 0: rows of a key in their order, and in one turn either those
    that are added or those that are taken back. Keys have nothing to do with each other."""
    order = stable_order(row)
    keys, kinds = row[order], adds[order]
    is_other = np.zeros(len(row), np.int64)
    is_other[1:] = (kinds[1:] != kinds[:-1]) & (keys[1:] == keys[:-1])
    changes = np.cumsum(is_other)
    begins = np.searchsorted(keys, keys)
    turns = np.empty(len(row), np.int64)
    turns[order] = changes - changes[begins]
    return turns
