"""WindowProcess: the user's code for whole windows, with state and timers of the window, and of the key."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Generic, Protocol, TypeVar, overload

from onceflow.runtime.errors import UserFunctionError
from onceflow.runtime.explained_calls import explained
from onceflow.runtime.operators.declared import SideOutput
from onceflow.runtime.operators.processing.keyed_process import Ctx
from onceflow.runtime.operators.triggers.bounds import WindowBounds
from onceflow.runtime.state.handles import MapState
from onceflow.runtime.state.kept_objects import CodecName
from onceflow.runtime.state.timers import Timer

KeyT = TypeVar("KeyT")
In = TypeVar("In")
Out = TypeVar("Out")
V = TypeVar("V")
D = TypeVar("D")
T = TypeVar("T")


class SetsTimers(Protocol):
    """What a WindowCtx sets timers with."""

    def set(self, time_ms: int, is_clock: bool) -> None: ...

    def delete(self, time_ms: int, is_clock: bool) -> None: ...


@explained
class WindowState(Generic[V]):
    """One value for each window of each key, declared in a WindowProcess: `sent = WindowState("sent", int)`.

    It is there until the window is over. `former_names`: what the state was called before. `codec`: how its
    values are kept, as of a ValueState.
    """

    def __init__(
        self,
        name: str,
        value_type: type[V],
        former_names: Iterable[str] = (),
        codec: CodecName = "columns",
    ) -> None:
        self.name = name
        self._of_windows: MapState[WindowBounds, V] = MapState(
            name, WindowBounds, value_type, former_names=former_names, codec=codec
        )
        self._window: WindowBounds | None = None

    @overload
    def get(self) -> V | None: ...
    @overload
    def get(self, default: V | D) -> V | D: ...
    def get(self, default: Any = None) -> Any:
        """The current window's value, or `default` if there is none."""
        return self._of_windows.get(self._here, default)

    def set(self, value: V) -> None:
        """Remember this value for the current window."""
        self._of_windows.put(self._here, value)

    def clear(self) -> None:
        """Forget the current window's value."""
        self._of_windows.remove(self._here)

    @property
    def _here(self) -> WindowBounds:
        if self._window is None:
            raise UserFunctionError(
                f"state {self.name!r} is one of a window: use it in process() and clear() of a WindowProcess"
            )
        return self._window


class WindowTimers:
    """The timers of the current window: of each kind at most one for each time. They are kept in checkpoints,
    and go when the window does."""

    def __init__(self, sets: SetsTimers) -> None:
        self._sets = sets

    def event_time(self, time_ms: int) -> None:
        """Call on_timer when the watermark has reached this time, if the window is not over by then."""
        self._sets.set(time_ms, False)

    def delete_event_time(self, time_ms: int) -> None:
        """Take a timer back; nothing happens if there is none."""
        self._sets.delete(time_ms, False)

    def processing_time(self, time_ms: int) -> None:
        """Call on_timer when the clock shows this time, if the window is not over by then."""
        self._sets.set(time_ms, True)

    def delete_processing_time(self, time_ms: int) -> None:
        """Take a timer back; nothing happens if there is none."""
        self._sets.delete(time_ms, True)


class WindowCtx:
    """What the methods of a WindowProcess get besides. Good during the call only."""

    def __init__(self, ctx: Ctx, timers: SetsTimers) -> None:
        self._ctx = ctx
        self.timers = WindowTimers(timers)
        """The timers of the current window."""

    @property
    def watermark(self) -> int:
        """How far event time had come, in ms, before what has fired now."""
        return self._ctx.watermark

    @property
    def processing_time(self) -> int:
        """What the clock of this machine shows, in ms since the epoch."""
        return self._ctx.processing_time

    def emit(self, to: SideOutput[T], record: T) -> None:
        """Send a record to a side output."""
        self._ctx.emit(to, record)


class WindowProcess(Generic[KeyT, In, Out]):
    """The user's class for `windows.process(...)`: process() for each window that fires, clear() when it is
    over.

    WindowProcess[K, I, O] names the types of key, records in and records out (None: side outputs only). A
    WindowState and timers belong to the current window; a ValueState, MapState, ListState and the like to
    the key, for all its windows. One object serves all keys of a subtask: what it keeps outside of declared
    state is lost at a restart.
    """

    def process(
        self, key: KeyT, window: WindowBounds | None, records: list[In], ctx: WindowCtx, /
    ) -> Iterable[Out] | None:
        """Called for each window that fires, again if it fires again. Yields records, or returns an iterable
        or None; they get the event time of the window. `window` is None where it has no bounds."""
        raise NotImplementedError

    def on_timer(
        self, fired: Timer, key: KeyT, window: WindowBounds | None, ctx: WindowCtx, /
    ) -> Iterable[Out] | None:
        """Called when a timer of the window is due. There are no records: keep what is needed in a
        WindowState. What it yields gets the time of the timer, as in a KeyedProcess."""
        return None

    def clear(self, window: WindowBounds, ctx: WindowCtx, /) -> None:
        """Called when a window of which process() was called is over for good: it has fired, and its lateness
        has passed. Its WindowState is still there, and is forgotten behind the call. State of the key stays;
        the records are gone."""
        return None
