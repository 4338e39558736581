"""What sends rows back, and what is kept of them."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest

from onceflow.runtime.clock import ManualClock
from onceflow.runtime.errors import Fatal
from onceflow.runtime.operators.iteration.back_edge import BackEdge
from onceflow.runtime.operators.iteration.tail import TABLE, IterationTail
from onceflow.runtime.operators.operator import FrozenState, OperatorContext, RestoredState
from onceflow.runtime.records import Records
from onceflow.runtime.state.overflow import UNLIMITED, StateBackend
from onceflow.runtime.testing.tight_state import tight_rocksdb
from tests.unit.operators.iteration.test_back_edge import numbers, rows
from tests.unit.operators.iteration.test_head import Sent

SCHEMA = pa.schema([pa.field("n", pa.int64(), nullable=False)])


def opened(key_groups: range, state: StateBackend = UNLIMITED) -> tuple[IterationTail, BackEdge]:
    shared: dict[str, Any] = {}
    context = OperatorContext("back", 0, 1, 8, key_groups, ManualClock(), state=state, shared_objects=shared)
    tail = IterationTail("loop", SCHEMA)
    tail.open(context, Sent())
    return tail, context.shared("loop loop", BackEdge)


def frozen_at(tail: IterationTail, back: BackEdge, checkpoint_id: int) -> FrozenState:
    back.begin_log(checkpoint_id)
    tail.on_barrier(checkpoint_id)
    return tail.snapshot()


def test_what_was_in_flight_goes_round_again_each_row_in_one_subtask() -> None:
    tail, back = opened(range(4))
    tail.on_records(rows(1, 2, 3))
    tail.on_records(rows(4, 5))
    frozen = frozen_at(tail, back, 7)
    in_flight = frozen.tables[TABLE]
    assert len(in_flight) == 5
    pieces = [in_flight.piece(0, 2), in_flight.piece(2, 5)]
    found: list[int] = []
    for key_groups in (range(2), range(2, 4)):
        mine = [
            piece.filter(pa.array([g in key_groups for g in piece.column(0).to_pylist()])) for piece in pieces
        ]
        other, its_queue = opened(key_groups)
        other.restore([RestoredState(key_groups, {TABLE: lambda mine=mine: iter(mine)})])
        while (taken := its_queue.take(100)) is not None:
            assert taken.batch.schema == SCHEMA
            found += numbers(taken) or []
        assert found
    assert sorted(found) == [1, 2, 3, 4, 5]


def test_a_checkpoint_of_rows_on_disk_is_written_while_the_loop_goes_on() -> None:
    with tight_rocksdb() as state:
        tail, back = opened(range(4), state)
        for n in range(0, 30, 3):
            tail.on_records(rows(n, n + 1, n + 2))
        in_flight = frozen_at(tail, back, 7).tables[TABLE]
        while back.take(2) is not None:
            pass
        tail.on_records(rows(99))
        assert len(in_flight) == 30
        pieces = [in_flight.piece(0, 4), in_flight.piece(4, 5), in_flight.piece(5, 30)]
        found = [n for piece in pieces for n in piece.column(1).field("n").to_pylist()]
        assert found == list(range(30))
        assert pieces[1].column(0).to_pylist() == [0]


def test_a_loop_with_nothing_in_flight_has_a_table_of_the_same_columns() -> None:
    tail, back = opened(range(4))
    empty = frozen_at(tail, back, 7).tables[TABLE]
    tail.on_records(rows(1))
    assert len(empty) == 0
    assert empty.piece(0, 0).schema == frozen_at(tail, back, 8).tables[TABLE].piece(0, 1).schema


def test_rows_behind_the_end_are_no_silent_loss() -> None:
    tail, back = opened(range(4))
    back.is_over = True
    with pytest.raises(Fatal, match="rows came back to loop 'loop' after its end"):
        tail.on_records(Records(rows(1).batch))
