"""A source's task and what its reader is able to do: acknowledge, forget, pause."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import pyarrow as pa

from onceflow.runtime.clock import ManualClock
from onceflow.runtime.contracts import Fetch, SplitProgress, SplitState, WatermarkStrategy
from onceflow.runtime.exchange.channel import LocalChannel
from onceflow.runtime.exchange.record_writer import ForwardWriter
from onceflow.runtime.functions.metrics import MetricRegistry
from onceflow.runtime.graph.job_graph import Chain, SourceNode, ToEdge
from onceflow.runtime.operators.operator import MAIN
from onceflow.runtime.records import WATERMARK_MAX_MS, Barrier, Element, EndOfInput, Idle, Records, Watermark
from onceflow.runtime.slot.chain_body import ChainBody
from onceflow.runtime.slot.event_time import SILENT_AFTER_MS, TICK_MS
from onceflow.runtime.slot.slot_tasks import SlotTasks
from onceflow.runtime.slot.source_rate import SourceRate
from onceflow.runtime.slot.source_task import SourceTask
from onceflow.runtime.slot.task_reports import TaskCounters, TaskSnapshot

SCHEMA = pa.schema([("ts", pa.int64())])
IDLE_AFTER_MS = 1_000
EDGE = 0


@dataclass
class Reader:
    """A reader with all abilities, which writes down what it is told. Gives what the test queues."""

    told: list[tuple[object, ...]] = field(default_factory=list)
    queued: list[Fetch] = field(default_factory=list)
    splits: list[str] = field(default_factory=list)

    def queue(self, *times: int) -> None:
        """Rows of t-0, which is at its end then."""
        batch = pa.record_batch([pa.array(times, pa.int64())], schema=SCHEMA)
        ends = frozenset({"t-0"})
        self.queued.append(Fetch(batch, np.zeros(len(times), np.uint16), ("t-0",), at_end=ends))

    def add_splits(self, splits: Sequence[SplitState]) -> None:
        self.splits += [split.split_id for split in splits]

    def poll(self, timeout_ms: int, records_max: int) -> Fetch | None:
        return self.queued.pop(0) if self.queued else None

    def snapshot(self) -> Sequence[SplitState]:
        self.told.append(("snapshot",))
        return [SplitState(split, {"next": 0}) for split in self.splits]

    def publish_offsets(self, splits: Sequence[SplitState]) -> None: ...

    def close(self) -> None: ...

    def on_barrier(self, checkpoint_id: int) -> None:
        self.told.append(("barrier", checkpoint_id))

    def on_completed(self, checkpoint_id: int) -> None:
        self.told.append(("completed", checkpoint_id))

    def forget_splits(self, split_ids: Collection[str]) -> None:
        self.told.append(("forget", sorted(split_ids)))

    def pause_splits(self, split_ids: Collection[str]) -> None:
        self.told.append(("pause", sorted(split_ids)))

    def resume_splits(self, split_ids: Collection[str]) -> None:
        self.told.append(("resume", sorted(split_ids)))


@dataclass(frozen=True)
class KeepingSource:
    schema: pa.Schema = SCHEMA
    record_type: type | None = None
    is_bounded: bool = False

    def open_enumerator(self, job: str, clock: Any) -> Any: ...

    def open_reader(self, context: Any) -> Any: ...


@dataclass(frozen=True)
class ForgettingSource(KeepingSource):
    def add_finished(self, finished: Any, splits: Sequence[SplitState]) -> Any: ...


class Bench:
    """A source's task with two splits, of which t-1 has finished, and an edge out of it."""

    def __init__(
        self,
        source: KeepingSource,
        rate: SourceRate | None = None,
        halts: bool = False,
        max_drift: int | None = None,
        idle_after_ms: int | None = IDLE_AFTER_MS,
        by_clock: bool = False,
        known_ms: int | None = None,
    ) -> None:
        self.reader, self.out, self.clock = Reader(), LocalChannel(), ManualClock()
        self.snapshots: list[TaskSnapshot] = []
        strategy = WatermarkStrategy.bounded_out_of_orderness(0, "ts", idle_after_ms)
        if by_clock:
            strategy = WatermarkStrategy.ingestion_time()
        if max_drift is not None:
            strategy = strategy.with_watermark_alignment(max_drift, "g")
        node = SourceNode("source", source, strategy, {MAIN: [ToEdge(EDGE)]})
        counters = TaskCounters()
        edges = {EDGE: ForwardWriter(self.out)}
        body = ChainBody(Chain(0, "source", {"source": node}), {}, {}, edges, counters, self.clock)
        on_snapshot = self.snapshots.append
        self.task = SourceTask(node, self.reader, body, self.clock, counters, on_snapshot, rate, halts)
        self.task.add_splits([SplitProgress(SplitState(f"t-{n}", {}), known_ms, n == 1) for n in range(2)])

    def run(self) -> list[Element]:
        """All steps that there are to do, and what went out."""
        while self.task.step():
            pass
        return list(iter(self.out.receive, None))

    def barrier(self, checkpoint_id: int) -> Sequence[SplitProgress]:
        """The splits in the snapshot at this barrier."""
        self.task.trigger(Barrier(checkpoint_id))
        self.run()
        return self.snapshots[-1].splits["source"]

    def told(self, what: str) -> list[tuple[object, ...]]:
        return [told for told in self.reader.told if told[0] == what]


