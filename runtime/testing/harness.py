"""OperatorHarness: a keyed operator at any parallelism, without a job: push rows, move time, read output.

A snapshot goes through bytes and comes back cut by key group, as through a checkpoint's files, and may
be restored at another parallelism.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from onceflow.runtime.checkpoint.manifest import StateHandle
from onceflow.runtime.checkpoint.memory_store import MemoryStore
from onceflow.runtime.checkpoint.state_files import StateFiles
from onceflow.runtime.clock import ManualClock
from onceflow.runtime.exchange.key_groups import Partitioner
from onceflow.runtime.operators.operator import (
    MAIN,
    ClockOperator,
    FiringOperator,
    FrozenState,
    Operator,
    OperatorContext,
    RestoredState,
    TwoInputOperator,
)
from onceflow.runtime.records import WATERMARK_MAX_MS, Kinds, Origin, Records
from onceflow.runtime.slot.firing import PIECE_ROWS_MAX, fire_all
from onceflow.runtime.state.columns import one_batch
from onceflow.runtime.state.key_groups import key_group_range
from onceflow.runtime.state.operator_state import Batches, FrozenRows, of_key_groups
from onceflow.runtime.state.overflow import UNLIMITED, StateBackend

Row = dict[str, Any]
PIECE_ROWS = 1_000
LONE_SUBTASK = OperatorContext("operator", 0, 1, 128, range(128), ManualClock())
"""The context of an operator's only subtask, for one that is driven by hand."""


class Collected:
    """What an operator emitted, in order."""

    def __init__(self) -> None:
        self.emitted: list[tuple[str, Records]] = []

    def emit(self, records: Records, tag: str = MAIN) -> None:
        self.emitted.append((tag, records))


class OperatorHarness:
    """All subtasks of one operator behind a key_by. `create` is called once for each."""

    def __init__(
        self,
        create: Callable[[], Operator],
        key_columns: Sequence[str],
        parallelism: int = 1,
        max_parallelism: int = 128,
        states: Sequence[RestoredState] | None = None,
        clock: ManualClock | None = None,
        right_keys: Sequence[str] = (),
        state: StateBackend = UNLIMITED,
    ) -> None:
        """`right_keys`: of the right input, if the operator has two. `state`: where its state is; if its
        snapshots build on each other, there is one after each thing that is done."""
        self.clock = clock or ManualClock()
        self.late_rows = 0
        self.out = Collected()
        self._partitioner = Partitioner(tuple(key_columns), max_parallelism, parallelism)
        right = tuple(right_keys or key_columns)
        self._right_partitioner = Partitioner(right, max_parallelism, parallelism)
        self._store = MemoryStore()
        self._files = StateFiles(self._store, 1)
        self._is_incremental = state.snapshots.are_incremental
        self._checkpoint_id = 0
        self.subtasks: list[Operator] = []
        for subtask in range(parallelism):
            key_groups = key_group_range(max_parallelism, parallelism, subtask)
            operator = create()
            context = OperatorContext(
                "operator",
                subtask,
                parallelism,
                max_parallelism,
                key_groups,
                self.clock,
                self._count_late,
                state=state,
            )
            operator.open(context, self.out)
            if states is not None:
                cut = [cut_state(state, key_groups) for state in states]
                operator.restore([state for state in cut if len(state.key_groups)])
            self.subtasks.append(operator)

    def push(
        self,
        batch: pa.RecordBatch,
        event_time: Sequence[int],
        origin: Origin | None = None,
        kind: Sequence[int] | None = None,
    ) -> None:
        """Rows from upstream, each to the subtask that owns its key. `kind`: what each does, a RowKind."""
        records = Records(batch, np.array(event_time, np.int64), None, origin, _kinds(kind))
        for subtask, part in self._partitioner.split(records):
            self.subtasks[subtask].on_records(part)
        self._checkpoint()

    def push_right(
        self, batch: pa.RecordBatch, event_time: Sequence[int], kind: Sequence[int] | None = None
    ) -> None:
        """The same for the right input."""
        records = Records(batch, np.array(event_time, np.int64), kind=_kinds(kind))
        for subtask, part in self._right_partitioner.split(records):
            operator = self.subtasks[subtask]
            assert isinstance(operator, TwoInputOperator), "it has one input"
            operator.on_right_records(part)
        self._checkpoint()

    def advance(self, time_ms: int, subtask: int | None = None) -> None:
        """The watermark of all subtasks, or of one."""
        for operator in self.subtasks if subtask is None else [self.subtasks[subtask]]:
            fire_all(operator, time_ms)
        self._checkpoint()

    def begin(self, time_ms: int) -> None:
        """The watermark of all subtasks, of which nothing fires until `fire`."""
        for operator in self.subtasks:
            operator.on_watermark(time_ms)

    def fire(self, rows_max: int) -> int:
        """A piece of what is due, in each subtask. Returns how many fired."""
        fired = sum(op.fire(rows_max) for op in self.subtasks if isinstance(op, FiringOperator))
        self._checkpoint()
        return fired

    def tick(self, milliseconds: float = 0) -> None:
        """The clock of all subtasks goes on, and all that is due by then fires."""
        self.clock.advance(milliseconds)
        for operator in self.subtasks:
            while (
                isinstance(operator, ClockOperator)
                and (wake_at_ms := operator.wake_at_ms) is not None
                and wake_at_ms <= self.clock.now_ms()
            ):
                operator.on_clock(self.clock.now_ms(), PIECE_ROWS_MAX)
        self._checkpoint()

    def finish(self) -> None:
        """The end of a bounded input."""
        self.advance(WATERMARK_MAX_MS)

    def rows(self, tag: str = MAIN) -> list[Row]:
        """The rows emitted so far."""
        return [row for t, records in self.out.emitted if t == tag for row in records.batch.to_pylist()]

    def snapshot(self) -> list[RestoredState]:
        """The state of all subtasks, as read back from storage."""
        if not self._is_incremental:
            states = [operator.snapshot() for operator in self.subtasks]
            return [stored(state) for state in states if state is not None]
        _, handles = self.written()
        return [self._files.read(handle, handle.key_groups) for handle in handles]

    def written(self) -> tuple[MemoryStore, list[StateHandle]]:
        """The state of all subtasks in files of attempt 1, under the uid "operator"."""
        states = [operator.snapshot() for operator in self.subtasks]
        self._checkpoint_id += 1
        return self._store, [
            self._files.write(self._checkpoint_id, "operator", subtask, state)
            for subtask, state in enumerate(states)
            if state is not None
        ]

    def _checkpoint(self) -> None:
        if self._is_incremental:
            self.written()

    def close(self) -> None:
        """The end of all subtasks."""
        for operator in self.subtasks:
            operator.close()

    def _count_late(self, rows: int) -> None:
        self.late_rows += rows


