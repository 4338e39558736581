"""The task loop: one batch from the head through the chain. Start reading here.

A task is one subtask of a chain. It never blocks and never waits: `step` does one piece of work, if
there is one and what it may produce has room. The slot calls the steps of its tasks, in one thread, so
everything between two steps is atomic: a barrier falls between two batches, or between two pieces of what
fires (`firing.py`), and never inside one.

The order at a barrier is what makes results exact (Carbone 2015; docs/exactly-once.md):

1. Records before it went through the chain and out on every edge.
2. Each node gives its snapshot: a source where to go on, an operator its state, a sink its pre-commit.
   Nothing is written yet: all three are frozen in memory.
3. The barrier goes out on every edge, behind those records.
4. Only then comes the next element. Writing the snapshot out happens on other threads meanwhile.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from typing import Protocol

from onceflow.runtime.clock import Clock
from onceflow.runtime.contracts import (
    PreCommit,
    SinkWriter,
    SplitProgress,
    ThrottlingWriter,
    WatermarkedWriter,
)
from onceflow.runtime.exchange.input_gate import InputGate
from onceflow.runtime.exchange.record_writer import RecordWriter
from onceflow.runtime.graph.job_graph import Chain, InChain, SinkNode, Target, ToEdge
from onceflow.runtime.operators.operator import MAIN, FrozenState, Operator, TwoInputOperator
from onceflow.runtime.records import (
    WATERMARK_MAX_MS,
    WATERMARK_MIN_MS,
    Barrier,
    Element,
    EndOfInput,
    Idle,
    Records,
    Watermark,
)
from onceflow.runtime.slot.firing import PIECE_ROWS_MAX, Firing, TimeElement, held_back, watermark_delays


@dataclass(frozen=True, slots=True)
class TaskSnapshot:
    """One task at a barrier, frozen in memory. By uid."""

    barrier: Barrier
    splits: Mapping[str, Sequence[SplitProgress]] = field(default_factory=dict)
    states: Mapping[str, FrozenState] = field(default_factory=dict)
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
    failed_records: int = 0
    watermark_ms: int = WATERMARK_MIN_MS
    max_event_time_ms: int = WATERMARK_MIN_MS

    def as_dict(self) -> dict[str, int]:
        """The counters by name, as they are now (`dataclasses.asdict` takes ten times as long)."""
        return {name: getattr(self, name) for name in _COUNTERS}


_COUNTERS = tuple(field.name for field in fields(TaskCounters))


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

    def trigger(self, barrier: Barrier) -> None:
        """A checkpoint has been asked for: its barrier is to get through soon."""
        ...

    def abort_checkpoint(self, checkpoint_id: int) -> None: ...

    @property
    def wake_at_ms(self) -> int | None:
        """When, by `Clock.now_ms`, `step` has something to do even if no input comes. None: never."""
        ...


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
        piece_rows_max: int = PIECE_ROWS_MAX,
    ) -> None:
        self._clock = clock
        self._chain = chain
        self._operators = operators
        self._writers = writers
        self._edges = edges
        self._watermarked = {uid: w for uid, w in writers.items() if isinstance(w, WatermarkedWriter)}
        self._throttling = [w for w in writers.values() if isinstance(w, ThrottlingWriter)]
        self._counters = counters
        self._delay_ms, self._edge_delay_ms = watermark_delays(chain)
        self._max_delay_ms = max([*self._delay_ms.values(), *self._edge_delay_ms.values()], default=0)
        self.firing = Firing(operators, self._watermark_at, self._forward, clock, piece_rows_max)
        """Where watermarks, Idle and EndOfInput go in."""
        self.has_ended = False
        """EndOfInput has gone out."""

    @property
    def has_room(self) -> bool:
        for edge in self._edges.values():  # no generators: this is asked before each step
            if not edge.has_room:
                return False
        return not self._throttling or all(writer.has_room for writer in self._throttling)

    def entrance(self, uid: str, input: int = 0) -> Callable[[Records], None]:
        """Where rows for this input of this node go in."""
        node = self._chain.nodes[uid]
        if isinstance(node, SinkNode):
            return self._count_out(self._writers[uid].write)
        operator = self._operators[uid]
        if input == 0:
            return operator.on_records
        assert isinstance(operator, TwoInputOperator), f"{uid!r} has one input"
        return operator.on_right_records

    def outlet(self, outputs: Mapping[str, Sequence[Target]]) -> Outlet:
        """Where a node's rows come out, by tag."""
        return Outlet({tag: [self._receiver(t) for t in targets] for tag, targets in outputs.items()})

    def broadcast(self, element: Watermark | Idle | Barrier | EndOfInput) -> None:
        """Out on every edge; a watermark as it is behind the operators that lead there."""
        for edge_id, edge in self._edges.items():
            if self._max_delay_ms and isinstance(element, Watermark):
                edge.broadcast(Watermark(held_back(element.time_ms, self._edge_delay_ms.get(edge_id, 0))))
            else:
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

    def _watermark_at(self, uid: str, time_ms: int) -> int:
        return held_back(time_ms, self._delay_ms.get(uid, 0))

    def _forward(self, element: TimeElement) -> None:
        """It is through all operators, and so is what they made of it."""
        self.broadcast(element)
        for uid, writer in self._watermarked.items():
            self._tell(uid, writer, element)
        match element:
            case Watermark(time_ms):
                self._counters.watermark_ms = held_back(time_ms, self._max_delay_ms)
            case EndOfInput():
                self.has_ended = True

    def _tell(self, uid: str, writer: WatermarkedWriter, element: TimeElement) -> None:
        match element:
            case Watermark(time_ms):
                writer.on_watermark(self._watermark_at(uid, time_ms))
            case Idle():
                writer.on_idle()
            case EndOfInput():
                writer.on_watermark(WATERMARK_MAX_MS)

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
        self._awaited: int | None = None
        """The checkpoint whose barrier is on its way: what fires gives way to it."""
        self._is_turn_to_fire = True
        self._has_stopped = False

    @property
    def is_drained(self) -> bool:
        return self._body.has_ended

    @property
    def wake_at_ms(self) -> int | None:
        return None if self._has_stopped else self._body.firing.wake_at_ms

    def trigger(self, barrier: Barrier) -> None:
        self._awaited = barrier.checkpoint_id

    def abort_checkpoint(self, checkpoint_id: int) -> None:
        self._gate.abort(checkpoint_id)
        self._no_longer_await(checkpoint_id)

    def step(self) -> bool:
        """An element of the input and a piece of what fires, in turn. While a barrier is on its way a piece
        is fired only if there is nothing to read, so a barrier waits for one at most; after the last barrier
        none is, since it would belong to no checkpoint."""
        if not self._body.has_room:
            return False
        if self._is_turn_to_fire and self._fire():
            self._is_turn_to_fire = False
            return True
        element = self._gate.receive()
        self._is_turn_to_fire = self._awaited is None
        if element is None:
            return self._fire()
        self._on_element(element)
        return True

    def _fire(self) -> bool:
        if self._has_stopped or not self._body.firing.is_due:
            return False
        self._body.firing.advance()
        return True

    def _on_element(self, element: Element) -> None:
        match element:
            case Records() as records:
                self.counters.records_in += len(records)
                self._head(records)
            case Barrier() as barrier:
                self._has_stopped = self._has_stopped or barrier.is_last
                self._no_longer_await(barrier.checkpoint_id)
                self._on_snapshot(self._body.snapshot(barrier))
            case Watermark() | Idle() | EndOfInput():
                self._body.firing.take(element)

    def _no_longer_await(self, checkpoint_id: int) -> None:
        if self._awaited is not None and self._awaited <= checkpoint_id:
            self._awaited = None
