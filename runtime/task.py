"""The task loop: one batch from the head through the chain. Start reading here.

A task is one subtask of a chain. It never blocks and never waits: `step` does one piece of work, if
there is one and what it may produce has room. The slot calls the steps of its tasks, in one thread, so
everything between two steps is atomic: a barrier falls between two batches and never inside one.

The order at a barrier is what makes results exact (Carbone 2015; docs/exactly-once.md):

1. Records before it went through the chain and out on every edge.
2. Each node gives its snapshot: a source where to go on, an operator its state, a sink its pre-commit.
   Nothing is written yet: all three are frozen in memory.
3. The barrier goes out on every edge, behind those records.
4. Only then comes the next element. Writing the snapshot out happens on other threads meanwhile.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Protocol

from onceflow.runtime.clock import Clock
from onceflow.runtime.contracts import (
    Fetch,
    PreCommit,
    SinkWriter,
    SourceReader,
    SplitProgress,
    SplitState,
    ThrottlingWriter,
)
from onceflow.runtime.event_time import SourceWatermarks, event_times
from onceflow.runtime.exchange.input_gate import InputGate
from onceflow.runtime.exchange.record_writer import RecordWriter
from onceflow.runtime.graph import Chain, InChain, OperatorNode, SinkNode, SourceNode, Target, ToEdge
from onceflow.runtime.operators.operator import MAIN, Operator, OperatorState
from onceflow.runtime.records import (
    WATERMARK_MAX_MS,
    WATERMARK_MIN_MS,
    Barrier,
    EndOfInput,
    Idle,
    Origin,
    Records,
    Watermark,
)

DEAD_LETTERS = "dead-letters"
"""The tag of a source's output for records that it could not decode."""


@dataclass(frozen=True, slots=True)
class TaskSnapshot:
    """One task at a barrier, frozen in memory. By uid."""

    barrier: Barrier
    splits: Mapping[str, Sequence[SplitProgress]] = field(default_factory=dict)
    states: Mapping[str, OperatorState] = field(default_factory=dict)
    pre_commits: Mapping[str, PreCommit] = field(default_factory=dict)
    pause_ms: float = 0.0
    """How long the task stood still for it."""


@dataclass(slots=True)
class TaskCounters:
    """What the live line and the metrics read; written by the task only."""

    records_in: int = 0
    records_out: int = 0
    late_records: int = 0
    dead_letters: int = 0
    watermark_ms: int = WATERMARK_MIN_MS
    max_event_time_ms: int = WATERMARK_MIN_MS


class Task(Protocol):
    """What the slot needs of a task."""

    counters: TaskCounters

    def step(self) -> bool:
        """Do one piece of work. False: there was none, or no room for what it may produce."""
        ...

    @property
    def is_drained(self) -> bool:
        """All input has ended and all output of it has left: nothing but barriers will come."""
        ...

    def abort_checkpoint(self, checkpoint_id: int) -> None: ...


