"""FrozenCalls: the rows that are in flight at a barrier, as a table of a snapshot; and their way back."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from onceflow.runtime.operators.async_calls.calls_in_flight import Call
from onceflow.runtime.records import Records, concatenated
from onceflow.runtime.state.description import RECORD, StateDescription, StatePart, type_text
from onceflow.runtime.state.operator_state import KEY_GROUP_COLUMN

TABLE = "in_flight"
EVENT_TIME = "event_time"


def in_flight_description(kind: str, schema: pa.Schema) -> StateDescription:
    """`in_flight`: key_group, event_time (int64, ms; left out in a stream without), record (struct): rows
    whose answers had not come. The key group only says who gets a row at a restore, since any subtask may ask
    for it; those of one subtask stay in their order."""
    return StateDescription(kind, TABLE, (), (StatePart(RECORD, TABLE, type_text(pa.struct(list(schema)))),))


@dataclass(frozen=True, slots=True)
class FrozenCalls:
    """The rows of these calls, in their order: neighbours are in neighbouring key groups of the subtask."""

    calls: Sequence[Call]
    schema: pa.Schema
    has_event_time: bool
    key_groups: range

    def __len__(self) -> int:
        return len(self.calls)

    def piece(self, first: int, end: int) -> pa.RecordBatch:
        calls = self.calls[first:end]
        groups = self.key_groups.start + np.arange(first, first + len(calls)) * len(self.key_groups) // max(
            1, len(self.calls)
        )
        fields = [pa.field(KEY_GROUP_COLUMN, pa.uint16(), nullable=False)]
        columns = [pa.array(groups.astype(np.uint16))]
        rows = rows_of(calls)
        if self.has_event_time:
            times = np.empty(0, np.int64) if rows is None else rows.event_time
            fields.append(pa.field(EVENT_TIME, pa.int64(), nullable=False))
            columns.append(pa.array(times))
        fields.append(pa.field(RECORD, pa.struct(list(self.schema)), nullable=False))
        columns.append(self._structs(rows))
        return pa.RecordBatch.from_arrays(columns, schema=pa.schema(fields))

    def _structs(self, rows: Records | None) -> pa.Array:
        fields = list(self.schema)
        if rows is None:
            return pa.array([], pa.struct(fields))
        return pa.StructArray.from_arrays(rows.batch.select(self.schema.names).columns, fields=fields)


def rows_of(calls: Sequence[Call]) -> Records | None:
    """The rows of these calls, in this order; None: of no call."""
    parts = [records.slice(first, count) for records, first, count in _runs(calls)]
    return concatenated(parts) if parts else None


def restored_rows(pieces: Iterable[pa.RecordBatch], schema: pa.Schema) -> Iterable[Records]:
    """What `FrozenCalls.piece` gave."""
    for piece in pieces:
        batch = pa.RecordBatch.from_arrays(piece.column(RECORD).flatten(), schema=schema)
        times = piece.column(EVENT_TIME).to_numpy() if EVENT_TIME in piece.schema.names else None
        yield Records(batch, times)


def _runs(calls: Sequence[Call]) -> Iterable[tuple[Records, int, int]]:
    """Batches, with the first row and the number of rows of which there are neighbouring calls."""
    first, count = 0, 0
    for n, call in enumerate(calls):
        before = calls[n - 1] if n else None
        if before is not None and call.records is before.records and call.row == before.row + 1:
            count += 1
            continue
        if before is not None:
            yield before.records, first, count
        first, count = call.row, 1
    if calls:
        yield calls[-1].records, first, count
