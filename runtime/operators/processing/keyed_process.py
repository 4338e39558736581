"""KeyedProcess: the user's code with state and timers, one key at a time."""

from __future__ import annotations

import typing
from collections.abc import Iterable, Mapping
from typing import Any, Generic, TypeVar

import pyarrow as pa

from onceflow.runtime.clock import Clock
from onceflow.runtime.errors import GraphError, UserFunctionError
from onceflow.runtime.records import WATERMARK_MAX_MS, WATERMARK_MIN_MS
from onceflow.runtime.state.handles import State
from onceflow.runtime.state.row_values import Cursor
from onceflow.runtime.state.timers import KeyTimers, Timer
from onceflow.runtime.types.columns_of_records import RecordWriter
from onceflow.runtime.types.record_types import describe_record

KeyT = TypeVar("KeyT")
In = TypeVar("In")
Right = TypeVar("Right")
Out = TypeVar("Out")
T = TypeVar("T")


class SideOutput(Generic[T]):
    """A second output of a KeyedProcess, declared in the class: `hot = SideOutput("hot", Fire)`.

    `ctx.emit(self.hot, Fire(...))` sends a record there; `stream.side_output("hot")` is its stream.
    """

    def __init__(self, name: str, record_type: type[T]) -> None:
        if not name:
            raise GraphError("a side output needs a name")
        self.name = name
        self.record_type = record_type
        self.writer = RecordWriter.of(describe_record(record_type))
        self.schema: pa.Schema = self.writer.schema


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


AnyProcess = KeyedProcess[Any, Any, Any] | KeyedCoProcess[Any, Any, Any, Any]


class Timers:
    """The timers of the current key: of each kind at most one for each time; kept in checkpoints."""

    def __init__(
        self, uid: str, timers: KeyTimers, clock_timers: KeyTimers, cursor: Cursor, has_event_time: bool
    ) -> None:
        self._uid = uid
        self._timers = timers
        self._clock_timers = clock_timers
        self._cursor = cursor
        self._has_event_time = has_event_time

    def event_time(self, time_ms: int) -> None:
        """Call on_timer when the watermark has reached this time; if it has already, at its next step."""
        if not self._has_event_time:
            raise UserFunctionError(
                f"operator {self._uid!r}: an event-time timer needs event time: "
                "pass watermarks= to the source"
            )
        self._timers.add(self._cursor.row, _ms(time_ms))

    def delete_event_time(self, time_ms: int) -> None:
        """Take a timer back; nothing happens if there is none."""
        self._timers.delete(self._cursor.row, _ms(time_ms))

    def processing_time(self, time_ms: int) -> None:
        """Call on_timer when the clock shows this time (see `ctx.processing_time`), or soon after; at once if
        it does already, also if it did while the job was down. At the end of a bounded input the timers that
        are left are called then, once (`ctx.is_end_of_input`), and new ones go nowhere: nobody waits for the
        clock any more."""
        self._clock_timers.add(self._cursor.row, _ms(time_ms))

    def delete_processing_time(self, time_ms: int) -> None:
        """Take a timer back; nothing happens if there is none."""
        self._clock_timers.delete(self._cursor.row, _ms(time_ms))


class Ctx:
    """What process() and on_timer() get besides the record. Good during the call only."""

    def __init__(self, timers: Timers, sides: Mapping[str, SideOutput[Any]], clock: Clock) -> None:
        self._clock = clock
        self.timers = timers
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


def _ms(time_ms: Any) -> int:
    if isinstance(time_ms, bool) or not hasattr(time_ms, "__index__"):
        raise TypeError(f"a timer's time is an int in ms since the epoch, not {time_ms!r}")
    value = int(time_ms)
    if not WATERMARK_MIN_MS < value <= WATERMARK_MAX_MS:
        raise OverflowError(f"timer at {value}: it does not fit 64 bits")
    return value


def declared_types(process: Any, base: type) -> list[Any]:
    """The types that a class declares for this generic base, as in `class Alert(KeyedProcess[str, Reading,
    Fire])`; None where it says nothing, empty if it says nothing at all."""
    for owner in type(process).__mro__:
        for declared in getattr(owner, "__orig_bases__", ()):
            if typing.get_origin(declared) is base:
                return [None if isinstance(a, TypeVar) else a for a in typing.get_args(declared)]
    return []


def declared_states(process: AnyProcess, uid: str) -> dict[str, State]:
    """The states declared in the class, by attribute. Raises GraphError if two have the same name."""
    found = {name: value for name, value in _attributes(process).items() if isinstance(value, State)}
    _check_names(uid, "state", [state.name for state in found.values()])
    return found


def declared_sides(process: AnyProcess, uid: str) -> dict[str, SideOutput[Any]]:
    """The side outputs declared in the class, by name."""
    found = [value for value in _attributes(process).values() if isinstance(value, SideOutput)]
    _check_names(uid, "side output", [side.name for side in found])
    return {side.name: side for side in found}


def _attributes(process: AnyProcess) -> dict[str, Any]:
    attributes: dict[str, Any] = {}
    for owner in reversed(type(process).__mro__):
        attributes |= vars(owner)
    return attributes


def _check_names(uid: str, what: str, names: list[str]) -> None:
    for name in names:
        if not name or names.count(name) > 1:
            raise GraphError(
                f"operator {uid!r}: two {what}s are called {name!r}" if name else f"a {what} has no name"
            )
