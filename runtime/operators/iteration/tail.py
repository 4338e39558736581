"""IterationTail: what sends rows back to the head of their loop, and keeps what is in flight."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from onceflow.runtime.errors import Fatal
from onceflow.runtime.operators.iteration.back_edge import BackEdge
from onceflow.runtime.operators.iteration.row_queue import Waiting
from onceflow.runtime.operators.operator import FrozenState, OperatorContext, Output, RestoredState
from onceflow.runtime.records import LoopToken, Records
from onceflow.runtime.state.description import RECORD, StateDescription, StatePart, type_text
from onceflow.runtime.state.operator_state import KEY_GROUP_COLUMN

TABLE = "in_flight"


def in_flight_description(schema: pa.Schema) -> StateDescription:
    """`in_flight`: key_group, record (struct): the rows that were going round. The key group only says who
    gets a row at a restore: rows of a loop go to any subtask of it."""
    part = StatePart(RECORD, "in_flight", type_text(pa.struct(list(schema))))
    return StateDescription("iterate", TABLE, (), (part,))


class IterationTail:
    """One subtask. It has no output: rows go to the head of the same subtask."""

    def __init__(self, loop: str, schema: pa.Schema) -> None:
        """`schema`: of the rows of the loop. Those that come have its columns in its order."""
        self.loop = loop
        self._schema = schema
        self._barrier_id = -1

    def open(self, context: OperatorContext, out: Output) -> None:
        self._key_groups = context.key_groups
        self._back: BackEdge = context.shared(f"loop {self.loop}", BackEdge)
        self._back.keep_in_memory(context.state.queue_bytes())

    def restore(self, states: Sequence[RestoredState]) -> None:
        for state in states:
            for piece in state.batches(TABLE):
                self._back.send(Records(_rows_of(piece, self._schema)))

    def on_records(self, records: Records) -> None:
        if self._back.is_over:
            raise Fatal(
                f"rows came back to loop {self.loop!r} after its end: an operator in it sends rows at the "
                "end of its input, which a loop waits for in vain: move it behind the loop"
            )
        self._back.send(Records(pa.RecordBatch.from_arrays(records.batch.columns, schema=self._schema)))

    def on_token(self, token: LoopToken) -> None:
        """It came through the body, behind all rows before it."""
        self._back.returned = token

    def on_watermark(self, time_ms: int) -> None:
        pass

    def is_logging(self, checkpoint_id: int) -> bool:
        """Whether the head has had this barrier, and the tail has not."""
        return self._back.logs(checkpoint_id)

    def on_barrier(self, checkpoint_id: int) -> None:
        self._barrier_id = checkpoint_id

    def snapshot(self) -> FrozenState:
        logged = self._back.end_log(self._barrier_id)
        return FrozenState(self._key_groups, {TABLE: RowsInFlight(logged, self._schema, self._key_groups)})

    def close(self) -> None:
        pass


@dataclass(frozen=True, slots=True)
class RowsInFlight:
    """FrozenRows of a log: row i has the i-th of the subtask's key groups, in turn."""

    logged: Sequence[Waiting]
    schema: pa.Schema
    key_groups: range

    def __len__(self) -> int:
        return sum(map(len, self.logged))

    def piece(self, first: int, end: int) -> pa.RecordBatch:
        table = pa.Table.from_batches(self._batches(first, end), self.schema).combine_chunks()
        groups = self.key_groups.start + np.arange(first, end) % len(self.key_groups)
        fields = list(self.schema)
        arrays = [column.combine_chunks() for column in table.columns]
        rows = (
            pa.StructArray.from_arrays(arrays, fields=fields)
            if len(table)
            else pa.array([], pa.struct(fields))
        )
        return pa.RecordBatch.from_arrays(
            [pa.array(groups.astype(np.uint16)), rows],
            schema=pa.schema(
                [
                    pa.field(KEY_GROUP_COLUMN, pa.uint16(), nullable=False),
                    pa.field(RECORD, pa.struct(fields), nullable=False),
                ]
            ),
        )

    def _batches(self, first: int, end: int) -> Iterator[pa.RecordBatch]:
        """These rows: of what is in files only the batches with some of them are read."""
        at = 0
        for waiting in self.logged:
            begin, stop = max(first, at), min(end, at + len(waiting))
            if begin < stop:
                yield waiting.batch.slice(begin - at, stop - begin)
            at += len(waiting)


def _rows_of(piece: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    return pa.RecordBatch.from_arrays(piece.column(RECORD).flatten(), schema=schema)
