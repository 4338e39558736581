"""CallWatch: finds a call of the user's function that does not come back, and what it was called with.

Nothing is noted while records flow. Once a second another thread looks whether the slot's thread has
taken a step since; if not, its stack tells which of our loops over a user's function it is in, and the
loop's own variables tell the row. A batch may take as long as it likes, as long as its rows get on.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from types import CodeType, FrameType
from typing import Any

from onceflow.runtime.functions.lives import FunctionLives
from onceflow.runtime.operators import stateless
from onceflow.runtime.operators.failed_records import call_or_set_aside
from onceflow.runtime.operators.map_batches import MapBatches
from onceflow.runtime.operators.processing.keyless_process import KeylessOperator
from onceflow.runtime.operators.processing.process import ProcessOperator
from onceflow.runtime.operators.processing.timer_firing import TimerFiring
from onceflow.runtime.operators.processing.watermark_calls import WatermarkCalls
from onceflow.runtime.operators.windows import reduce_values, window_values
from onceflow.runtime.records import Records
from onceflow.runtime.types.user_functions import function_name, origin_of, shown_record


@dataclass(frozen=True, slots=True)
class UserCall:
    """A call of the user's function. Equal to what another look finds, as long as it has not come back."""

    uid: str
    function: str
    place: str
    """On what: `the record in events-3 at offset 17, Purchase(user='u1', ...)`, a timer, a batch."""
    row: int = 0
    record: str = ""
    """Where the record came from; "" if it is not known."""
    may_last: bool = False
    """It is shown, and not ended: an open() may load what is large."""

    def describe(self, lasted_ms: float) -> str:
        """One sentence for people: whose call it is, how long it has lasted, and on what."""
        since = f"for {lasted_ms / 1000:.0f} s"
        return f"operator {self.uid!r}: {self.function} has been in one call {since}, on {self.place}"

    @property
    def fingerprint(self) -> str:
        """What it has in common with a call that hangs in a later attempt."""
        return f"operator {self.uid!r}: {self.function} hangs {self.record}"


class CallWatch:
    """Notices a call of the user's that does not come back, on a slot's thread. Another thread calls it,
    about every `pause_ms`."""

    def __init__(self, stack: Callable[[], FrameType | None], pause_ms: float) -> None:
        self._stack = stack
        self._pause_ms = pause_ms
        self._seen: tuple[int, UserCall | None] = (-1, None)
        self._looked_ms = 0.0
        self.lasted_ms = 0.0
        """How long the call that `look` gave last has been seen. A process that was frozen and goes on did
        not look meanwhile, so that does not count."""

    def look(self, steps: int, now_ms: float) -> UserCall | None:
        """The call that the slot's thread is in, if it has taken no step since the last look. `steps`: how
        many it has taken so far."""
        call = find_user_call(self._stack()) if steps == self._seen[0] else None
        if call is not None and call == self._seen[1]:
            self.lasted_ms += min(now_ms - self._looked_ms, 2 * self._pause_ms)
        else:
            self.lasted_ms = 0.0
        self._seen, self._looked_ms = (steps, call), now_ms
        return call


def stack_of(thread_id: int) -> Callable[[], FrameType | None]:
    """The innermost frame of a thread of this process, each time it is asked for; None: it has ended."""
    return lambda: sys._current_frames().get(thread_id)


def find_user_call(frame: FrameType | None) -> UserCall | None:
    """The innermost call of a user's function on this stack; None: there is none."""
    while frame is not None:
        describe = _LOOPS.get(frame.f_code)
        if describe is not None:
            try:
                return describe(frame.f_locals)
            except (KeyError, IndexError):  # just before the loop, or just behind it
                return None
        frame = frame.f_back
    return None


def current_origin() -> str:
    """Where the record came from for which this thread is in a call of a user's function, as in `events-3 at
    offset 17`; "" if it is in none, or that is not known."""
    call = find_user_call(sys._getframe())
    return "" if call is None else call.record


# --- Our loops over the user's functions ---------------------------------------------------------------

_Locals = Mapping[str, Any]


def _on_row(
    uid: str, fn: Callable[..., Any], records: Records | None, row: int, rows: Sequence[Any]
) -> UserCall:
    place = shown_record(records, row, rows[row])
    return UserCall(uid, function_name(fn), place, row, origin_of(records, row))


def _in_open(at: _Locals) -> UserCall:
    context = at["context"]
    return UserCall(context.uid, function_name(at["life"].open), at["place"], may_last=True)


def _in_each(at: _Locals) -> UserCall:
    return _on_row(at["uid"], at["fn"], at["records"], len(at["results"]), at["rows"])


def _in_each_or_aside(at: _Locals) -> UserCall:
    row = at["before"] + len(at["results"])
    fn = at["fn"]
    fn = fn.args[0] if isinstance(fn, partial) else fn  # of a filter
    return _on_row(at["failed"].uid, fn, at["records"], row, at["rows"])


def _in_flat_map(at: _Locals) -> UserCall:
    return _on_row(at["self"]._uid, at["fn"], at["records"], len(at["ends"]), at["rows"])


def _in_map_batches(at: _Locals) -> UserCall:
    operator = at["self"]
    return UserCall(operator._uid, function_name(operator._fn), f"a batch of {len(at['records'])} records")


def _in_reduce(at: _Locals) -> UserCall:
    return _on_row(at["uid"], at["fn"], at["records"], at["n"], at["typed"])


def _in_add(at: _Locals) -> UserCall:
    return _on_row(at["self"]._uid, at["add"], at["batch"].records, at["n"], at["typed"])


def _in_merge(at: _Locals) -> UserCall:
    return UserCall(at["self"]._uid, function_name(at["merge"]), f"the accumulator {_shown(at['more'])}")


def _in_get_result(at: _Locals) -> UserCall:
    shown = _shown(at["current"])
    return UserCall(at["self"]._uid, function_name(at["get_result"]), f"the accumulator {shown}")


def _in_process(at: _Locals) -> UserCall:
    return _on_row(at["self"]._config.uid, at["process"], at["records"], at["n"], at["typed"])


def _in_on_timer(at: _Locals) -> UserCall:
    place = f"the timer at {at['time']} of key {at['ctx'].key!r}"
    return UserCall(at["self"]._uid, function_name(at["on_timer"]), place, len(at["piece"].fired))


def _in_on_watermark(at: _Locals) -> UserCall:
    place = f"the watermark {at['ctx'].watermark}"
    return UserCall(at["self"]._uid, function_name(at["on_watermark"]), place)


def _shown(value: object) -> str:
    return shown_record(None, 0, value).removeprefix("the record ")


_LOOPS: Mapping[CodeType, Callable[[_Locals], UserCall]] = {
    FunctionLives.open.__code__: _in_open,
    stateless.call_each.__code__: _in_each,
    stateless.FlatMapRecords.__call__.__code__: _in_flat_map,
    MapBatches._call.__code__: _in_map_batches,
    call_or_set_aside.__code__: _in_each_or_aside,
    reduce_values.reduce_each.__code__: _in_reduce,
    reduce_values.ReduceValues._merge.__code__: _in_merge,
    window_values.UserAggregate.update.__code__: _in_add,
    window_values.UserAggregate._merge.__code__: _in_merge,
    window_values.UserAggregate.results.__code__: _in_get_result,
    ProcessOperator._process_each.__code__: _in_process,
    KeylessOperator._process_each.__code__: _in_process,
    TimerFiring._call.__code__: _in_on_timer,
    WatermarkCalls.call.__code__: _in_on_watermark,
}
"""How the local variables of a loop, found by its code, tell the call. Reading them costs it nothing."""
