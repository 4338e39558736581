"""Firings: how often a window fires, and what a firing after the first one sends."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class Results(StrEnum):
    """What a window sends when it fires again."""

    RETRACTING = "retracting"
    """What it has sent is taken back, and the whole new result sent: rows with kinds (RowKind)."""
    ACCUMULATING = "accumulating"
    """The whole new result, as a row like any other."""
    DISCARDING = "discarding"
    """The result of what has come since it fired last."""


@dataclass(frozen=True, slots=True)
class Firings:
    """Beside the firing at the watermark."""

    lateness_ms: int = 0
    """How long after its end, in event time, a row still counts in a window. The window then fires again."""
    results: Results = Results.RETRACTING

    @property
    def has_kinds(self) -> bool:
        """Whether the rows out can be updates and deletes."""
        return self.lateness_ms > 0 and self.results is Results.RETRACTING

    @property
    def title(self) -> str:
        """For the plan; empty if a window fires once."""
        return f", {self.lateness_ms} ms of lateness, {self.results}" if self.lateness_ms else ""


ONCE = Firings()
"""At the watermark only."""
