"""The queue of a loop, and what of it a checkpoint holds."""

from __future__ import annotations

import pyarrow as pa

from onceflow.runtime.operators.iteration.back_edge import BackEdge
from onceflow.runtime.records import Records


def rows(*numbers: int) -> Records:
    return Records(pa.RecordBatch.from_pydict({"n": numbers}))


def numbers(records: Records | None) -> list[int] | None:
    return None if records is None else records.batch.column("n").to_pylist()


def logged(back: BackEdge, checkpoint_id: int) -> list[int]:
    return [n for records in back.end_log(checkpoint_id) for n in numbers(records) or []]


def test_rows_come_in_their_order_and_large_batches_in_parts() -> None:
    back = BackEdge()
    back.send(rows(1, 2, 3))
    back.send(rows(4))
    assert [numbers(back.take(2)) for _ in range(4)] == [[1, 2], [3], [4], None]


def test_a_checkpoint_holds_what_waits_and_what_comes_until_the_barrier_is_round() -> None:
    back = BackEdge()
    back.send(rows(1))
    back.send(rows(2, 3))
    assert numbers(back.take(1)) == [1]
    back.begin_log(7)  # 1 went on before the barrier
    back.send(rows(4))
    assert numbers(back.take(9)) == [2, 3]  # behind the barrier; it waited at it
    assert logged(back, 7) == [2, 3, 4]
    back.send(rows(5))
    back.begin_log(8)
    assert logged(back, 8) == [4, 5]


def test_a_checkpoint_that_was_given_up_leaves_nothing_behind() -> None:
    back = BackEdge()
    back.send(rows(1))
    back.begin_log(7)
    back.send(rows(2))
    back.begin_log(8)
    assert logged(back, 7) == []  # its barrier comes late
    back.send(rows(3))
    assert logged(back, 8) == [1, 2, 3]
    back.send(rows(4))
    assert logged(back, 8) == []
