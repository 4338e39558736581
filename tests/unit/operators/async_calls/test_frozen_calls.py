"""What is in flight, as a table of a snapshot, and back."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest

from onceflow.runtime.operators.async_calls.calls_in_flight import Call
from onceflow.runtime.operators.async_calls.frozen_calls import FrozenCalls, restored_rows, rows_of
from onceflow.runtime.records import Records

SCHEMA = pa.schema([("n", pa.int64()), ("name", pa.string())])
WIDE = pa.schema([*SCHEMA, ("unread", pa.bool_())])


def records(numbers: range, timed: bool) -> Records:
    columns = [list(numbers), [f"n{n}" for n in numbers], [True] * len(numbers)]
    batch = pa.RecordBatch.from_arrays(list(map(pa.array, columns)), schema=WIDE)
    return Records(batch, np.array(numbers, np.int64) * 10 if timed else None)


@pytest.mark.parametrize("timed", [True, False])
def test_rows_come_back_in_their_order_in_the_subtasks_key_groups(timed: bool) -> None:
    one, two = records(range(10), timed), records(range(10, 14), timed)
    calls = [Call(one, n, None) for n in (1, 2, 5, 9)] + [Call(two, n, None) for n in range(4)]
    frozen = FrozenCalls(calls, SCHEMA, timed, range(4, 8))
    assert len(frozen) == 8
    pieces = [frozen.piece(0, 3), frozen.piece(3, 99)]
    groups = [group for piece in pieces for group in piece.column("key_group").to_pylist()]
    assert groups == [4, 4, 5, 5, 6, 6, 7, 7]
    back = list(restored_rows(pieces, SCHEMA))
    assert [n for found in back for n in found.batch.column("n").to_pylist()] == [1, 2, 5, 9, 10, 11, 12, 13]
    assert all(found.batch.schema == SCHEMA for found in back)
    for found in back:
        assert (found.event_time is not None) == timed
        if found.event_time is not None:
            assert (found.event_time == found.batch.column("n").to_numpy() * 10).all()


@pytest.mark.parametrize("timed", [True, False])
def test_nothing_in_flight_has_a_schema_too(timed: bool) -> None:
    empty = FrozenCalls([], SCHEMA, timed, range(4)).piece(0, 1)
    some = FrozenCalls([Call(records(range(1), timed), 0, None)], SCHEMA, timed, range(4)).piece(0, 1)
    assert empty.num_rows == 0
    assert empty.schema == some.schema


def test_neighbours_are_taken_as_one_slice() -> None:
    batch = records(range(6), True)
    found = rows_of([Call(batch, n, None) for n in (0, 1, 2, 4, 5, 3)])
    assert found is not None
    assert found.batch.column("n").to_pylist() == [0, 1, 2, 4, 5, 3]
    assert rows_of([]) is None