def _kinds(kind: Sequence[int] | None) -> Kinds | None:
    return None if kind is None else np.array(kind, np.int8)


class TableRows:
    """FrozenRows of a table that is there."""

    def __init__(self, table: pa.Table) -> None:
        self._batch = one_batch(table)

    def __len__(self) -> int:
        return int(self._batch.num_rows)

    def piece(self, first: int, end: int) -> pa.RecordBatch:
        return self._batch.slice(first, end - first)


def stored(state: FrozenState) -> RestoredState:
    """The state as it comes back from a file: tables through bytes, in pieces; no empty ones."""
    tables = {name: _round_trip(rows) for name, rows in state.tables.items() if len(rows)}
    return RestoredState(state.key_groups, tables, state.meta)


def cut_state(state: RestoredState, key_groups: range) -> RestoredState:
    """What is left of a state for a subtask that owns these key groups."""
    start = max(state.key_groups.start, key_groups.start)
    end = max(start, min(state.key_groups.stop, key_groups.stop))
    tables = {name: _cut(batches, range(start, end)) for name, batches in state.tables.items()}
    return RestoredState(range(start, end), tables, state.meta)


def _cut(batches: Batches, key_groups: range) -> Batches:
    return lambda: of_key_groups(batches(), key_groups)


def _round_trip(rows: FrozenRows) -> Batches:
    sink, first = pa.BufferOutputStream(), rows.piece(0, 1)
    with pa.ipc.new_stream(sink, first.schema) as writer:
        for start in range(0, len(rows), PIECE_ROWS):
            writer.write_batch(rows.piece(start, min(start + PIECE_ROWS, len(rows))))
    content = sink.getvalue()
    return lambda: iter(pa.ipc.open_stream(content))
