"""Pure: ChannelBound, how many bytes a channel may hold so that its receiver is soon through them.

What waits in a channel is what a barrier waits behind. A megabyte is gone in milliseconds where records are
summed, and takes half a minute where a function needs a millisecond for each. So the bound follows what the
receiver really takes (Flink's buffer debloating, FLIP-183), between a batch or so and the most that pays.
"""

from __future__ import annotations

FIRST_BYTES = 64 << 10
"""The bound until it is known how fast the receiver is."""
BYTES_MIN = 1 << 10
_WINDOW_MS = 50.0
"""For so long at least what is taken is counted before the bound changes."""
_FIRST_MS = 5.0
"""After so long a receiver of which nothing is known yet is taken at its word if it is fast: what is sent
until then is small, and costs a fast job's start."""


class ChannelBound:
    """One channel's; called by the receiver's thread with times in ms.

    Only time in which the receiver was at work is counted: from one element to the next, if the channel had
    something to take or was full, or to the moment when it asks for the next and there is none. An idle
    channel says nothing about its receiver, but a sender that sends half a bound at a time has to hear that
    it is soon through, or it would go on so for ever. What waits for a receiver that shares its thread with
    others waits for those too, so it is elapsed time that counts, not the receiver's own.
    """

    def __init__(self, most: int, goal_ms: float | None) -> None:
        """`most`: the bound of a receiver that is fast. `goal_ms`: how long what waits may take; None: the
        bound is the most."""
        self._most = most
        self._goal_ms = goal_ms
        self.bytes = most if goal_ms is None else min(FIRST_BYTES, most)
        """The bound now."""
        self._is_known = False
        self._is_counting = False
        self._began_ms = 0.0
        self._counted_ms = 0.0
        self._counted_bytes = 0
        self._last_bytes = 0

    @property
    def is_most(self) -> bool:
        """The receiver is fast, or nobody asks how fast it is."""
        return self.bytes >= self._most

    def on_taken(self, size: int, left: int, now_ms: float) -> None:
        """An element of this size was taken, and so many bytes are left. What was taken before is through."""
        if self._goal_ms is None:
            return
        if self._is_counting:
            self._count(now_ms, self._goal_ms)
        self._began_ms, self._last_bytes = now_ms, size
        self._is_counting = left > 0 or left + size >= self.bytes

    @property
    def is_at_work(self) -> bool:
        """Something was taken, and the receiver has not asked for more since: `on_empty` is of use."""
        return self._last_bytes > 0

    def on_empty(self, now_ms: float) -> None:
        """The receiver asked for an element, and there was none: it is through with the last one."""
        if self._goal_ms is None or not self._last_bytes:
            return
        self._count(now_ms, self._goal_ms)
        self._last_bytes, self._is_counting = 0, False

    def _count(self, now_ms: float, goal_ms: float) -> None:
        self._counted_ms += now_ms - self._began_ms
        self._counted_bytes += self._last_bytes
        if self._counted_ms >= (_WINDOW_MS if self._is_known else _FIRST_MS):
            wanted = self._counted_bytes / self._counted_ms * goal_ms
            if self._counted_ms >= _WINDOW_MS or wanted >= self._most:
                self._learn(wanted)

    def _learn(self, wanted: float) -> None:
        """Upwards at once, since a bound that is too low costs rate; downwards by halves."""
        bound = wanted if wanted >= self.bytes else (wanted + self.bytes) / 2
        self.bytes = int(max(min(BYTES_MIN, self._most), min(self._most, bound)))
        self._counted_ms, self._counted_bytes = 0.0, 0
        self._is_known = True
