"""A task at a barrier: what goes out, what is frozen, and in which order."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from onceflow.runtime.checkpoint.alignment import Alignment
from onceflow.runtime.clock import ManualClock
from onceflow.runtime.contracts import Fetch, SplitProgress, SplitState, WatermarkStrategy
from onceflow.runtime.contracts.batch_size import BatchSize
from onceflow.runtime.exchange.channel import CAPACITY_BYTES, LocalChannel
from onceflow.runtime.exchange.input_gate import InputGate
from onceflow.runtime.exchange.record_writer import ForwardWriter
from onceflow.runtime.graph.job_graph import (
    Chain,
    InChain,
    OperatorNode,
    SinkNode,
    SourceNode,
    Target,
    ToEdge,
)
from onceflow.runtime.operators.operator import MAIN, FrozenState, OperatorContext, Output, RestoredState
from onceflow.runtime.records import (
    WATERMARK_MAX_MS,
    Barrier,
    Element,
    EndOfInput,
    Idle,
    Records,
    Watermark,
)
from onceflow.runtime.slot.chain_body import ChainBody
from onceflow.runtime.slot.source_task import DEAD_LETTERS, SourceTask
from onceflow.runtime.slot.task import OperatorTask
from onceflow.runtime.slot.task_reports import TaskCounters, TaskSnapshot

SCHEMA = pa.schema([("ts", pa.int64())])
EDGE = 3


def rows(*times: int) -> Records:
    return Records(pa.record_batch([pa.array(times, pa.int64())], schema=SCHEMA), np.array(times, np.int64))


def shown(element: Element) -> object:
    return element.batch.column(0).to_pylist() if isinstance(element, Records) else element


@dataclass
class Reader:
    """Gives the fetches that the test queues; its position is how many rows it gave."""

    queued: list[Fetch] = field(default_factory=list)
    given: int = 0
    splits: list[str] = field(default_factory=list)
    published: list[SplitState] = field(default_factory=list)
    asked: list[int] = field(default_factory=list)

    def queue(
        self, *times: int, finished: bool = False, at_end: bool = False, dead: pa.RecordBatch | None = None
    ) -> None:
        ends = frozenset({"t-0"} if finished else ())
        self.queued.append(
            Fetch(
                rows(*times).batch,
                np.zeros(len(times), np.uint16),
                ("t-0",),
                dead_letters=dead,
                at_end=frozenset({"t-0"} if at_end else ()),
                finished=ends,
            )
        )

    def add_splits(self, splits: Sequence[SplitState]) -> None:
        self.splits += [split.split_id for split in splits]

    def poll(self, timeout_ms: int, records_max: int) -> Fetch | None:
        self.asked.append(records_max)
        if not self.queued:
            return None
        fetch = self.queued.pop(0)
        self.given += fetch.records.num_rows
        return fetch

    def snapshot(self) -> Sequence[SplitState]:
        return [SplitState(split, {"next": self.given}) for split in self.splits]

    def publish_offsets(self, splits: Sequence[SplitState]) -> None:
        self.published += splits

    def close(self) -> None: ...


@dataclass(frozen=True)
class AnySource:
    is_bounded: bool = False
    schema: pa.Schema = SCHEMA
    record_type: type | None = None

    def open_enumerator(self, job: str, clock: Any) -> Any: ...

    def open_reader(self, context: Any) -> Any: ...


class Counting:
    """An operator whose state is the rows that it has seen; passes them on."""

    def __init__(self) -> None:
        self.seen = 0
        self.on_row: Callable[[], None] = lambda: None
        self.watermarks: list[int] = []

    def open(self, context: OperatorContext, output: Output) -> None:
        self.output = output

    def restore(self, states: Sequence[RestoredState]) -> None: ...

    def on_records(self, records: Records) -> None:
        self.seen += len(records)
        for _ in range(len(records)):
            self.on_row()
        self.output.emit(records)

    def on_watermark(self, time_ms: int) -> None:
        self.watermarks.append(time_ms)

    def snapshot(self) -> FrozenState:
        return FrozenState(range(4), {}, {"seen": self.seen})

    def close(self) -> None: ...


@dataclass
class Writer:
    """A sink's writer that remembers what was written before each pre-commit."""

    written: int = 0
    pre_commits: dict[int, int] = field(default_factory=dict)

    def recover(self, committables: Any) -> None: ...

    def write(self, records: Records) -> None:
        self.written += len(records)

    def pre_commit(self, checkpoint_id: int) -> Any:
        self.pre_commits[checkpoint_id] = self.written
        return f"pre-commit {checkpoint_id}"

    def commit(self, checkpoint_id: int) -> None: ...

    def close(self) -> None: ...


