"""A task whose barriers overtake: what goes out first, and when its snapshot is whole."""

from __future__ import annotations

from collections.abc import Sequence
from typing import cast

from onceflow.runtime.checkpoint.alignment import Alignment
from onceflow.runtime.contracts.batch_size import BatchSize
from onceflow.runtime.exchange.channel import CAPACITY_BYTES, LocalChannel
from onceflow.runtime.exchange.input_gate import InputGate
from onceflow.runtime.operators.operator import FrozenState
from onceflow.runtime.records import Barrier, Records
from onceflow.runtime.slot.task import OperatorTask, Overtaking
from tests.unit.slot.test_task import Bench, rows, run


def overtaking_task(bench: Bench, after_ms: float = 0) -> tuple[OperatorTask, LocalChannel, LocalChannel]:
    """A task behind two channels whose barriers overtake; states have the number of rows by channel."""
    left, right = LocalChannel(), LocalChannel()
    body = bench.body("counting")

    def freeze(rows: Sequence[Sequence[Records]]) -> dict[str, FrozenState]:
        return {"way": FrozenState(range(4), meta={"rows": [sum(map(len, of)) for of in rows]})}

    task = OperatorTask(
        InputGate([left, right], Alignment(2)),
        body.entrance("counting"),
        body,
        bench.counters,
        bench.snapshots.append,
        bench.clock,
        BatchSize(),
        Overtaking(after_ms, freeze),
    )
    return task, left, right


def test_a_barrier_overtakes_what_waits_and_its_snapshot_is_whole_when_it_has_come_on_all_channels() -> None:
    bench = Bench()
    task, left, right = overtaking_task(bench)
    task.trigger(Barrier(4))
    for element in (rows(1, 2), Barrier(4), rows(3)):
        left.send(element)
    right.send(rows(5))
    assert task.step()
    assert bench.taken() == [Barrier(4)], "it goes out before anything was read"
    run(task)
    assert bench.snapshots == []
    right.send(rows(6))
    right.send(Barrier(4))
    run(task)
    [snapshot] = bench.snapshots
    assert snapshot.states["counting"].meta == {"seen": 0}
    assert snapshot.states["way"].meta == {"rows": [2, 2]}
    assert sorted(n for batch in bench.taken() for n in cast("list[int]", batch)) == [1, 2, 3, 5, 6]


def test_until_its_time_is_over_a_barrier_is_aligned() -> None:
    bench = Bench()
    task, left, right = overtaking_task(bench, after_ms=100)
    task.trigger(Barrier(4))
    left.send(Barrier(4))
    left.send(rows(1))
    right.send(rows(2))
    bench.clock.advance(99)
    run(task)
    assert bench.taken() == [[2]], "the left channel is left unread"
    bench.clock.advance(1)
    run(task)
    assert bench.taken() == [Barrier(4), [1]]
    right.send(Barrier(4))
    run(task)
    assert bench.snapshots[0].states["way"].meta == {"rows": [0, 0]}


def test_a_barrier_overtakes_though_there_is_no_room_for_rows() -> None:
    bench = Bench()
    task, left, right = overtaking_task(bench)
    bench.out.send(rows(*range(CAPACITY_BYTES // 8)))
    task.trigger(Barrier(4))
    for channel in (left, right):
        channel.send(rows(1))
        channel.send(Barrier(4))
    run(task)
    assert bench.snapshots[0].states["way"].meta == {"rows": [1, 1]}
    assert bench.counters.records_in == 0


def test_of_a_checkpoint_that_is_given_up_no_snapshot_comes() -> None:
    bench = Bench()
    task, left, right = overtaking_task(bench)
    task.trigger(Barrier(4))
    left.send(Barrier(4))
    run(task)
    task.abort_checkpoint(4)
    right.send(Barrier(4))
    run(task)
    assert bench.snapshots == []
    task.trigger(Barrier(5))
    left.send(Barrier(5))
    right.send(Barrier(5))
    run(task)
    assert [snapshot.barrier for snapshot in bench.snapshots] == [Barrier(5)]
