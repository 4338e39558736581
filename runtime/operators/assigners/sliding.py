"""Sliding windows: which windows and which pane an event time belongs to.

Time is cut where any window begins or ends. What lies between two cuts is a pane: a row updates one pane,
and a window's result is made of its panes when it fires (Krishnamurthy et al., "On-the-Fly Sharing for
Streamed Aggregation", 2006).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from onceflow.runtime.durations import duration_ms
from onceflow.runtime.errors import OptionError
from onceflow.runtime.explained_calls import explained
from onceflow.runtime.operators.assigners.tumbling import check_event_time, size_and_offset_ms
from onceflow.runtime.records import Int64s


@dataclass(frozen=True, slots=True)
class Sliding:
    """Windows of `size_ms`, one every `slide_ms`: [offset + n * slide, offset + n * slide + size)."""

    size_ms: int
    slide_ms: int
    """How far apart windows begin: at most the size, so that every time has a window."""
    offset_ms: int = 0
    """How much later than the epoch windows begin: at least 0, less than the slide."""

    @property
    def title(self) -> str:
        """What a plan says of these windows."""
        return f"{self.size_ms} ms every {self.slide_ms} ms"

    @property
    def windows_max(self) -> int:
        """How many windows a row can be in."""
        return -(-self.size_ms // self.slide_ms)

    def starts(self, event_time: Int64s) -> Int64s:
        """The start of the last window that each row belongs to. Raises Fatal for a time whose windows
        would not fit 64 bits."""
        check_event_time(event_time, self.size_ms, 2 * self.size_ms + self.offset_ms)
        return self._last_starts(event_time)

    def pane_starts(self, event_time: Int64s) -> Int64s:
        """The start of each row's pane. Raises Fatal as `starts` does."""
        starts = self.starts(event_time)
        cut_ms = self.size_ms % self.slide_ms
        if cut_ms:  # a window that began earlier ends so long after this one began
            starts = np.where(event_time - starts >= cut_ms, starts + cut_ms, starts)
        return starts

    def last_ends(self, pane_starts: Int64s) -> Int64s:
        """The end of the last window that each pane is in."""
        return self._last_starts(pane_starts) + self.size_ms

    def first_end(self, after_ms: int) -> int:
        """The end of the first window that ends later than this."""
        last_end = (after_ms - self.offset_ms - self.size_ms) // self.slide_ms * self.slide_ms
        return last_end + self.slide_ms + self.offset_ms + self.size_ms

    def first_ends(self, after_ms: Int64s) -> Int64s:
        """The end of the first window that ends later than each of these times."""
        return self._last_starts(after_ms - self.size_ms) + self.slide_ms + self.size_ms

    def _last_starts(self, event_time: Int64s) -> Int64s:
        shifted = np.floor_divide(event_time - self.offset_ms, self.slide_ms)
        return np.asarray(shifted * self.slide_ms + self.offset_ms)


@explained
def sliding(size: str | int, slide: str | int, offset: str | int = 0) -> Sliding:
    """Windows of this size, a new one every `slide` ("10 s", or int ms), aligned to the epoch plus `offset`.

    A row counts in every window that contains it: with sliding("10 s", "1 s") in ten. Raises OptionError
    for what is not a duration, and for a slide longer than the size, which would leave rows without a window.
    """
    slide_ms = duration_ms(slide, "slide")
    if slide_ms < 1:
        raise OptionError(f"slide={slide!r}: windows begin at least 1 ms apart")
    size_ms, offset_ms = size_and_offset_ms(size, offset)
    if slide_ms > size_ms:
        raise OptionError(
            f"slide={slide!r} is longer than size={size!r}: rows between two windows would be in none"
        )
    return Sliding(size_ms, slide_ms, offset_ms % slide_ms)
