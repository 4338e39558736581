"""KeyedProcess: the user's code with state and timers, one key at a time."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Generic, TypeVar

from onceflow.runtime.clock import Clock
from onceflow.runtime.errors import UserFunctionError
from onceflow.runtime.operators.declared import SideOutput
from onceflow.runtime.operators.timers import Timers
from onceflow.runtime.records import WATERMARK_MAX_MS, WATERMARK_MIN_MS
from onceflow.runtime.state.timers import Timer

KeyT = TypeVar("KeyT")
In = TypeVar("In")
Right = TypeVar("Right")
Out = TypeVar("Out")
T = TypeVar("T")


class KeyedProcess(Generic[KeyT, In, Out]):
    """The user's class: process() for each record of a key, on_timer() for each timer that fires.

    KeyedProcess[K, I, O] names the types of key, records in and records out (None: side outputs only).
    State is declared as class attributes, and belongs to the current key. One object serves all keys of
    a subtask: what it keeps outside of declared state is lost at a restart.
    """

    def process(self, record: In, ctx: Ctx, /) -> Iterable[Out] | None:
        """Called for each record, late ones too (ctx.is_late). Yields records, or returns an iterable or
        None; they get the event time of the record."""
        raise NotImplementedError

    def on_timer(self, fired: Timer, ctx: Ctx, /) -> Iterable[Out] | None:
        """Called when a timer of the current key is due: the watermark has reached it, or the clock if
        `fired.is_processing_time`. What it yields gets the event time `ctx.event_time`."""
        return None

    def on_watermark(self, watermark: int, ctx: Ctx, /) -> Iterable[Out] | None:
        """Called when event time has come to `watermark` and the timers up to it have fired. There is no key,
        so no state of one and no timers; what the object keeps itself is lost at a restart. What it yields
        gets the event time `ctx.event_time`, which is `watermark`, and goes out before it; at the end of the
        input (ctx.is_end_of_input) that of the latest record."""
        return None


class KeyedCoProcess(Generic[KeyT, In, Right, Out]):
    """The user's class for two streams by the same key: process_left() for each record of the first,
    process_right() for each of the second, on_timer() for each timer that fires.

    KeyedCoProcess[K, L, R, O] names the types of key, left and right records, and records out (None: side
    outputs only). State is declared as for a KeyedProcess; both sides of a key see the same. Which side's
    record comes first is chance, whatever their event times are.
    """

    def process_left(self, record: In, ctx: Ctx, /) -> Iterable[Out] | None:
        """Called for each record of the left stream, as KeyedProcess.process is."""
        raise NotImplementedError

    def process_right(self, record: Right, ctx: Ctx, /) -> Iterable[Out] | None:
        """Called for each record of the right stream."""
        raise NotImplementedError

    def on_timer(self, fired: Timer, ctx: Ctx, /) -> Iterable[Out] | None:
        """Called when a timer of the current key is due: see KeyedProcess. Event time is the lower one of
        both streams, one that is idle or has ended left out."""
        return None

    def on_watermark(self, watermark: int, ctx: Ctx, /) -> Iterable[Out] | None:
        """Called when event time of both streams has come to `watermark`: see KeyedProcess."""
        return None


AnyProcess = KeyedProcess[Any, Any, Any] | KeyedCoProcess[Any, Any, Any, Any]


class Ctx:
    """What process() and on_timer() get besides the record. Good during the call only."""

    def __init__(self, timers: Timers, sides: Mapping[str, SideOutput[Any]], clock: Clock) -> None:
        self._clock = clock
        self.timers = timers
        """The timers of the current key."""
        self.key: Any = None
        """The current key: the column's value; a tuple if there are several key columns."""
        self.event_time: int | None = None
        """The record's event time in ms, or the timer's; for a processing-time timer the first that is not
        late: one ms after the watermark, or the timer's own time before there is one. None in a stream
        without event time."""
        self.watermark: int = WATERMARK_MIN_MS
        """How far event time has come, in ms."""
        self.sent: dict[str, tuple[list[Any], list[int | None]]] = {name: ([], []) for name in sides}
        """Records to side outputs, and their event times, for the operator to send."""

    @property
    def processing_time(self) -> int:
        """What the clock of this machine shows, in ms since the epoch."""
        return self._clock.now_ms()

    @property
    def is_late(self) -> bool:
        """Whether the watermark had passed the record's event time when it came."""
        return self.event_time is not None and self.event_time <= self.watermark

    @property
    def is_end_of_input(self) -> bool:
        """Whether the input has ended: timers fire for the last time, new ones lead nowhere."""
        return self.watermark == WATERMARK_MAX_MS

    def emit(self, to: SideOutput[T], record: T) -> None:
        """Send a record to a side output."""
        if to.name not in self.sent:
            raise UserFunctionError(
                f"side output {to.name!r} is not declared: write `{to.name} = SideOutput({to.name!r}, "
                f"{type(record).__name__})` in the class"
            )
        records, times = self.sent[to.name]
        records.append(record)
        times.append(self.event_time)
