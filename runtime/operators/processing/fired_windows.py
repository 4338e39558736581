"""FiredWindows: calls a WindowProcess of the user's behind the operator of its windows.

Windows that have fired come to a process operator by their key. What belongs to a window is in maps of the
key, by the window's bounds: so snapshots, rescales and overflow know it as they know any state of a key.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, cast

from onceflow.runtime.errors import UserFunctionError
from onceflow.runtime.functions.context import FunctionContext
from onceflow.runtime.functions.lives import method_of
from onceflow.runtime.operators.declared import StandIn
from onceflow.runtime.operators.processing.keyed_process import Ctx, KeyedProcess
from onceflow.runtime.operators.processing.window_process import WindowCtx, WindowProcess, WindowState
from onceflow.runtime.operators.triggers.bounds import WindowBounds
from onceflow.runtime.records import WATERMARK_MAX_MS
from onceflow.runtime.state.declared_state import State
from onceflow.runtime.state.handles import MapState
from onceflow.runtime.state.timers import Timer
from onceflow.runtime.types.user_functions import user_error_at

WINDOWS, TIMERS = "onceflow.windows", "onceflow.timers"
"""The states with the windows that were processed and are not over, and with timers of windows."""
_WINDOWS, _TIMERS = "_windows_of_key", "_timers_of_key"
_WHOLE = WindowBounds(0, 0)
"""Stands for the one window of a key that has no bounds."""


@dataclass(frozen=True, slots=True)
class TimerOfWindow:
    """A timer, and the window that it belongs to."""

    time: int
    is_clock: bool
    start: int
    end: int


class FiredWindows(KeyedProcess[Any, Any, Any], StandIn):
    """Calls a WindowProcess of the user's with what its windows send: (key, bounds, records)."""

    _windows_of_key: MapState[WindowBounds, int]
    """The windows of which process() was called, and when they are over."""
    _timers_of_key: MapState[TimerOfWindow, bool]

    def __init__(
        self, uid: str, user: WindowProcess[Any, Any, Any], is_all: bool, lateness_ms: int | None
    ) -> None:
        """`is_all`: there is no key. `lateness_ms`: how long after its end a window may fire again; None:
        a window fires once, and is over then."""
        self._uid = uid
        self.user: Any = user
        self._is_all = is_all
        self._lateness_ms = lateness_ms
        self._ctx: Any = None
        self._window = _WHOLE
        self._bound: list[WindowState[Any]] = []
        self._is_told = type(user).clear is not WindowProcess.clear
        self._has_timers = type(user).on_timer is not WindowProcess.on_timer

    @property
    def declared(self) -> Mapping[str, Any]:
        """What the user's class declares; states of windows as maps."""
        user = {
            name: value for owner in reversed(type(self.user).__mro__) for name, value in vars(owner).items()
        }
        own: dict[str, Any] = {_WINDOWS: MapState(WINDOWS, WindowBounds, int)} if self._remembers else {}
        own |= {_TIMERS: MapState(TIMERS, TimerOfWindow, bool)} if self._has_timers else {}
        return {n: v._of_windows if isinstance(v, WindowState) else v for n, v in user.items()} | own

    @property
    def _states(self) -> dict[str, WindowState[Any]]:
        attributes = ((name, getattr(type(self.user), name, None)) for name in dir(type(self.user)))
        return {name: value for name, value in attributes if isinstance(value, WindowState)}

    @property
    def has_own_state(self) -> bool:
        """Whether something of the user's belongs to a window: state, or what clear() does."""
        return self._is_told or self._has_timers or bool(self._states)

    @property
    def _remembers(self) -> bool:
        """Whether it has to know which windows are not over."""
        return self.has_own_state and self._lateness_ms is not None

    def __setattr__(self, name: str, value: Any) -> None:
        """The operator binds states, which are the user's."""
        if not isinstance(value, State) or name in (_WINDOWS, _TIMERS):
            object.__setattr__(self, name, value)
        elif name in self._states:
            bound = copy.copy(self._states[name])
            bound._of_windows = cast(MapState[WindowBounds, Any], value)
            setattr(self.user, name, bound)
            self._bound.append(bound)
        else:
            setattr(self.user, name, value)

    def open(self, ctx: FunctionContext) -> None:
        if (opens := method_of(self.user, "open")) is not None:
            opens(ctx)

    def close(self) -> None:
        if (closes := method_of(self.user, "close")) is not None:
            closes()

    def process(self, fired: tuple[Any, WindowBounds | None, list[Any]], ctx: Ctx, /) -> Iterable[Any]:
        _, window, records = fired
        self._enter(window or _WHOLE, ctx)
        made = self._call(self.user.process, self._key(ctx), window, records)
        if window is not None and self.has_own_state:
            self._remember(window, ctx)
        return made

    def on_timer(self, fired: Timer, ctx: Ctx, /) -> Iterable[Any]:
        made: list[Any] = []
        if self._has_timers:
            due = [t for t, _ in self._timers_of_key.items() if self._is_due(t, fired)]
            for timer in sorted(due, key=lambda timer: (timer.start, timer.end)):
                self._timers_of_key.remove(timer)
                window = WindowBounds(timer.start, timer.end)
                self._enter(window, ctx)
                given = None if window == _WHOLE else window
                made += self._call(self.user.on_timer, fired, self._key(ctx), given)
        if self._remembers and not fired.is_processing_time:
            windows = sorted(self._windows_of_key.items(), key=lambda entry: (entry[0].start, entry[0].end))
            for window in [window for window, over_ms in windows if over_ms <= fired.time]:
                self._windows_of_key.remove(window)
                self._end(window, ctx)
        return made

    def _remember(self, window: WindowBounds, ctx: Ctx) -> None:
        if self._lateness_ms is None:
            self._end(window, ctx)
        elif window not in self._windows_of_key:
            over_ms = min(window.max_timestamp + self._lateness_ms, WATERMARK_MAX_MS)
            self._windows_of_key.put(window, over_ms)
            ctx.timers.event_time(over_ms)

    def _end(self, window: WindowBounds, ctx: Ctx) -> None:
        self._enter(window, ctx)
        if self._is_told:
            self._call(self.user.clear, window)
        for state in self._bound:
            state.clear()
        if self._has_timers:
            for timer, _ in self._timers_of_key.items():
                if (timer.start, timer.end) == (window.start, window.end):
                    self._timers_of_key.remove(timer)

    def _enter(self, window: WindowBounds, ctx: Ctx) -> None:
        self._window, self._ctx = window, ctx
        for state in self._bound:
            state._window = window

    def _call(self, method: Callable[..., Any], *arguments: Any) -> list[Any]:
        """All that it yields. An error names the user's method, and the window."""
        try:
            return list(method(*arguments, WindowCtx(self._ctx, self)) or ())
        except Exception as error:
            window = "the window" if self._window == _WHOLE else f"the window {self._window}"
            raise user_error_at(self._uid, method, error, f"{window} of key {self._ctx.key!r}") from error

    def _key(self, ctx: Ctx) -> Any:
        return None if self._is_all else ctx.key

    @staticmethod
    def _is_due(timer: TimerOfWindow, fired: Timer) -> bool:
        return timer.time == fired.time and timer.is_clock == fired.is_processing_time

    # --- Timers of the current window ---

    def set(self, time_ms: int, is_clock: bool) -> None:
        name = type(self.user).__name__
        if not self._has_timers:
            raise UserFunctionError(
                f"operator {self._uid!r}: {name} sets a timer and has no on_timer(): define "
                "on_timer(self, fired, key, window, ctx)"
            )
        if self._window != _WHOLE and self._lateness_ms is None:
            raise UserFunctionError(
                f"operator {self._uid!r}: {name} sets a timer of a window that fires once, and is over then: "
                "give the windows a trigger or allowed_lateness(...)"
            )
        timers = self._ctx.timers
        (timers.processing_time if is_clock else timers.event_time)(time_ms)
        self._timers_of_key.put(self._timer(time_ms, is_clock), True)

    def delete(self, time_ms: int, is_clock: bool) -> None:
        if self._has_timers:
            self._timers_of_key.remove(self._timer(time_ms, is_clock))

    def _timer(self, time_ms: int, is_clock: bool) -> TimerOfWindow:
        return TimerOfWindow(time_ms, is_clock, self._window.start, self._window.end)
