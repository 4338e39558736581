"""WindowBounds: a window as functions of the user's see it."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class WindowBounds:
    """A window: the times from `start` to `end`, in ms, the end left out."""

    start: int
    end: int
    """The first ms behind the window. Of a global window, bounds are those of the 64-bit range."""

    @property
    def max_timestamp(self) -> int:
        """The last ms of the window: when the watermark reaches it, all rows are there that are not late."""
        return self.end - 1