def test_a_source_that_halts_reads_nothing_from_its_barrier_until_all_have_their_snapshots() -> None:
    bench = Bench(KeepingSource(), halts=True)
    bench.barrier(7)
    bench.reader.queue(1)
    assert bench.run() == [], "it stands still"
    bench.task.resume(6)
    assert bench.run() == [], "an older checkpoint's word is not for this one"
    bench.task.resume(7)
    assert any(isinstance(element, Records) for element in bench.run())
    bench.barrier(8)
    bench.reader.queue(2)
    assert bench.run() == []
    bench.task.abort_checkpoint(8)
    assert any(isinstance(element, Records) for element in bench.run()), "that checkpoint will not be"


def test_a_source_that_is_drained_ends_where_it_is_and_its_splits_do_not() -> None:
    bench = Bench(KeepingSource())
    bench.reader.queue(5)
    bench.run()
    bench.reader.queue(7)
    bench.task.drain()
    assert bench.run() == [Watermark(WATERMARK_MAX_MS), EndOfInput()]
    assert bench.task.is_drained
    assert [(p.max_event_time_ms, p.is_finished) for p in bench.barrier(1)] == [(5, False), (None, True)]
    assert len(bench.reader.queued) == 1, "what was not read is for who goes on from there"


def test_a_barrier_that_was_asked_for_before_the_drain_goes_out_before_the_end() -> None:
    bench = Bench(KeepingSource())
    bench.task.trigger(Barrier(1))
    bench.task.drain()
    assert bench.run() == [Barrier(1), Watermark(WATERMARK_MAX_MS), EndOfInput()]


def test_a_reader_that_acknowledges_hears_of_the_barrier_right_before_its_snapshot() -> None:
    bench = Bench(KeepingSource())
    bench.barrier(7)
    assert bench.reader.told == [("barrier", 7), ("snapshot",)]


def test_sinks_commit_before_readers_acknowledge() -> None:
    reader = Reader()

    class Writer:
        def commit(self, checkpoint_id: int) -> None:
            reader.told.append(("sink", checkpoint_id))

    writers: Any = {"out": Writer()}
    SlotTasks([], [], {}, {"source": reader}, writers, {}, MetricRegistry(ManualClock())).commit(3)
    assert reader.told == [("sink", 3), ("completed", 3)]


def test_a_finished_split_is_forgotten_once_its_checkpoint_is_complete() -> None:
    bench = Bench(ForgettingSource())
    first = bench.barrier(1)
    assert [(p.split.split_id, p.is_finished) for p in first] == [("t-0", False), ("t-1", True)]
    assert bench.told("forget") == [], "not before: an aborted checkpoint would have lost it"
    bench.task.checkpoint_completed(first)
    assert bench.told("forget") == [("forget", ["t-1"])]
    assert [p.split.split_id for p in bench.barrier(2)] == ["t-0"], "whatever the reader still says"


def test_a_source_that_does_not_prune_keeps_its_finished_splits() -> None:
    bench = Bench(KeepingSource())
    bench.task.checkpoint_completed(bench.barrier(1))
    assert len(bench.barrier(2)) == 2
    assert bench.told("forget") == []


def test_a_paused_split_keeps_its_source_from_being_idle() -> None:
    bench = Bench(KeepingSource())
    bench.reader.queue(10)
    bench.run()
    bench.task.pause_splits(["t-0"])
    bench.clock.advance(60 * IDLE_AFTER_MS)
    assert Idle() not in bench.run()
    bench.task.resume_splits(["t-0"])
    bench.reader.queue(11)
    assert Idle() not in bench.run(), "its idle clock starts anew"
    bench.clock.advance(IDLE_AFTER_MS)
    assert Idle() in bench.run()
    assert bench.reader.told == [("pause", ["t-0"]), ("resume", ["t-0"])]


def test_a_split_without_a_record_that_holds_event_time_is_told() -> None:
    bench = Bench(KeepingSource(), idle_after_ms=None)
    bench.reader.queue()
    bench.run()
    assert bench.task.silent == ""
    bench.clock.advance(SILENT_AFTER_MS)
    assert "source 'source': event time waits for t-0" in bench.task.silent
    bench.task.drain()
    bench.run()
    assert bench.task.silent == "", "it is over"


