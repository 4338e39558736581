"""FrozenSides: the rows of both sides of a join at a barrier, as one table; and the way back."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property
from types import MappingProxyType
from typing import Protocol

import numpy as np
import pyarrow as pa

from onceflow.runtime.operators.two_keys import keys_of
from onceflow.runtime.records import Indices, Int64s, Mask
from onceflow.runtime.state.columns import one_batch
from onceflow.runtime.state.hashing import hash_keys
from onceflow.runtime.state.key_groups import key_groups_of
from onceflow.runtime.state.operator_state import KEY_GROUP_COLUMN
from onceflow.runtime.state.rows import take_rows

TABLE = "rows"
NAMES = ("left", "right")
_NOTHING: Mapping[str, Int64s] = MappingProxyType({})


class FrozenPart(Protocol):
    """Rows of one side as they were at a barrier; any thread."""

    @property
    def batch(self) -> pa.RecordBatch: ...

    @property
    def time(self) -> Int64s:
        """The event time of each row, or what stands in its place."""
        ...

    @property
    def is_matched(self) -> Mask | None: ...

    @property
    def beside(self) -> Mapping[str, Int64s]:
        """Further columns of the table, of all rows."""
        ...

    def live(self) -> Indices:
        """The rows that belong to the snapshot, lowest first."""
        ...


class FrozenSides:
    """FrozenRows: key_group, is_right, event_time (ms; of a window join the window's start), is_matched, what
    the kind of join has `beside` that (int64, null for the rows of a side without it), and the row in one of
    the columns left and right (structs), null in the other."""

    def __init__(
        self,
        sides: Sequence[Sequence[FrozenPart]],
        schemas: Sequence[pa.Schema],
        keys: Sequence[Sequence[str]],
        max_parallelism: int,
        beside: Sequence[str] = (),
        key_schema: pa.Schema | None = None,
    ) -> None:
        """`key_schema`: of the column `key`, the keys of both sides under the names of the left one; None:
        there is no such column."""
        self._sides = sides
        self._beside = beside
        self._schemas = schemas
        self._keys = keys
        self._max_parallelism = max_parallelism
        self._key_schema = key_schema

    @cached_property
    def _parts(self) -> list[tuple[int, FrozenPart, Indices]]:
        return [
            (side, run, live)
            for side, runs in enumerate(self._sides)
            for run in runs
            if len(live := run.live())
        ]

    def __len__(self) -> int:
        return sum(len(live) for _, _, live in self._parts)

    def piece(self, first: int, end: int) -> pa.RecordBatch:
        found, start = [], 0
        for side, run, live in self._parts:
            rows = live[max(0, first - start) : max(0, end - start)]
            start += len(live)
            if len(rows):
                found.append(self._batch(side, run, rows))
        if not found:
            found.append(self._made(0, self._schemas[0].empty_table().to_batches(), np.zeros(0, np.int64)))
        return one_batch(pa.Table.from_batches(found)) if len(found) > 1 else found[0]

    def _batch(self, side: int, run: FrozenPart, rows: Indices) -> pa.RecordBatch:
        matched = None if run.is_matched is None else run.is_matched[rows]
        beside = {name: values[rows] for name, values in run.beside.items()}
        return self._made(side, [take_rows(run.batch, rows)], run.time[rows], matched, beside)

    def _made(
        self,
        side: int,
        batches: list[pa.RecordBatch],
        time: Int64s,
        matched: Mask | None = None,
        beside: Mapping[str, Int64s] = _NOTHING,
    ) -> pa.RecordBatch:
        schema = self._schemas[side]
        batch = batches[0] if batches else pa.RecordBatch.from_pylist([], schema)
        structs = [pa.nulls(len(batch), pa.struct(list(each))) for each in self._schemas]
        structs[side] = pa.StructArray.from_arrays(batch.columns, fields=list(schema))
        groups = key_groups_of(hash_keys(batch, self._keys[side]), self._max_parallelism)
        return pa.RecordBatch.from_pydict(
            {
                KEY_GROUP_COLUMN: pa.array(groups, pa.uint16()),
                **self._key(side, batch),
                "is_right": pa.array(np.full(len(batch), side == 1)),
                "event_time": pa.array(time),
                "is_matched": pa.array(np.zeros(len(batch), np.bool_) if matched is None else matched),
                **{name: _numbers(beside.get(name), len(batch)) for name in self._beside},
                NAMES[0]: structs[0],
                NAMES[1]: structs[1],
            }
        )

    def _key(self, side: int, batch: pa.RecordBatch) -> dict[str, pa.Array]:
        if self._key_schema is None:
            return {}
        return {"key": keys_of(batch, self._keys[side], self._key_schema).to_struct_array()}


def restored_rows(
    pieces: Iterator[pa.RecordBatch], schemas: Sequence[pa.Schema]
) -> Iterator[tuple[int, pa.RecordBatch, Int64s, Mask]]:
    """(side, its rows, their event times, which were matched) of what FrozenSides wrote."""
    for side, batch, its in restored_parts(pieces, schemas):
        matched = its.column("is_matched").to_numpy(zero_copy_only=False)
        yield side, batch, its.column("event_time").to_numpy(), matched


def restored_parts(
    pieces: Iterator[pa.RecordBatch], schemas: Sequence[pa.Schema]
) -> Iterator[tuple[int, pa.RecordBatch, pa.RecordBatch]]:
    """(side, its rows, all columns of the table) of what FrozenSides wrote."""
    for piece in pieces:
        is_right = piece.column("is_right").to_numpy(zero_copy_only=False)
        for side in (0, 1):
            rows = np.flatnonzero(is_right == (side == 1))
            if not len(rows):
                continue
            its = piece.take(pa.array(rows))
            found = pa.RecordBatch.from_struct_array(its.column(NAMES[side]))
            batch = pa.RecordBatch.from_arrays(
                [found.column(name) for name in schemas[side].names], schema=schemas[side]
            )
            yield side, batch, its


def _numbers(values: Int64s | None, count: int) -> pa.Array:
    return pa.nulls(count, pa.int64()) if values is None else pa.array(values)
