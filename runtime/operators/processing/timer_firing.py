"""TimerFiring: calls on_timer for timers that are due, in the order of their times, a piece at a time."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from heapq import heappop
from typing import Any

import numpy as np

from onceflow.runtime.clock import Clock
from onceflow.runtime.errors import UserFunctionError
from onceflow.runtime.operators.processing.keyed_process import AnyProcess, Ctx
from onceflow.runtime.operators.processing.process_output import Made, ProcessOutput
from onceflow.runtime.records import WATERMARK_MIN_MS, Indices
from onceflow.runtime.state.row_values import Cursor
from onceflow.runtime.state.timers import Due, KeyTimers, Timer
from onceflow.runtime.types.user_functions import function_name, user_error_at

PIECE_MS = 20.0
"""How long on_timer is called at a time, but for the call that is going on; a barrier may wait for it."""
POPPED_AT_ONCE = 1 << 10
CHAINED_TIMERS_MAX = 1_000_000


@dataclass(slots=True)
class _Piece:
    """What the calls of one piece gave."""

    timers: KeyTimers
    event_time_of: Callable[[int], int | None]
    """From a timer's time to the event time of what on_timer yields for it."""
    is_clock: bool
    count: float
    over_ms: float
    """The piece ends after so many timers and at this time, but not in the middle of a call."""
    looked: int = 0
    fired: list[Timer] = field(default_factory=list)
    made: Made = field(default_factory=Made)


class TimerFiring:
    """One subtask's calls of on_timer. Between two pieces the timers that have not fired are alive."""

    def __init__(
        self,
        uid: str,
        process: AnyProcess,
        ctx: Ctx,
        cursor: Cursor,
        keys_of: Callable[[Indices], list[Any]],
        output: ProcessOutput,
        clock: Clock,
        chained_max: int,
    ) -> None:
        """`keys_of`: the keys of these rows, as the user sees them."""
        self._uid = uid
        self._on_timer = process.on_timer
        self._ctx = ctx
        self._cursor = cursor
        self._keys_of = keys_of
        self._output = output
        self._clock = clock
        self._chained_max = chained_max
        self._left = 0

    def begin(self, timers: KeyTimers) -> None:
        """The watermark has moved: so many event-time timers can be due, and no more than `chained_max`
        that those register."""
        self._left = len(timers) + self._chained_max

    def fire_events(self, timers: KeyTimers, until_ms: int, count: int) -> int:
        """Fire about so many event-time timers up to this time, the earliest. Returns how many were looked
        at; 0: none is due."""
        piece = _Piece(timers, lambda time: time, False, count, self._clock.monotonic_ms() + PIECE_MS)
        return self._fire(piece, until_ms)

    def fire_by_clock(
        self, timers: KeyTimers, until_ms: int, count: int, event_time_of: Callable[[int], int | None]
    ) -> int:
        """Do what `fire_events` does, with processing-time timers up to this time."""
        piece = _Piece(timers, event_time_of, True, count, self._clock.monotonic_ms() + PIECE_MS)
        return self._fire(piece, until_ms)

    def fire_of(self, timers: KeyTimers, rows: Indices) -> None:
        """Fire all event-time timers of these rows that are due, and those that they register meanwhile."""
        due = timers.due_of(set(rows.tolist()), self._ctx.watermark)
        if due:
            piece = _Piece(timers, lambda time: time, False, float("inf"), float("inf"))
            timers.watch(self._ctx.watermark)
            self._call(piece, due)
            self._send(piece)

    def _fire(self, piece: _Piece, until_ms: int) -> int:
        timers, due = piece.timers, Due()
        while not due and (due := timers.pop_due(until_ms, POPPED_AT_ONCE)):
            timers.watch(due[-1][0])
            self._call(piece, due)
        timers.put_back(due)
        self._send(piece)
        return piece.looked

    def _call(self, piece: _Piece, due: Due) -> None:
        """Call on_timer for these, a heap, and for those that it registers among them; leaves in it what was
        not looked at before the piece was over."""
        ctx, cursor, on_timer, timers = self._ctx, self._cursor, self._on_timer, piece.timers
        monotonic_ms, over_ms, event_time_of = self._clock.monotonic_ms, piece.over_ms, piece.event_time_of
        rows = sorted({row for _, row in due})
        keys = dict(zip(rows, self._keys_of(np.array(rows)), strict=True))
        while due:
            if piece.looked and (piece.looked >= piece.count or monotonic_ms() >= over_ms):
                return  # never before the first: 0 would say that none is due
            time, row = heappop(due)
            piece.looked += 1
            if not timers.is_alive(time, row):
                continue
            timer = Timer(time, piece.is_clock)
            cursor.row, ctx.key, ctx.event_time = row, keys[row], event_time_of(time)
            cursor.event_ms = cursor.passed_ms if piece.is_clock else max(time, cursor.passed_ms)
            piece.fired.append(timer)
            try:
                results = on_timer(timer, ctx)
                if results is not None:
                    piece.made.add(results, len(piece.fired) - 1, ctx.event_time)
            except Exception as error:
                place = f"the timer at {time} of key {ctx.key!r}"
                raise user_error_at(self._uid, on_timer, error, place) from error
            timers.take_early(due)
            if not piece.is_clock:
                self._count()

    def _send(self, piece: _Piece) -> None:
        piece.timers.watch(WATERMARK_MIN_MS)
        self._output.send(piece.made, self._ctx.sent, lambda n: f"the timer at {piece.fired[n].time}")

    def _count(self) -> None:
        self._left -= 1
        if self._left < 0:
            ctx, name = self._ctx, function_name(self._on_timer)
            raise UserFunctionError(
                f"operator {self._uid!r}: {name} for key {ctx.key!r} registers timer after timer up to the "
                f"watermark {ctx.watermark}, without end; it must stop at the end of the input "
                "(ctx.is_end_of_input)"
            )
