"""Rows that were on their way to an operator when its state was frozen: as a state of its own, by key group.

With unaligned barriers an operator's snapshot is taken while rows that belong before it wait in its channels
(Chandy and Lamport 1985; Flink's FLIP-76). They are kept as the state of the way they were on. Each row has
the key group of its key, so a rescale gives it to whoever has its key; where there is no key, the key groups
of the subtask in turn, so that each gets to one subtask.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa

from onceflow.runtime.records import Origin, Records, concatenated
from onceflow.runtime.state.key_groups import key_groups_of
from onceflow.runtime.state.operator_state import KEY_GROUP_COLUMN, FrozenState, RestoredState

TABLE = "in_flight"
_WAY = " > "
"""Stands between the uids at the two ends of a way. No uid of a user's has it."""
_ROW, _EVENT_TIME, _KEY_HASH, _SPLIT, _OFFSET, _KIND = (
    "row",
    "event_time",
    "key_hash",
    "split",
    "offset",
    "kind",
)
_UNKNOWN = "a split that is not known any more"


def way_uid(start: str, end: str) -> str:
    """The uid of what is in flight between two operators."""
    return f"{start}{_WAY}{end}"


def way_ends(uid: str) -> list[str]:
    """What `way_uid` made this of."""
    return uid.split(_WAY)


def is_in_flight(uid: str) -> bool:
    """Whether a state with this uid is of rows in flight."""
    return _WAY in uid


def frozen_in_flight(
    records: Sequence[Records], schema: pa.Schema, key_groups: range, max_parallelism: int
) -> FrozenState:
    """These rows, in this order. `schema`: of their columns."""
    rows = InFlightRows(list(records), schema, key_groups, max_parallelism)
    return FrozenState(key_groups, {TABLE: rows})


def in_flight_rows(
    states: Iterable[RestoredState], schema: pa.Schema, with_origin: bool
) -> Iterator[Records]:
    """The rows of these states, those of each state in their order."""
    for state in states:
        for piece in state.batches(TABLE):
            yield _records(piece, schema, with_origin)


@dataclass(slots=True)
class InFlightRows:
    """FrozenRows of batches. Made into columns by the thread that writes them."""

    records: list[Records]
    schema: pa.Schema
    key_groups: range
    max_parallelism: int
    _columns: pa.RecordBatch | None = field(default=None)

    def __len__(self) -> int:
        return sum(map(len, self.records))

    def piece(self, first: int, end: int) -> pa.RecordBatch:
        columns = self._columns
        if columns is None:
            columns = self._columns = self._as_columns()
        return columns.slice(first, end - first)

    def _as_columns(self) -> pa.RecordBatch:
        if not self.records:
            return _batch([pa.array([], pa.uint16()), pa.array([], pa.struct(list(self.schema)))], [_ROW])
        all_rows = concatenated(self.records)
        count, fields = len(all_rows), list(self.schema)
        rows = pa.StructArray.from_arrays(all_rows.batch.columns, fields=fields)
        named: dict[str, pa.Array] = {_ROW: rows}
        if all_rows.event_time is not None:
            named[_EVENT_TIME] = pa.array(all_rows.event_time)
        if all_rows.key_hash is None:
            in_turn = self.key_groups.start + np.arange(count) % len(self.key_groups)
            groups = in_turn.astype(np.uint16)
        else:
            groups = key_groups_of(all_rows.key_hash, self.max_parallelism)
            named[_KEY_HASH] = pa.array(all_rows.key_hash)
        if all_rows.origin is not None:
            named[_SPLIT] = pa.array(all_rows.origin.splits).take(pa.array(all_rows.origin.split))
            named[_OFFSET] = pa.array(all_rows.origin.offset)
        if all_rows.kind is not None:
            named[_KIND] = pa.array(all_rows.kind)
        return _batch([pa.array(groups, pa.uint16()), *named.values()], list(named))


def _batch(columns: Sequence[pa.Array], names: Sequence[str]) -> pa.RecordBatch:
    """`names`: of all but the first."""
    fields = [
        pa.field(name, column.type, nullable=False)
        for name, column in zip([KEY_GROUP_COLUMN, *names], columns, strict=True)
    ]
    return pa.RecordBatch.from_arrays(list(columns), schema=pa.schema(fields))


def _records(piece: pa.RecordBatch, schema: pa.Schema, with_origin: bool) -> Records:
    has = set(piece.schema.names)
    batch = pa.RecordBatch.from_arrays(piece.column(_ROW).flatten(), schema=schema)
    origin = None
    if with_origin:
        splits = piece.column(_SPLIT) if _SPLIT in has else pa.array([_UNKNOWN] * len(batch))
        named = splits.dictionary_encode()
        offsets = piece.column(_OFFSET).to_numpy() if _OFFSET in has else np.full(len(batch), -1, np.int64)
        origin = Origin(
            tuple(named.dictionary.to_pylist()), named.indices.to_numpy().astype(np.uint16), offsets
        )
    return Records(
        batch,
        piece.column(_EVENT_TIME).to_numpy() if _EVENT_TIME in has else None,
        piece.column(_KEY_HASH).to_numpy() if _KEY_HASH in has else None,
        origin,
        piece.column(_KIND).to_numpy() if _KIND in has else None,
    )
