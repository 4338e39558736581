"""Tumbling windows: which window an event time belongs to."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from onceflow.runtime.durations import duration_ms
from onceflow.runtime.errors import Fatal, OptionError
from onceflow.runtime.explained_calls import explained
from onceflow.runtime.records import WATERMARK_MAX_MS, WATERMARK_MIN_MS, Int64s


@dataclass(frozen=True, slots=True)
class Tumbling:
    """Windows of `size_ms`, one after the other: [offset + n * size, offset + (n + 1) * size)."""

    size_ms: int
    offset_ms: int = 0
    """How much later than the epoch windows begin: at least 0, less than the size."""

    @property
    def title(self) -> str:
        """What a plan says of these windows."""
        return f"{self.size_ms} ms"

    @property
    def windows_max(self) -> int:
        """How many windows a row can be in."""
        return 1

    @property
    def slide_ms(self) -> int:
        """The time from the start of a window to that of the next."""
        return self.size_ms

    def starts(self, event_time: Int64s) -> Int64s:
        """The start of each row's window. Raises Fatal for a time whose window would not fit 64 bits."""
        lowest, highest = check_event_time(event_time, self.size_ms, self.size_ms + self.offset_ms)
        first = (lowest - self.offset_ms) // self.size_ms
        if first == (highest - self.offset_ms) // self.size_ms:  # as a rule: a window is longer than a batch
            return np.full(len(event_time), first * self.size_ms + self.offset_ms, np.int64)
        if not self.offset_ms:
            return np.asarray(np.floor_divide(event_time, self.size_ms) * self.size_ms)
        shifted = np.floor_divide(event_time - self.offset_ms, self.size_ms)
        return np.asarray(shifted * self.size_ms + self.offset_ms)


@explained
def tumbling(size: str | int, offset: str | int = 0) -> Tumbling:
    """Tumbling windows of this size ("10 s", or int ms), aligned to the epoch plus `offset`.

    An offset may be negative if given in ms. Raises OptionError for what is not a duration.
    """
    size_ms, offset_ms = size_and_offset_ms(size, offset)
    return Tumbling(size_ms, offset_ms % size_ms)


def size_and_offset_ms(size: str | int, offset: str | int) -> tuple[int, int]:
    """What a user gave, in ms. Raises OptionError."""
    size_ms = duration_ms(size, "size")
    if size_ms < 1:
        raise OptionError(f"size={size!r}: a window is at least 1 ms long")
    is_number = isinstance(offset, int) and not isinstance(offset, bool)
    offset_ms = offset if is_number else duration_ms(offset, "offset")
    assert isinstance(offset_ms, int)
    return size_ms, offset_ms


def check_event_time(event_time: Int64s, size_ms: int, margin_ms: int) -> tuple[int, int]:
    """The lowest and the highest time. Raises Fatal for a time so close to the end of the 64-bit range that
    a window would not fit: that is a wrong unit, not a time."""
    lowest, highest = int(event_time.min()), int(event_time.max())
    if lowest < WATERMARK_MIN_MS + margin_ms or highest > WATERMARK_MAX_MS - margin_ms:
        wrong = lowest if lowest < WATERMARK_MIN_MS + margin_ms else highest
        raise Fatal(f"event time {wrong} has no window of {size_ms} ms: is it in ms since the epoch?")
    return lowest, highest
