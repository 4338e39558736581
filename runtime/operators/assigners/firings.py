"""Firings: when a window fires, and what a firing after the first one sends."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from onceflow.runtime.operators.triggers.built_in import BuiltInTrigger
from onceflow.runtime.operators.triggers.own import Trigger
from onceflow.runtime.types.user_functions import function_name


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
    """When windows send results, and what a further result of the same window is."""

    lateness_ms: int = 0
    """How long after its end, in event time, a row still counts in a window. The window then fires again."""
    results: Results = Results.RETRACTING
    trigger: BuiltInTrigger | Trigger[Any] | None = None
    """None: at the watermark."""

    @property
    def is_repeated(self) -> bool:
        """Whether a window can fire more than once."""
        return self.lateness_ms > 0 or self.trigger is not None

    @property
    def has_kinds(self) -> bool:
        """Whether the rows out can be updates and deletes."""
        return self.is_repeated and self.results is Results.RETRACTING

    @property
    def title(self) -> str:
        """What a plan says of when windows fire; empty if they fire once."""
        parts = [self.trigger_title] if self.trigger is not None else []
        parts += [f"{self.lateness_ms} ms of lateness"] if self.lateness_ms else []
        return "".join(f", {part}" for part in [*parts, str(self.results)]) if parts else ""

    @property
    def trigger_title(self) -> str:
        """For the plan, and for the comparison with a checkpoint's; empty if there is no trigger."""
        if self.trigger is None:
            return ""
        own = self.trigger
        return own.title if isinstance(own, BuiltInTrigger) else f"fires by {function_name(type(own))}"


ONCE = Firings()
"""A window fires once, at the watermark."""
