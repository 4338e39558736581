"""Timers: what a function of the user's sets timers with."""

from __future__ import annotations

from operator import index
from typing import Any

from onceflow.runtime.errors import UserFunctionError
from onceflow.runtime.records import WATERMARK_MAX_MS, WATERMARK_MIN_MS
from onceflow.runtime.state.row_values import Cursor
from onceflow.runtime.state.timers import KeyTimers


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
        row = index(self._cursor.row)
        if not self._has_event_time:
            raise UserFunctionError(
                f"operator {self._uid!r}: an event-time timer needs event time: "
                "pass watermarks= to the source"
            )
        self._timers.add(row, _ms(time_ms))

    def delete_event_time(self, time_ms: int) -> None:
        """Take a timer back; nothing happens if there is none."""
        self._timers.delete(index(self._cursor.row), _ms(time_ms))

    def processing_time(self, time_ms: int) -> None:
        """Call on_timer when the clock shows this time (see `ctx.processing_time`), or soon after; at once if
        it does already, also if it did while the job was down. At the end of a bounded input the timers that
        are left are called then, once (`ctx.is_end_of_input`), and new ones go nowhere: nobody waits for the
        clock any more."""
        self._clock_timers.add(index(self._cursor.row), _ms(time_ms))

    def delete_processing_time(self, time_ms: int) -> None:
        """Take a timer back; nothing happens if there is none."""
        self._clock_timers.delete(index(self._cursor.row), _ms(time_ms))


def _ms(time_ms: Any) -> int:
    if isinstance(time_ms, bool) or not hasattr(time_ms, "__index__"):
        raise TypeError(f"a timer's time is an int in ms since the epoch, not {time_ms!r}")
    value = int(time_ms)
    if not WATERMARK_MIN_MS < value <= WATERMARK_MAX_MS:
        raise OverflowError(f"timer at {value}: it does not fit 64 bits")
    return value
