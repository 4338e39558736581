"""CallsInFlight: which calls are made when, and which of them are through. Pure: it calls nobody.

A call waits, is asked, perhaps again after a while, is answered, and is sent: its rows go on. What has not
been sent is in flight: it is what a checkpoint holds, and what watermarks wait for. (Flink's
AsyncWaitOperator, whose queue is ordered, or not between two watermarks.)
"""

from __future__ import annotations

import heapq
from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from onceflow.runtime.records import Records


@dataclass(slots=True, eq=False)
class Call:
    """A call for one row of a batch."""

    records: Records
    row: int
    argument: Any
    number: int = -1
    """Its place in the order in which the rows came."""
    attempt: int = 0
    """How often it has been asked."""
    began_ms: float = 0.0
    """When it was asked for the first time."""
    is_answered: bool = False
    result: Any = None
    error: Exception | None = None


class CallsInFlight:
    """The calls of one subtask of an operator."""

    def __init__(self, capacity: int, is_ordered: bool, timeout_ms: float | None) -> None:
        """`capacity`: how many calls are under way at a time, at most. `is_ordered`: calls are sent in the
        order in which they came. `timeout_ms`: for a call with all its attempts; None: it may take for
        ever."""
        self._capacity = capacity
        self._is_ordered = is_ordered
        self._timeout_ms = timeout_ms
        self._unsent: dict[int, Call] = {}
        """All that is in flight, in order."""
        self._waiting: deque[Call] = deque()
        self._asked = 0
        """How many have been asked and not been sent."""
        self._next_number = 0
        self._answered: deque[Call] = deque()
        """In the order in which they are sent, if that is not the order in which they came."""
        self._order: deque[Call] = deque()
        """All that is in flight, if it is."""
        self._deadlines: deque[tuple[float, Call]] = deque()
        self._again: list[tuple[float, int]] = []
        """Calls that are asked again, as a heap: (when, number)."""
        self._held_from: int | None = None
        """Calls from this number on came behind an element that has not gone on yet."""
        self._before_hold = 0
        """How many that came before it are in flight."""

    def __len__(self) -> int:
        """How many are in flight."""
        return len(self._unsent)

    @property
    def is_full(self) -> bool:
        """More are here than may be asked at a time: nothing more should come."""
        return len(self._unsent) > self._capacity

    def add(self, calls: Iterable[Call]) -> None:
        """These came, in this order."""
        for call in calls:
            call.number = self._next_number
            self._next_number += 1
            self._unsent[call.number] = call
            self._waiting.append(call)
            if self._is_ordered:
                self._order.append(call)

    def to_ask(self, now_ms: float) -> list[Call]:
        """The calls that are to be made now: those whose pause is over, and those for which there is room."""
        found: list[Call] = []
        while self._again and self._again[0][0] <= now_ms:
            call = self._unsent.get(heapq.heappop(self._again)[1])
            if call is not None and not call.is_answered:
                found.append(call)
        waiting = self._waiting
        while waiting and self._asked < self._capacity:
            call = waiting.popleft()
            call.began_ms = now_ms
            self._asked += 1
            if self._timeout_ms is not None:
                self._deadlines.append((now_ms + self._timeout_ms, call))
            found.append(call)
        for call in found:
            call.attempt += 1
        return found

    def find(self, number: int, attempt: int) -> Call | None:
        """The call of which this attempt has been answered; None: nobody waits for it any more."""
        call = self._unsent.get(number)
        return None if call is None or call.is_answered or call.attempt != attempt else call

    def ask_again(self, call: Call, at_ms: float) -> None:
        """This attempt was none: there will be another one."""
        heapq.heappush(self._again, (at_ms, call.number))

    def answer(self, call: Call, result: Any, error: Exception | None) -> None:
        """This is what it came to."""
        assert not call.is_answered, "a call is answered once"
        call.is_answered, call.result, call.error = True, result, error
        if not self._is_ordered:
            self._answered.append(call)

    def expired(self, now_ms: float) -> list[Call]:
        """Calls that have not been answered in time. Each is given once."""
        found: list[Call] = []
        deadlines = self._deadlines
        while deadlines and (deadlines[0][0] <= now_ms or deadlines[0][1].is_answered):
            call = deadlines.popleft()[1]
            if not call.is_answered:
                found.append(call)
        return found

    @property
    def has_ready(self) -> bool:
        """Whether `ready` has something to give."""
        line = self._order if self._is_ordered else self._answered
        if self._held_from is None or not line:
            return bool(line) and line[0].is_answered
        if self._is_ordered:
            return line[0].is_answered and line[0].number < self._held_from
        return any(call.number < self._held_from for call in line)

    def ready(self, count: int) -> list[Call]:
        """The next calls to be sent, at most so many. They are in flight no more."""
        found: list[Call] = []
        line = self._order if self._is_ordered else self._answered
        later: list[Call] = []
        while line and len(found) < count:
            call = line[0]
            if self._is_ordered and not call.is_answered:
                break
            if self._held_from is not None and call.number >= self._held_from:
                if self._is_ordered:
                    break
                later.append(line.popleft())
                continue
            found.append(line.popleft())
        line.extendleft(reversed(later))
        for call in found:
            self._send(call)
        return found

    def _send(self, call: Call) -> None:
        del self._unsent[call.number]
        self._asked -= 1
        if self._held_from is not None and call.number < self._held_from:
            self._before_hold -= 1

    def in_order(self) -> list[Call]:
        """All that is in flight, in the order in which it came."""
        return list(self._unsent.values())

    @property
    def wake_at_ms(self) -> float | None:
        """When the next pause or the next deadline is over; None: no time is waited for."""
        times = [self._again[0][0]] if self._again else []
        while self._deadlines and self._deadlines[0][1].is_answered:
            self._deadlines.popleft()
        if self._deadlines:
            times.append(self._deadlines[0][0])
        return min(times, default=None)

    # --- What must not overtake rows: watermarks, and that a channel is idle or has ended

    def begin_hold(self) -> None:
        """An element comes that goes on when all that is in flight now has been sent, and before all that
        comes from now on."""
        self._held_from = self._next_number
        self._before_hold = len(self._unsent)

    @property
    def holds(self) -> bool:
        """Whether such an element has to wait."""
        return self._held_from is not None and self._before_hold > 0

    def end_hold(self) -> None:
        """It has gone on."""
        assert not self.holds, "it would overtake rows that came before it"
        self._held_from = None
