"""The task loop: one batch from the head through the chain. Start reading here.

A task is one subtask of a chain. It never blocks and never waits: `step` does one piece of work, if
there is one and what it may produce has room. The slot calls the steps of its tasks, in one thread, so
everything between two steps is atomic: a barrier falls between two batches, or between two pieces of what
fires (`firing.py`), and never inside one. Batches are cut so that a step takes about 20 ms, however slow a
function of the user's is.

The order at a barrier is what makes results exact (Carbone 2015; docs/exactly-once.md):

1. Records before it went through the chain and out on every edge.
2. Each node gives its snapshot: a source where to go on, an operator its state, a sink its pre-commit.
   Nothing is written yet: all three are frozen in memory.
3. The barrier goes out on every edge, behind those records.
4. Only then comes the next element. Writing the snapshot out happens on other threads meanwhile.

A barrier that overtakes (ADR 119) comes to step 2 before 1 is over: rows that wait in front of it are kept
with the snapshot, and its own output goes out before theirs. The snapshot is whole when the barrier has come
on every channel, since what comes before it belongs to it too.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Protocol

from onceflow.runtime.clock import Clock
from onceflow.runtime.contracts.batch_size import BatchSize
from onceflow.runtime.exchange.input_gate import InputGate
from onceflow.runtime.operators.operator import FrozenState
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


@dataclass(frozen=True, slots=True)
class Overtaking:
    """How barriers overtake in a task."""

    after_ms: float
    """How long after a checkpoint was asked for; before that barriers are aligned."""
    freeze: Callable[[Sequence[Sequence[Records]]], Mapping[str, FrozenState]]
    """Makes states, by uid, of rows by channel."""


class OperatorTask:
    """A task whose head is an operator or sink behind an input gate."""

    def __init__(
        self,
        gate: InputGate,
        head: Callable[[Records], None],
        body: ChainBody,
        counters: TaskCounters,
        on_snapshot: Callable[[TaskSnapshot], None],
        clock: Clock,
        batch_size: BatchSize,
        overtaking: Overtaking | None = None,
    ) -> None:
        """`batch_size` decides how many rows the head gets at once. `overtaking`: None: no barrier does."""
        self.counters = counters
        self._clock = clock
        self._batch_size = batch_size
        self._gate = gate
        self._head = head
        self._body = body
        self._on_snapshot = on_snapshot
        self._overtaking = overtaking
        self._awaited: Barrier | None = None
        """It is on its way: what fires gives way to it."""
        self._overtakes_at_ms = 0.0
        self._unwhole: TaskSnapshot | None = None
        """The snapshot at a barrier that has overtaken, and has not come on all channels yet."""
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
        self._awaited = barrier
        if self._overtaking is not None:
            self._overtakes_at_ms = self._clock.monotonic_ms() + self._overtaking.after_ms

    def abort_checkpoint(self, checkpoint_id: int) -> None:
        self._gate.abort(checkpoint_id)
        self._no_longer_await(checkpoint_id)
        if self._unwhole is not None and self._unwhole.barrier.checkpoint_id <= checkpoint_id:
            self._unwhole = None

    def step(self) -> bool:
        """An element of the input and a piece of what fires, in turn. While a barrier is on its way a piece
        is fired only if there is nothing to read, so a barrier waits for one at most; after the last barrier
        none is, since it would belong to no checkpoint."""
        if self._overtaking is not None and self._overtake(self._overtaking):
            return True
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
        rows_max = self._batch_size.ask(self._clock.monotonic_ms())
        room = self._body.rows_max(self.counters.records_in)
        element: Element | None = self._kept
        if element is None:
            element = self._gate.receive(rows_max if room is None else min(rows_max, room))
        self._kept = element if isinstance(element, Records) and not self._body.admits_rows else None
        return element if self._kept is None else None

    def _fire(self) -> bool:
        if self._has_stopped or not self._body.firing.is_due:
            return False
        self._body.firing.advance()
        self._body.send_tokens()
        return True

    def _overtake(self, overtaking: Overtaking) -> bool:
        """Take a barrier that has come and may be taken now; or the rest of what one has overtaken."""
        if self._unwhole is not None and (rows := self._gate.overtaken()) is not None:
            whole, self._unwhole = self._unwhole, None
            self._on_snapshot(replace(whole, states={**whole.states, **overtaking.freeze(rows)}))
            return True
        barrier = self._awaited
        if barrier is None or self._kept is not None or self._clock.monotonic_ms() < self._overtakes_at_ms:
            return False
        n = barrier.checkpoint_id
        if not (self._body.may_be_overtaken(n) and self._gate.overtake(n)):
            return False
        self._take_barrier(barrier)
        self._unwhole = self._body.snapshot(barrier)
        return True

    def _take_barrier(self, barrier: Barrier) -> None:
        self._has_stopped = self._has_stopped or barrier.is_last
        self._no_longer_await(barrier.checkpoint_id)

    def _on_element(self, element: Element) -> None:
        match element:
            case Records() as records:
                self.counters.records_in += len(records)
                self._head(records)
                self._batch_size.took(len(records))
                self._batch_size.ask(self._clock.monotonic_ms())  # what comes now is not its time
            case Barrier() as barrier:
                self._take_barrier(barrier)
                self._on_snapshot(self._body.snapshot(barrier))
            case Watermark() | Idle() | EndOfInput():
                self._body.firing.take(element)
            case LoopToken():
                self._body.pass_token(element)

    def _no_longer_await(self, checkpoint_id: int) -> None:
        if self._awaited is not None and self._awaited.checkpoint_id <= checkpoint_id:
            self._awaited = None