class ChainBody:
    """The nodes of a chain behind its head, wired; and the edges out of it."""

    def __init__(
        self,
        chain: Chain,
        operators: Mapping[str, Operator],
        writers: Mapping[str, SinkWriter],
        edges: Mapping[int, RecordWriter],
        counters: TaskCounters,
        clock: Clock,
    ) -> None:
        self._clock = clock
        self._chain = chain
        self._operators = operators
        self._writers = writers
        self._edges = edges
        self._throttling = [w for w in writers.values() if isinstance(w, ThrottlingWriter)]
        self._counters = counters

    @property
    def has_room(self) -> bool:
        return all(edge.has_room for edge in self._edges.values()) and all(
            writer.has_room for writer in self._throttling
        )

    def entrance(self, uid: str) -> Callable[[Records], None]:
        """Where rows for this node go in."""
        node = self._chain.nodes[uid]
        if isinstance(node, SinkNode):
            return self._count_out(self._writers[uid].write)
        assert isinstance(node, OperatorNode), "a source is a head only"
        return self._operators[uid].on_records

    def outlet(self, outputs: Mapping[str, Sequence[Target]]) -> Outlet:
        """Where a node's rows come out, by tag."""
        return Outlet({tag: [self._receiver(t) for t in targets] for tag, targets in outputs.items()})

    def on_watermark(self, time_ms: int) -> None:
        """Through the operators in order, each one's output before the watermark, then out."""
        for operator in self._operators.values():
            operator.on_watermark(time_ms)
        self.broadcast(Watermark(time_ms))
        self._counters.watermark_ms = time_ms

    def broadcast(self, element: Watermark | Idle | Barrier | EndOfInput) -> None:
        for edge in self._edges.values():
            edge.broadcast(element)

    def snapshot(self, barrier: Barrier) -> TaskSnapshot:
        """Steps 2 and 3 of a barrier, but for the source's part."""
        started_ms = self._clock.monotonic_ms()
        states = {uid: operator.snapshot() for uid, operator in self._operators.items()}
        pre_commits = {uid: w.pre_commit(barrier.checkpoint_id) for uid, w in self._writers.items()}
        self.broadcast(barrier)
        return TaskSnapshot(
            barrier,
            states={uid: state for uid, state in states.items() if state is not None},
            pre_commits=pre_commits,
            pause_ms=self._clock.monotonic_ms() - started_ms,
        )

    def _receiver(self, target: Target) -> Callable[[Records], None]:
        match target:
            case InChain(uid):
                return self.entrance(uid)
            case ToEdge(edge_id):
                return self._edges[edge_id].emit

    def _count_out(self, write: Callable[[Records], None]) -> Callable[[Records], None]:
        def counted(records: Records) -> None:
            write(records)
            self._counters.records_out += len(records)

        return counted


class Outlet:
    """An operator's Output: hands rows to every receiver of the tag, in the same call stack."""

    def __init__(self, receivers: Mapping[str, Sequence[Callable[[Records], None]]]) -> None:
        self._receivers = receivers

    def emit(self, records: Records, tag: str = MAIN) -> None:
        if len(records) == 0:
            return
        for receive in self._receivers.get(tag, ()):
            receive(records)


class OperatorTask:
    """A task whose head is an operator or sink behind an input gate."""

    def __init__(
        self,
        gate: InputGate,
        head: Callable[[Records], None],
        body: ChainBody,
        counters: TaskCounters,
        on_snapshot: Callable[[TaskSnapshot], None],
    ) -> None:
        self.counters = counters
        self._gate = gate
        self._head = head
        self._body = body
        self._on_snapshot = on_snapshot
        self._has_ended = False

    @property
    def is_drained(self) -> bool:
        return self._has_ended

    def abort_checkpoint(self, checkpoint_id: int) -> None:
        self._gate.abort(checkpoint_id)

    def step(self) -> bool:
        if not self._body.has_room:
            return False
        match self._gate.receive():
            case None:
                return False
            case Records() as records:
                self.counters.records_in += len(records)
                self._head(records)
            case Watermark(time_ms):
                self._body.on_watermark(time_ms)
            case Idle() as idle:
                self._body.broadcast(idle)
            case Barrier() as barrier:
                self._on_snapshot(self._body.snapshot(barrier))
            case EndOfInput() as end:
                self._body.on_watermark(WATERMARK_MAX_MS)
                self._body.broadcast(end)
                self._has_ended = True
        return True


