"""Trigger: the user's own code that says when a window fires. Names and argument order are PyFlink's."""

from __future__ import annotations

from abc import ABC, abstractmethod
from enum import IntEnum
from typing import Any, Generic, TypeVar

from onceflow.runtime.clock import Clock
from onceflow.runtime.operators.timers import Timers
from onceflow.runtime.operators.triggers.bounds import WindowBounds
from onceflow.runtime.records import WATERMARK_MAX_MS, WATERMARK_MIN_MS
from onceflow.runtime.state.declared_state import State

In = TypeVar("In")


class TriggerResult(IntEnum):
    """What a trigger decides for a window."""

    CONTINUE = 0
    """Nothing happens."""
    FIRE = 1
    """The window sends its result, and keeps its rows."""
    PURGE = 2
    """The window forgets its rows and sends nothing."""
    FIRE_AND_PURGE = 3
    """It sends its result, then forgets its rows."""

    @property
    def fires(self) -> bool:
        """Whether the window sends its result."""
        return bool(self & TriggerResult.FIRE)

    @property
    def purges(self) -> bool:
        """Whether the window forgets its rows."""
        return bool(self & TriggerResult.PURGE)


class TriggerCtx:
    """What the methods of a Trigger get besides. Good during the call only."""

    def __init__(self, timers: Timers, clock: Clock) -> None:
        self._clock = clock
        self.timers = timers
        """The timers of the current window: `ctx.timers.event_time(ms)` leads to on_event_time,
        `ctx.timers.processing_time(ms)` to on_processing_time. They go when the window does."""
        self.key: Any = None
        """The current key: the column's value; a tuple if there are several key columns."""
        self.watermark: int = WATERMARK_MIN_MS
        """How far event time has come, in ms."""
        self._merged: dict[int, list[Any]] = {}

    @property
    def processing_time(self) -> int:
        """What the clock of this machine shows, in ms since the epoch."""
        return self._clock.now_ms()

    @property
    def is_end_of_input(self) -> bool:
        """Whether the input has ended: timers fire for the last time, new ones lead nowhere."""
        return self.watermark == WATERMARK_MAX_MS

    def merged(self, state: State) -> list[Any]:
        """In on_merge: what this state of the trigger's held in each of the windows that have become one: a
        ValueState its value, a MapState a dictionary, a ListState a list. Windows in which it held nothing
        are left out."""
        return self._merged.get(id(state.of_rows), [])


class Trigger(ABC, Generic[In]):
    """The user's class that says when a window fires: Trigger[I] of records of type I.

    State is declared as class attributes, as in a KeyedProcess, and belongs to the current window; so do the
    timers that `ctx.timers` sets. One object serves all windows of a subtask: what it keeps outside of
    declared state is lost at a restart. A window that no FIRE has sent when it ends, and its lateness is
    over, is forgotten without a result.

    Records of a batch arrive together: their windows are merged first, and then on_element is called for each
    record in order. A FIRE sends what the window holds at just that record.
    """

    @abstractmethod
    def on_element(
        self, element: In, timestamp: int | None, window: WindowBounds, ctx: TriggerCtx, /
    ) -> TriggerResult:
        """Called for each record that counts in the window, late ones that it still takes too. `timestamp`:
        its event time in ms; None in a stream without event time."""

    def on_event_time(self, time: int, window: WindowBounds, ctx: TriggerCtx, /) -> TriggerResult:
        """Called when the watermark has reached an event-time timer of the window."""
        return TriggerResult.CONTINUE

    def on_processing_time(self, time: int, window: WindowBounds, ctx: TriggerCtx, /) -> TriggerResult:
        """Called when the clock has reached a processing-time timer of the window; at the end of a bounded
        input once for those that are left."""
        return TriggerResult.CONTINUE

    def on_merge(self, window: WindowBounds, ctx: TriggerCtx, /) -> None:
        """Called when windows have become this one, or its bounds have grown: sessions only, which need it.
        State is empty and timers are gone: `ctx.merged(self.seen)` has what the parts held; set the timers
        for the new bounds."""
        raise NotImplementedError

    def clear(self, window: WindowBounds, ctx: TriggerCtx, /) -> None:
        """Called when a window ends for good, or becomes a part of another. Its state and timers are
        forgotten in any case: this is for what else the trigger has to do."""
        return None