class Bench:
    """One task: source or gate -> Counting -> a sink, and an edge out."""

    def __init__(self, idle_after: int | None = None, is_bounded: bool = False, behind_ms: int = 0) -> None:
        self.out = LocalChannel()
        self.reader, self.operator, self.writer = Reader(), Counting(), Writer()
        self.dead_letters = Writer()
        self.clock = ManualClock()
        self.snapshots: list[TaskSnapshot] = []
        self.counters = TaskCounters()
        strategy = WatermarkStrategy.bounded_out_of_orderness(0, "ts", idle_after)
        source = SourceNode(
            "source",
            AnySource(is_bounded),
            strategy,
            {MAIN: [InChain("counting")], DEAD_LETTERS: [InChain("dead")]},
        )
        outputs: Mapping[str, Sequence[Target]] = {MAIN: [ToEdge(EDGE), InChain("sink")]}
        counting = OperatorNode(
            "counting", "counting", Counting, SCHEMA, outputs, delays_watermark_ms=behind_ms
        )
        sinks: Any = AnySource()
        self.nodes: Mapping[str, Any] = {
            "source": source,
            "counting": counting,
            "sink": SinkNode("sink", sinks, SCHEMA),
            "dead": SinkNode("dead", sinks, SCHEMA),
        }

    def body(self, head: str) -> ChainBody:
        body = ChainBody(
            Chain(0, head, self.nodes),
            {"counting": self.operator},
            {"sink": self.writer, "dead": self.dead_letters},
            {EDGE: ForwardWriter(self.out)},
            self.counters,
            self.clock,
        )
        context = OperatorContext("counting", 0, 1, 4, range(4), self.clock)
        self.operator.open(context, body.outlet(self.nodes["counting"].outputs))
        return body

    def source_task(self, *splits: SplitProgress) -> SourceTask:
        task = SourceTask(
            self.nodes["source"],
            self.reader,
            self.body("source"),
            self.clock,
            self.counters,
            self.snapshots.append,
        )
        task.add_splits(splits or [SplitProgress(SplitState("t-0", {"next": 0}))])
        return task

    def taken(self) -> list[object]:
        taken = []
        while (element := self.out.receive()) is not None:
            taken.append(shown(element))
        return taken


def run(task: SourceTask | OperatorTask) -> None:
    while task.step():
        pass


def test_the_barrier_leaves_behind_the_records_that_the_snapshot_has() -> None:
    bench = Bench()
    task = bench.source_task()
    bench.reader.queue(10, 11)
    run(task)
    task.trigger(Barrier(5))
    bench.reader.queue(12)
    run(task)
    assert bench.taken() == [[10, 11], Watermark(10), Barrier(5), [12], Watermark(11)]
    (snapshot,) = bench.snapshots
    assert snapshot.barrier == Barrier(5)
    assert snapshot.splits == {"source": [SplitProgress(SplitState("t-0", {"next": 2}), 11, False)]}
    assert snapshot.states["counting"].meta == {"seen": 2}
    assert snapshot.pre_commits.keys() == {"sink", "dead"}
    assert bench.writer.pre_commits == {5: 2}


def test_after_the_last_barrier_a_source_reads_no_more() -> None:
    bench = Bench()
    task = bench.source_task()
    task.trigger(Barrier(5, is_last=True))
    bench.reader.queue(10)
    run(task)
    assert bench.taken() == [Barrier(5, is_last=True)]
    assert bench.reader.given == 0


def test_an_aborted_trigger_is_forgotten_and_the_next_one_is_not() -> None:
    bench = Bench()
    task = bench.source_task()
    task.trigger(Barrier(5))
    task.trigger(Barrier(6))
    task.abort_checkpoint(5)
    run(task)
    assert bench.taken() == [Barrier(6)]


def test_the_end_of_a_bounded_source_is_the_end_of_time_and_barriers_still_pass() -> None:
    bench = Bench(is_bounded=True)
    task = bench.source_task()
    bench.reader.queue(10, finished=True)
    run(task)
    assert bench.taken() == [[10], Watermark(WATERMARK_MAX_MS), EndOfInput()]
    assert task.is_drained
    task.trigger(Barrier(7))
    run(task)
    assert bench.taken() == [Barrier(7)]
    assert bench.snapshots[0].splits["source"][0].is_finished


def test_a_bounded_source_without_splits_ends_at_once() -> None:
    bench = Bench(is_bounded=True)
    task = bench.source_task()
    task._finished.clear()
    run(task)
    assert task.is_drained


def test_a_restored_finished_split_ends_the_task_without_a_record() -> None:
    bench = Bench(is_bounded=True)
    task = bench.source_task(SplitProgress(SplitState("t-0", {"next": 9}), 10, is_finished=True))
    run(task)
    assert bench.taken() == [Watermark(WATERMARK_MAX_MS), EndOfInput()]


