"""Operator: what the engine calls for each element of a stream."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol, TypeVar, runtime_checkable

import pyarrow as pa

from onceflow.runtime.clock import Clock
from onceflow.runtime.functions.questions import Calls
from onceflow.runtime.records import Records
from onceflow.runtime.state.grouped_table import KeyedGroups
from onceflow.runtime.state.operator_state import FrozenState, RestoredState
from onceflow.runtime.state.overflow import UNLIMITED, StateBackend
from onceflow.runtime.state.table import IncrementalTable

if TYPE_CHECKING:  # it has kernels beneath it, and who decides knows these protocols
    from onceflow.runtime.state.asked_keys import AskedKeys

__all__ = [
    "MAIN",
    "AnsweringOperator",
    "BarrierOperator",
    "BeginningOperator",
    "ClockOperator",
    "EndHoldingOperator",
    "FiringOperator",
    "FrozenState",
    "Operator",
    "OperatorContext",
    "Output",
    "PeekedOperator",
    "RestoredState",
    "TwoInputOperator",
]

Shared = TypeVar("Shared")

MAIN = ""
"""The tag of an operator's main output; side outputs have names."""


class Output(Protocol):
    """Where an operator sends rows; calls the next operator in the same call stack."""

    def emit(self, records: Records, tag: str = MAIN) -> None: ...


def _no_calls(function: Any, at_once_max: int) -> Calls:
    raise AssertionError("nobody makes calls here")


@dataclass(frozen=True, slots=True)
class OperatorContext:
    """What an operator gets when it is opened."""

    uid: str
    subtask: int
    parallelism: int
    max_parallelism: int
    key_groups: range
    """The key groups this subtask owns; contiguous. See exchange/key_groups.py."""
    clock: Clock
    count_late: Callable[[int], None] = lambda rows: None
    """Report late rows: for the live line, the metrics and the job's last line."""
    count_failed: Callable[[int, str], None] = lambda rows, said: None
    """Report rows that a function of the user's failed on, where the job goes on; `said`: on which first."""
    redact: Callable[[str], str] = lambda text: text
    """Take the job's secrets out of a text."""
    open_function: Callable[..., None] = lambda function, run=None: None
    """Call open(ctx) of the user's function object, and see to it that its close() is called. `run`, if it is
    given, makes both calls (see Calls.run)."""
    calls: Callable[[Any, int], Calls] = _no_calls
    """Who makes the calls of a function that answers later, at most so many at a time."""
    state: StateBackend = UNLIMITED
    """Where the slot's state is kept."""
    shared_objects: dict[str, Any] = field(default_factory=dict)
    """What operators of the slot have in common, by name: see `shared`."""

    def begin(self, table: IncrementalTable | KeyedGroups) -> None:
        """Let the snapshots of a table that was made now build on each other, if those of the job do."""
        if self.state.snapshots.are_incremental:
            table.build_on_snapshots(self.key_groups, self.max_parallelism, self.state.snapshots)

    def shared(self, name: str, make: Callable[[], Shared]) -> Shared:
        """The one object of this name in the slot; made if it is not there. For operators that meet."""
        found: Shared = self.shared_objects.setdefault(name, make())
        return found


class Operator(Protocol):
    """One subtask of an operator. One thread calls it. Stateless ones have empty snapshots."""

    def open(self, context: OperatorContext, out: Output) -> None:
        """Once, before anything else."""
        ...

    def restore(self, states: Sequence[RestoredState]) -> None:
        """Called after open, before the first element, if the job starts from a checkpoint. Each state comes
        from one earlier subtask, cut down to key groups of this subtask; each has its own meta. Of an
        operator whose state has no key (BY_SUBTASK) it is the whole state of every earlier subtask."""
        ...

    def on_records(self, records: Records) -> None: ...

    def on_watermark(self, time_ms: int) -> None:
        """Event time has come to time_ms; never goes back. WATERMARK_MAX_MS at the end of the input.
        What is emitted here goes out before the watermark does."""
        ...

    def snapshot(self) -> FrozenState | None:
        """At a barrier: copy or freeze, don't write. None: no state."""
        ...

    def close(self) -> None: ...


@runtime_checkable
class TwoInputOperator(Operator, Protocol):
    """An operator with a right input too; `on_records` gets the rows of the left one.

    Between rows of the two there is no order. The watermark is the lower one of both, an input that is idle
    or has ended left out; a barrier comes when it has come on both.
    """

    def on_right_records(self, records: Records) -> None: ...


@runtime_checkable
class FiringOperator(Operator, Protocol):
    """An operator that may have more to send at a watermark than a barrier should wait for.

    Its `on_watermark` only takes note of the time; `fire` is called after it, again and again, until nothing
    is due. Records and barriers may come between two calls, a further watermark does not. What such records
    find is what they would have found behind the whole of the firing: they are late against the new
    watermark, and see no state of their key that was still to be fired. A snapshot holds what has not fired.
    """

    def fire(self, rows_max: int) -> int:
        """Fire about so many of the windows or timers that are due. Returns how many it did, and 0 only
        when nothing was due any more."""
        ...


@runtime_checkable
class ClockOperator(Operator, Protocol):
    """An operator that acts at times of the clock too (`Clock.now_ms`)."""

    @property
    def wake_at_ms(self) -> int | None:
        """When `on_clock` is to be called next. None: not before something else has happened."""
        ...

    def on_clock(self, now_ms: int, rows_max: int) -> int:
        """Fire about so many of what is due by now; returns how many. As `fire`, but for watermarks and
        records no order is promised."""
        ...


@runtime_checkable
class AnsweringOperator(ClockOperator, Protocol):
    """An operator whose rows are made later than those that come: it asks somebody, and `on_clock` sends what
    has been answered. What comes behind rows of which it has none yet must not overtake them."""

    @property
    def is_full(self) -> bool:
        """Whether it has so much to ask that no more rows should come. Barriers still do."""
        ...

    @property
    def rows_at_once(self) -> int:
        """How many rows are enough for it at a time."""
        ...

    def begin_hold(self) -> None:
        """A watermark or the like is here, which goes on behind all rows that have come by now. What comes
        from now on is sent behind it."""
        ...

    @property
    def holds(self) -> bool:
        """Whether rows before it have not been sent yet."""
        ...

    def end_hold(self) -> None:
        """It goes on; nothing before it is left."""
        ...


@runtime_checkable
class BeginningOperator(Operator, Protocol):
    """An operator that has something to do when its state is there."""

    def begin(self) -> None:
        """Once, behind `restore`, or behind `open` if there is nothing to restore; before the first
        element."""
        ...


@runtime_checkable
class PeekedOperator(Operator, Protocol):
    """An operator whose state of some keys can be read while it runs, between two batches."""

    def peek(self, asked: AskedKeys) -> Sequence[pa.RecordBatch]:
        """All rows that a snapshot would have of these keys now, in the columns of its only table. It changes
        nothing. The columns of the keys are those of the input's keys, of the left one if it has two. Raises
        UsageError if there are too many rows."""
        ...


@runtime_checkable
class BarrierOperator(Operator, Protocol):
    """An operator that is told which checkpoint its next snapshot is of."""

    def on_barrier(self, checkpoint_id: int) -> None:
        """Called before `snapshot`."""
        ...


@runtime_checkable
class EndHoldingOperator(Operator, Protocol):
    """An operator behind which the input may go on when it has ended before it: the head of a loop."""

    @property
    def holds_end(self) -> bool:
        """Whether EndOfInput has to wait."""
        ...
