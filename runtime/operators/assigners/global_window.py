"""The global window: all rows of a key, for good."""

from __future__ import annotations

from dataclasses import dataclass

from onceflow.runtime.explained_calls import explained


@dataclass(frozen=True, slots=True)
class GlobalWindow:
    """One window for each key, which has no end: a trigger says when it sends its result."""

    @property
    def title(self) -> str:
        """What a plan says of this window."""
        return "of all rows of a key"


@explained
def global_window() -> GlobalWindow:
    """One window for each key, with all its rows. It has no end that it could fire at, so it needs a trigger:
    `.window(global_window()).trigger(every_rows(100))`. Its results have no window_start and window_end, and
    the event time of the row that fired it; no event time is needed, and nothing is late. What it keeps of a
    key stays until a trigger purges it."""
    return GlobalWindow()
