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

from collections.abc import Callable
from typing import Protocol

from onceflow.runtime.exchange.input_gate import InputGate
from onceflow.runtime.records import (
    Barrier,
    Element,
    EndOfInput,
    Idle,
    LoopToken,
    Records,
    Watermark,
)
from onceflow.runtime.slot.chain_body import ChainBody
from onceflow.runtime.slot.task_reports import TaskCounters, TaskSnapshot


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
        self._kept: Records | None = None
        """Rows that have come, and that an operator has no room for yet."""
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
        element = self._receive()
        self._is_turn_to_fire = self._awaited is None
        if element is None:
            return self._fire()
        self._on_element(element)
        return True

    def _receive(self) -> Element | None:
        """The next element, unless it is rows for which there is no room: nothing overtakes those."""
        element = self._kept if self._kept is not None else self._gate.receive()
        self._kept = element if isinstance(element, Records) and not self._body.admits_rows else None
        return element if self._kept is None else None

    def _fire(self) -> bool:
        if self._has_stopped or not self._body.firing.is_due:
            return False
        self._body.firing.advance()
        self._body.send_tokens()
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
            case LoopToken():
                self._body.pass_token(element)

    def _no_longer_await(self, checkpoint_id: int) -> None:
        if self._awaited is not None and self._awaited <= checkpoint_id:
            self._awaited = None