def test_nothing_is_read_while_there_is_no_room() -> None:
    bench = Bench()
    task = bench.source_task()
    full = rows(*range(CAPACITY_BYTES // 8))
    bench.out.send(full)
    bench.reader.queue(10)
    task.trigger(Barrier(5))
    assert task.step(), "a barrier needs no room"
    assert not task.step()
    assert bench.reader.given == 0
    bench.out.receive()
    run(task)
    assert bench.taken() == [Barrier(5), [10], Watermark(9)]


def test_an_idle_source_says_so_once_and_says_that_it_is_back_before_its_records() -> None:
    bench = Bench(idle_after=1_000)
    task = bench.source_task()
    bench.reader.queue(10, at_end=True)
    run(task)
    bench.clock.advance(1_000)
    run(task)
    run(task)
    assert bench.taken() == [[10], Watermark(9), Idle()]
    bench.reader.queue(8)
    run(task)
    assert bench.taken() == [Watermark(9), [8]]


def test_regression_a_split_that_is_found_ends_idleness_before_its_first_record() -> None:
    """Else the others' watermark would go on while its backlog is fetched, and make it late."""
    bench = Bench(idle_after=1_000)
    task = bench.source_task()
    bench.reader.queue(10, at_end=True)
    run(task)
    bench.clock.advance(1_000)
    run(task)
    assert bench.taken()[-1] == Idle()
    task.add_splits([SplitProgress(SplitState("t-1", {"next": 0}))])
    run(task)
    assert bench.taken() == [Watermark(9)]


def test_records_and_dead_letters_are_counted() -> None:
    bench = Bench()
    task = bench.source_task()
    bench.reader.queue(10, 11, dead=rows(1).batch)
    run(task)
    assert (bench.counters.records_in, bench.counters.records_out) == (2, 3)
    assert (bench.counters.dead_letters, bench.dead_letters.written) == (1, 1)
    assert (bench.counters.watermark_ms, bench.counters.max_event_time_ms) == (10, 11)


def test_offsets_are_published_through_the_reader() -> None:
    bench = Bench()
    bench.source_task().checkpoint_completed([SplitProgress(SplitState("t-0", {"next": 4}))])
    assert bench.reader.published == [SplitState("t-0", {"next": 4})]


def test_a_task_behind_a_gate_snapshots_when_all_barriers_have_come() -> None:
    bench = Bench()
    left, right = LocalChannel(), LocalChannel()
    body = bench.body("counting")
    gate = InputGate([left, right], Alignment(2))
    head = body.entrance("counting")
    task = OperatorTask(gate, head, body, bench.counters, bench.snapshots.append, bench.clock, BatchSize())
    for element in (rows(1), Barrier(4), rows(2)):
        left.send(element)
    right.send(rows(3))
    run(task)
    assert bench.snapshots == []
    right.send(Barrier(4))
    run(task)
    assert bench.snapshots[0].states["counting"].meta == {"seen": 2}
    assert bench.taken() == [[1, 3], Barrier(4), [2]]
    for channel in (left, right):
        channel.send(Watermark(WATERMARK_MAX_MS))
        channel.send(EndOfInput())
    run(task)
    assert bench.taken()[-1] == EndOfInput()
    assert task.is_drained


@pytest.mark.parametrize("checkpoint_id", [4, 5])
def test_an_aborted_alignment_lets_the_blocked_channel_go_on(checkpoint_id: int) -> None:
    bench = Bench()
    left, right = LocalChannel(), LocalChannel()
    body = bench.body("counting")
    task = OperatorTask(
        InputGate([left, right], Alignment(2)),
        body.entrance("counting"),
        body,
        bench.counters,
        bench.snapshots.append,
        bench.clock,
        BatchSize(),
    )
    left.send(Barrier(4))
    left.send(rows(2))
    run(task)
    assert bench.taken() == []
    task.abort_checkpoint(checkpoint_id)
    run(task)
    assert bench.taken() == [[2]]
    assert bench.snapshots == []


def test_a_chain_that_is_slow_gets_fewer_records_at_once_and_one_that_is_quick_more() -> None:
    bench = Bench()
    task = bench.source_task()
    bench.operator.on_row = lambda: bench.clock.advance(1)
    bench.reader.queue(*range(1_000))
    run(task)
    slow = bench.reader.asked[-1]
    assert slow < bench.reader.asked[0]
    bench.operator.on_row = lambda: None
    bench.reader.queue(*range(1_000, 1_000 + slow))
    run(task)
    assert bench.reader.asked[-1] == 2 * slow


def test_behind_an_operator_that_delays_it_the_watermark_is_lower_but_for_the_end() -> None:
    """The one that says that an idle channel counts again is lower, too."""
    bench = Bench(idle_after=100, is_bounded=True, behind_ms=5)
    task = bench.source_task()
    bench.reader.queue(10)
    bench.reader.queue(at_end=True)
    run(task)
    assert bench.operator.watermarks == [9], "before it the watermark is the source's"
    bench.clock.advance(60)
    run(task)
    bench.clock.advance(60)
    run(task)
    assert bench.taken() == [[10], Watermark(4), Idle()]
    bench.reader.queue(10)
    run(task)
    assert bench.taken() == [Watermark(4), [10]]
    assert bench.counters.watermark_ms == 4
    bench.reader.queue(finished=True)
    run(task)
    assert bench.taken() == [Watermark(WATERMARK_MAX_MS), EndOfInput()]