class SourceTask:
    """A task whose head reads splits."""

    def __init__(
        self,
        node: SourceNode,
        reader: SourceReader,
        body: ChainBody,
        clock: Clock,
        counters: TaskCounters,
        on_snapshot: Callable[[TaskSnapshot], None],
    ) -> None:
        self.counters = counters
        self._node = node
        self._reader = reader
        self._body = body
        self._clock = clock
        self._on_snapshot = on_snapshot
        self._output = body.outlet(node.outputs)
        self._watermarks = SourceWatermarks(node.watermarks) if node.watermarks else None
        self._finished: dict[str, bool] = {}
        self._barriers: list[Barrier] = []
        self._said_idle = False
        self._has_stopped = False
        self._has_ended = False

    @property
    def uid(self) -> str:
        return self._node.uid

    @property
    def is_drained(self) -> bool:
        return self._has_ended

    def add_splits(self, splits: Sequence[SplitProgress]) -> None:
        """At the start of an attempt, and when new splits were found while running."""
        for progress in splits:
            split_id = progress.split.split_id
            self._finished[split_id] = progress.is_finished
            if self._watermarks:
                self._watermarks.add_split(split_id, progress.max_event_time_ms, progress.is_finished)
        self._reader.add_splits([p.split for p in splits])

    def trigger(self, barrier: Barrier) -> None:
        """The coordinator wants a checkpoint: the barrier goes out at the next step."""
        self._barriers.append(barrier)

    def abort_checkpoint(self, checkpoint_id: int) -> None:
        self._barriers = [b for b in self._barriers if b.checkpoint_id != checkpoint_id]

    def publish_offsets(self, splits: Sequence[SplitState]) -> None:
        """A checkpoint that has these is complete."""
        self._reader.publish_offsets(splits)

    def step(self) -> bool:
        if not self._body.has_room:
            return False
        if self._barriers:
            self._on_barrier(self._barriers.pop(0))
            return True
        if self._has_ended or self._has_stopped:
            return False
        fetch = self._reader.poll(0)
        if fetch is not None:
            self._on_fetch(fetch)
        moved = self._advance_event_time()
        if self._is_finished:
            self._end()
            return True
        return moved or fetch is not None

    def _on_fetch(self, fetch: Fetch) -> None:
        for split_id in fetch.finished:
            self._finished[split_id] = True
        times = None
        if self._watermarks and self._node.watermarks:
            times = event_times(fetch, self._node.watermarks, self._node.uid)
            self._watermarks.observe(fetch, times)
            self._watermarks.at_end(fetch.at_end, self._clock.monotonic_ms())
            self._watermarks.finish(fetch.finished)
            if len(times):
                self.counters.max_event_time_ms = max(self.counters.max_event_time_ms, int(times.max()))
                self._become_active()
        self.counters.records_in += fetch.records.num_rows
        origin = None
        if self._node.with_origin:
            assert fetch.offset is not None, "the reader was opened with_origin"
            origin = Origin(fetch.splits, fetch.row_split, fetch.offset)
        self._output.emit(Records(fetch.records, times, None, origin))
        if fetch.dead_letters is not None:
            self.counters.dead_letters += fetch.dead_letters.num_rows
            self._output.emit(Records(fetch.dead_letters), DEAD_LETTERS)

    def _advance_event_time(self) -> bool:
        watermarks = self._watermarks
        if watermarks is None:
            return False
        grew = watermarks.advance(self._clock.monotonic_ms())
        if grew:
            self._become_active()
            self._body.on_watermark(watermarks.current_ms)
        if watermarks.is_idle and not self._said_idle:
            self._said_idle = True
            self._body.broadcast(Idle())
            return True
        if not watermarks.is_idle:
            self._become_active()  # a split that was found counts before its first record
        return grew

    def _become_active(self) -> None:
        """After Idle, the next watermark says that this channel counts again, before its records do."""
        if self._said_idle and self._watermarks:
            self._said_idle = False
            self._body.broadcast(Watermark(self._watermarks.current_ms))

    def _on_barrier(self, barrier: Barrier) -> None:
        progress = self._watermarks.progress() if self._watermarks else {}
        splits = [
            SplitProgress(s, progress.get(s.split_id), self._finished[s.split_id])
            for s in self._reader.snapshot()
        ]
        snapshot = self._body.snapshot(barrier)
        self._has_stopped = self._has_stopped or barrier.is_last
        self._on_snapshot(replace(snapshot, splits={self._node.uid: splits}))

    @property
    def _is_finished(self) -> bool:
        return self._node.source.is_bounded and all(self._finished.values())

    def _end(self) -> None:
        self._body.on_watermark(WATERMARK_MAX_MS)
        self._body.broadcast(EndOfInput())
        self._has_ended = True
