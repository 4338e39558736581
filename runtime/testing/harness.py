"""OperatorHarness: a keyed operator at any parallelism, without a job: push rows, move time, read output.

A snapshot goes through bytes and comes back cut by key group, as through a checkpoint's files, and may
be restored at another parallelism.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from onceflow.runtime.clock import ManualClock
from onceflow.runtime.exchange.key_groups import Partitioner
from onceflow.runtime.operators.operator import MAIN, Operator, OperatorContext, OperatorState
from onceflow.runtime.records import WATERMARK_MAX_MS, Origin, Records
from onceflow.runtime.state.key_groups import key_group_range

Row = dict[str, Any]


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
        states: Sequence[OperatorState] | None = None,
    ) -> None:
        self.late_rows = 0
        self.out = Collected()
        self._partitioner = Partitioner(tuple(key_columns), max_parallelism, parallelism)
        self.subtasks: list[Operator] = []
        for subtask in range(parallelism):
            key_groups = key_group_range(max_parallelism, parallelism, subtask)
            operator = create()
            context = OperatorContext(
                "operator", subtask, parallelism, max_parallelism, key_groups, ManualClock(), self._count_late
            )
            operator.open(context, self.out)
            if states is not None:
                cut = [cut_state(state, key_groups) for state in states]
                operator.restore([state for state in cut if len(state.key_groups)])
            self.subtasks.append(operator)

    def push(self, batch: pa.RecordBatch, event_time: Sequence[int], origin: Origin | None = None) -> None:
        """Rows from upstream, each to the subtask that owns its key."""
        records = Records(batch, np.array(event_time, np.int64), None, origin)
        for subtask, part in self._partitioner.split(records):
            self.subtasks[subtask].on_records(part)

    def advance(self, time_ms: int, subtask: int | None = None) -> None:
        """The watermark of all subtasks, or of one."""
        for operator in self.subtasks if subtask is None else [self.subtasks[subtask]]:
            operator.on_watermark(time_ms)

    def finish(self) -> None:
        """The end of a bounded input."""
        self.advance(WATERMARK_MAX_MS)

    def rows(self, tag: str = MAIN) -> list[Row]:
        """The rows emitted so far."""
        return [row for t, records in self.out.emitted if t == tag for row in records.batch.to_pylist()]

    def snapshot(self) -> list[OperatorState]:
        """The state of all subtasks, as read back from storage."""
        states = [operator.snapshot() for operator in self.subtasks]
        return [stored(state) for state in states if state is not None]

    def _count_late(self, rows: int) -> None:
        self.late_rows += rows


def stored(state: OperatorState) -> OperatorState:
    """The state as it comes back from a file: tables through bytes; no empty ones."""
    tables = {name: _round_trip(table) for name, table in state.tables.items() if table.num_rows}
    return OperatorState(state.key_groups, tables, state.meta)


def cut_state(state: OperatorState, key_groups: range) -> OperatorState:
    """What is left of a state for a subtask that owns these key groups."""
    start = max(state.key_groups.start, key_groups.start)
    end = max(start, min(state.key_groups.stop, key_groups.stop))
    tables: Mapping[str, pa.Table] = {name: _cut(table, start, end) for name, table in state.tables.items()}
    return OperatorState(range(start, end), tables, state.meta)


def _cut(table: pa.Table, start: int, end: int) -> pa.Table:
    groups = table.column("key_group").to_numpy()
    return table.filter(pa.array((groups >= start) & (groups < end)))


def _round_trip(table: pa.Table) -> pa.Table:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)
    return pa.ipc.open_stream(sink.getvalue()).read_all()
