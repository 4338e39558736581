"""ChainBody: the nodes of a chain behind its head, wired, and the edges out of it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

from onceflow.runtime.clock import Clock
from onceflow.runtime.contracts import (
    SinkWriter,
    ThrottlingWriter,
    WatermarkedWriter,
)
from onceflow.runtime.exchange.record_writer import RecordWriter
from onceflow.runtime.graph.job_graph import Chain, InChain, SinkNode, Target, ToEdge
from onceflow.runtime.operators.iteration.head import IterationHead
from onceflow.runtime.operators.iteration.tail import IterationTail
from onceflow.runtime.operators.operator import (
    MAIN,
    BarrierOperator,
    Operator,
    TwoInputOperator,
)
from onceflow.runtime.records import (
    WATERMARK_MAX_MS,
    Barrier,
    EndOfInput,
    Idle,
    LoopToken,
    Records,
    Watermark,
)
from onceflow.runtime.slot.firing import PIECE_ROWS_MAX, Firing, TimeElement, held_back, watermark_delays
from onceflow.runtime.slot.task_reports import TaskCounters, TaskSnapshot


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
        self._at_barriers = [op for op in operators.values() if isinstance(op, BarrierOperator)]
        self._heads = [op for op in operators.values() if isinstance(op, IterationHead)]
        self._tails = [op for op in operators.values() if isinstance(op, IterationTail)]
        self._told_by_clock = 0
        """What `firing.fired_by_clock` was when the last token came by."""

    @property
    def has_room(self) -> bool:
        for edge in self._edges.values():  # no generators: this is asked before each step
            if not edge.has_room:
                return False
        return not self._throttling or all(writer.has_room for writer in self._throttling)

    @property
    def admits_rows(self) -> bool:
        """Whether rows should come. Watermarks, barriers and the like may in any case."""
        return self.firing.admits_rows

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

    def broadcast(self, element: Watermark | Idle | Barrier | EndOfInput | LoopToken) -> None:
        """Out on every edge; a watermark as it is behind the operators that lead there."""
        for edge_id, edge in self._edges.items():
            if self._max_delay_ms and isinstance(element, Watermark):
                edge.broadcast(Watermark(held_back(element.time_ms, self._edge_delay_ms.get(edge_id, 0))))
            else:
                edge.broadcast(element)

    def snapshot(self, barrier: Barrier) -> TaskSnapshot:
        """Steps 2 and 3 of a barrier, but for the source's part."""
        started_ms = self._clock.monotonic_ms()
        for operator in self._at_barriers:
            operator.on_barrier(barrier.checkpoint_id)
        states = {uid: operator.snapshot() for uid, operator in self._operators.items()}
        pre_commits = {uid: w.pre_commit(barrier.checkpoint_id) for uid, w in self._writers.items()}
        self.broadcast(barrier)
        return TaskSnapshot(
            barrier,
            states={uid: state for uid, state in states.items() if state is not None},
            pre_commits=pre_commits,
            pause_ms=self._clock.monotonic_ms() - started_ms,
        )

    def send_tokens(self) -> None:
        """Let the heads of loops send theirs, if it is time."""
        for head in self._heads:
            if (token := head.token()) is not None:
                self.pass_token(token)

    def pass_token(self, token: LoopToken) -> None:
        """It came behind rows that are through this chain: to the loop's tail if that is here, and on."""
        has_fired = self.firing.fired_by_clock != self._told_by_clock
        self._told_by_clock = self.firing.fired_by_clock
        if has_fired or self.firing.has_more_by_clock:
            token = replace(token, is_quiet=False)
        for tail in self._tails:
            if tail.loop == token.loop:
                tail.on_token(token)
        self.broadcast(token)

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
