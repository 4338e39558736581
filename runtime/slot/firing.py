"""Firing: the way of a watermark through the operators of a chain, a piece at a time.

A million windows may end with one watermark. They fire in pieces, and between two of them the task looks for
barriers and records, so that none of those waits for all (as Flink does since FLINK-20217). The watermark
goes on to the next operator, and out, only when all that it makes due has fired. What must not overtake it
waits behind it: further watermarks, of which the latest is enough, Idle and EndOfInput. Records and barriers
do overtake it: it says later what it might have said before, and nothing is late because of that (ADR 87).

An operator that asks somebody (AnsweringOperator) holds all three until the rows before them have been
answered. While it has enough to ask, nothing that lies before it in the chain fires (ADR 118).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence

from onceflow.runtime.clock import Clock
from onceflow.runtime.contracts.batch_size import BatchSize
from onceflow.runtime.graph.job_graph import Chain, InChain, OperatorNode, SinkNode, ToEdge
from onceflow.runtime.operators.iteration.head import IterationHead
from onceflow.runtime.operators.operator import (
    AnsweringOperator,
    ClockOperator,
    EndHoldingOperator,
    FiringOperator,
    Operator,
)
from onceflow.runtime.records import WATERMARK_MAX_MS, WATERMARK_MIN_MS, EndOfInput, Idle, Watermark

PIECE_ROWS_MAX = 1 << 15
"""The most windows or timers that are fired in a piece; BatchSize finds how many of them are quick."""

TimeElement = Watermark | Idle | EndOfInput


class Firing:
    """What one chain has to fire. Its task calls `advance` while `is_due`, in turn with reading its input."""

    def __init__(
        self,
        operators: Mapping[str, Operator],
        watermark_at: Callable[[str, int], int],
        forward: Callable[[TimeElement], None],
        clock: Clock,
        piece_rows_max: int = PIECE_ROWS_MAX,
    ) -> None:
        """`operators` are in topological order. `watermark_at(uid, time_ms)` is what the chain's watermark
        means for one of them. `forward` sends an element out on every edge."""
        self._operators = [
            (uid, op, _firing_operator(op), _answering_operator(op)) for uid, op in operators.items()
        ]
        self._clocked = [op for op in operators.values() if isinstance(op, ClockOperator)]
        self._answering = {
            n: answering for n, (_, _, _, answering) in enumerate(self._operators) if answering is not None
        }
        self._holding = [op for op in operators.values() if isinstance(op, EndHoldingOperator)]
        self._watermark_at = watermark_at
        self._forward = forward
        self._clock = clock
        self._size = BatchSize(piece_rows_max)
        self._left = 0
        self._watermark_ms = WATERMARK_MIN_MS
        self._is_idle = False
        """What went out last."""
        self._behind: list[TimeElement] = []
        self.fired_by_clock = 0
        """How much operators have sent by themselves so far, at times of the clock; heads of loops apart."""
        self._passage: Iterator[int] | None = None
        """The way of the element that has been begun with; None: there is none."""
        self._is_waiting: Callable[[], bool] | None = None
        """Whether that element still has to wait for answers, if it had to."""

    @property
    def is_due(self) -> bool:
        """Whether `advance` has something to do."""
        return (
            self._can_go_on
            or (bool(self._clocked) and self._is_clock_due())
            or (self._passage is None and bool(self._behind) and not self._is_end_held)
        )

    @property
    def admits_rows(self) -> bool:
        """Whether rows should come: no operator has enough to ask."""
        return not self._answering or not any(op.is_full for op in self._answering.values())

    @property
    def rows_at_once(self) -> int | None:
        """How many rows should come at a time, at most; None: that does not matter."""
        return min((op.rows_at_once for op in self._answering.values()), default=None)

    @property
    def wake_at_ms(self) -> int | None:
        """When, by `Clock.now_ms`, something is due even if no input comes. None: never."""
        times = [at_ms for op in self._able() if (at_ms := op.wake_at_ms) is not None]
        return min(times, default=None)

    @property
    def has_more_by_clock(self) -> bool:
        """Whether an operator has something to send at a time to come; heads of loops apart."""
        clocked = (op for op in self._clocked if not isinstance(op, IterationHead))
        return any(op.wake_at_ms is not None for op in clocked)

    def take(self, element: TimeElement) -> None:
        """Send it through the operators and out. A piece is fired at once; what is not through then goes on
        with `advance`."""
        self._behind = queued_behind(self._behind, element)
        if self._passage is None:
            self._passage = self._pass_on()
            self.advance()

    def advance(self) -> None:
        """Fire one piece, of what the watermark on its way has made due, else of what the clock has, which is
        what has been answered too."""
        rows = self._left = self._size.ask(self._clock.monotonic_ms())
        if self._passage is None and self._behind and not self._is_end_held:
            self._passage = self._pass_on()
        if self._passage is not None and self._can_go_on:
            self._go_on(self._passage)
        else:
            self._fire_by_clock()
        if self._left < rows:
            self._size.took(rows - self._left)
            self._size.ask(self._clock.monotonic_ms())

    @property
    def _can_go_on(self) -> bool:
        return self._passage is not None and (self._is_waiting is None or not self._is_waiting())

    def _go_on(self, passage: Iterator[int]) -> None:
        self._is_waiting = None
        for fired in passage:
            self._left -= fired
            if self._left <= 0 or self._is_waiting is not None:
                return
        self._passage = None

    def _pass_on(self) -> Iterator[int]:
        """Take what has come through, element by element; yields after each call how many have fired, and
        where it has to wait for answers."""
        while self._behind and not self._is_end_held:
            element = self._behind.pop(0)
            if isinstance(element, Watermark):
                self._become_active()
                for n, (uid, operator, firing, answering) in enumerate(self._operators):
                    if answering is not None:
                        yield from self._wait_for(answering)
                    operator.on_watermark(self._watermark_at(uid, element.time_ms))
                    while firing is not None:
                        yield from self._wait_for_room_behind(n)
                        if not (fired := firing.fire(self._left)):
                            break
                        yield fired
            else:
                for answering in self._answering.values():
                    yield from self._wait_for(answering)
            self._send(element)

    def _wait_for(self, answering: AnsweringOperator) -> Iterator[int]:
        """Wait until the rows have been answered that came before."""
        answering.begin_hold()
        while answering.holds:
            self._is_waiting = lambda: answering.holds
            yield 0
        answering.end_hold()

    def _wait_for_room_behind(self, n: int) -> Iterator[int]:
        """Wait until what the n-th operator fires would find room in those behind it."""
        if not self._answering:
            return

        def is_full() -> bool:
            return any(op.is_full for m, op in self._answering.items() if m > n)

        while is_full():
            self._is_waiting = is_full
            yield 0

    def _become_active(self) -> None:
        """What fires goes out before its watermark does, so say first that this channel counts again."""
        if self._is_idle and any(firing for _, _, firing, _ in self._operators):
            self._send(Watermark(self._watermark_ms))

    def _send(self, element: TimeElement) -> None:
        self._is_idle = isinstance(element, Idle)
        if isinstance(element, Watermark):
            self._watermark_ms = element.time_ms
        self._forward(element)

    def _fire_by_clock(self) -> None:
        now_ms = self._clock.now_ms()
        for operator in self._able():
            if self._left > 0:
                fired = operator.on_clock(now_ms, self._left)
                self._left -= fired
                self.fired_by_clock += 0 if isinstance(operator, IterationHead) else fired

    def _able(self) -> Iterator[ClockOperator]:
        """The operators that may send by themselves now, the last of the chain first: none behind which one
        has enough to ask."""
        for operator in reversed(self._clocked):
            yield operator
            if self._answering and isinstance(operator, AnsweringOperator) and operator.is_full:
                return

    @property
    def _is_end_held(self) -> bool:
        """Whether what comes next is the end of the input, and an operator holds it."""
        is_end = bool(self._behind) and isinstance(self._behind[0], EndOfInput)
        return is_end and any(operator.holds_end for operator in self._holding)

    def _is_clock_due(self) -> bool:
        wake_at_ms = self.wake_at_ms
        return wake_at_ms is not None and wake_at_ms <= self._clock.now_ms()


def queued_behind(waiting: Sequence[TimeElement], element: TimeElement) -> list[TimeElement]:
    """What waits behind a watermark that is on its way, when one more element has come: never more than two.
    A watermark says all that was said before it, and that the channel is not idle any more."""
    match element:
        case Watermark():
            return [element]
        case Idle():
            return [*(e for e in waiting if isinstance(e, Watermark)), element]
        case EndOfInput():
            return [Watermark(WATERMARK_MAX_MS), element]


def watermark_delays(chain: Chain) -> tuple[Mapping[str, int], Mapping[int, int]]:
    """How much lower than at the chain's head the watermark is at each node, and on each edge out."""
    delay_ms: dict[str, int] = {chain.head: 0}
    edge_delay_ms: dict[int, int] = {}
    for uid, node in chain.nodes.items():  # in topological order, and a tree
        if isinstance(node, SinkNode):
            continue
        behind_ms = delay_ms.get(uid, 0) + (node.delays_watermark_ms if isinstance(node, OperatorNode) else 0)
        for targets in node.outputs.values():
            for target in targets:
                match target:
                    case InChain(other):
                        delay_ms[other] = behind_ms
                    case ToEdge(edge_id):
                        edge_delay_ms[edge_id] = behind_ms
    return delay_ms, edge_delay_ms


def held_back(time_ms: int, delay_ms: int) -> int:
    """The end of event time is the end for everybody."""
    if not delay_ms or time_ms == WATERMARK_MAX_MS:
        return time_ms
    return max(WATERMARK_MIN_MS, time_ms - delay_ms)


def fire_all(operator: Operator, time_ms: int) -> None:
    """Let event time come to this time for one operator by itself, and all that is due fire."""
    operator.on_watermark(time_ms)
    firing = _firing_operator(operator)
    while firing is not None and firing.fire(PIECE_ROWS_MAX):
        pass


def _answering_operator(operator: Operator) -> AnsweringOperator | None:
    return operator if isinstance(operator, AnsweringOperator) else None


def _firing_operator(operator: Operator) -> FiringOperator | None:
    return operator if isinstance(operator, FiringOperator) else None