def test_a_rate_limit_stops_reading_and_not_barriers() -> None:
    bench = Bench(KeepingSource(), SourceRate(10, 1))
    for n in range(3):
        bench.reader.queue(n, n)
    records = [e for e in bench.run() if isinstance(e, Records)]
    assert [len(each) for each in records] == [2], "one was allowed, two came: one is owed"
    assert len(bench.reader.queued) == 2
    bench.barrier(1)
    assert len(bench.snapshots) == 1
    bench.clock.advance(150)
    assert not [e for e in bench.run() if isinstance(e, Records)]
    bench.clock.advance(50)
    assert [len(e) for e in bench.run() if isinstance(e, Records)] == [2]


def test_a_split_that_is_ahead_of_its_group_waits_and_barriers_do_not() -> None:
    bench = Bench(KeepingSource(), max_drift=100)
    bench.task.align({"g": 0, "another": 5_000})
    bench.reader.queue(50)
    bench.run()
    assert bench.task.lowest_watermark == {"g": 49}
    bench.reader.queue(500)
    bench.run()
    assert bench.told("pause") == [("pause", ["t-0"])]
    assert bench.task.counters.paused_splits == 1
    assert "source 'source': t-0 paused" in bench.task.paused
    bench.clock.advance(60 * IDLE_AFTER_MS)
    assert Idle() not in bench.run(), "it may have much to read"
    assert bench.task.lowest_watermark == {"g": 499}, "and it counts"
    bench.barrier(1)
    assert len(bench.snapshots) == 1
    bench.task.align({"g": None})
    bench.run()
    assert bench.told("resume") == [("resume", ["t-0"])]
    assert (bench.task.counters.paused_splits, bench.task.paused) == (0, "")


def test_a_source_that_is_drained_while_it_waits_ends_and_does_not_count_any_more() -> None:
    bench = Bench(KeepingSource(), max_drift=100)
    bench.reader.queue(500)
    bench.run()
    assert bench.told("pause") == [("pause", ["t-0"])], "nobody else is known to be as far"
    bench.task.drain()
    assert bench.run() == [Watermark(WATERMARK_MAX_MS), EndOfInput()]
    assert bench.task.lowest_watermark == {"g": None}
    assert bench.task.paused == ""


def test_a_source_in_no_group_says_nothing_of_it() -> None:
    assert Bench(KeepingSource()).task.lowest_watermark == {}


def test_by_ingestion_time_a_row_has_the_time_at_which_it_was_read_and_no_column_counts() -> None:
    bench = Bench(KeepingSource(), by_clock=True)
    bench.clock.advance(5_000)
    bench.reader.queue(7, 9_000_000)
    [rows, watermark] = bench.run()
    assert isinstance(rows, Records)
    assert rows.event_time is not None
    assert rows.event_time.tolist() == [5_000, 5_000]
    assert watermark == Watermark(4_999), "of two rows of one moment none is late"
    bench.clock.advance(1)
    bench.reader.queue(8)
    [rows, watermark] = bench.run()
    assert isinstance(rows, Records)
    assert rows.event_time is not None
    assert (rows.event_time.tolist(), watermark) == ([5_001], Watermark(5_000))


def test_by_ingestion_time_the_watermark_goes_with_the_clock_where_nothing_comes() -> None:
    bench = Bench(KeepingSource(), by_clock=True)
    bench.clock.advance(5_000)
    assert bench.run() == [Watermark(4_999)]
    bench.clock.advance(TICK_MS - 1)
    assert bench.run() == [], "not at each look"
    bench.clock.advance(1)
    assert bench.run() == [Watermark(4_999 + TICK_MS)]
    bench.clock.advance(60 * IDLE_AFTER_MS)
    assert Idle() not in bench.run()


def test_by_ingestion_time_a_restored_split_does_not_go_back_with_the_clock() -> None:
    bench = Bench(KeepingSource(), by_clock=True, known_ms=9_000)
    bench.clock.advance(5_000)
    bench.reader.queue(1)
    [rows, watermark] = bench.run()
    assert isinstance(rows, Records)
    assert rows.event_time is not None
    assert (rows.event_time.tolist(), watermark) == ([9_000], Watermark(8_999))
    assert bench.barrier(1)[0].max_event_time_ms == 9_000
    bench.clock.advance(4_500)
    bench.reader.queue(1)
    assert bench.run()[-1] == Watermark(9_499)


def test_by_ingestion_time_what_a_source_knows_of_its_own_time_is_left_out() -> None:
    bench = Bench(KeepingSource(), by_clock=True)
    bench.clock.advance(5_000)
    bench.reader.queue(1)
    bench.reader.queued[0] = replace(bench.reader.queued[0], watermarks={"t-0": 1 << 50})
    assert bench.run()[-1] == Watermark(4_999)
