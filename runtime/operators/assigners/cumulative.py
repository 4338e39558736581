"""Cumulative windows: those of a long window that begin with it, and end step by step."""

from __future__ import annotations

from dataclasses import dataclass

from onceflow.runtime.durations import duration_ms
from onceflow.runtime.errors import OptionError
from onceflow.runtime.explained_calls import explained
from onceflow.runtime.operators.assigners.tumbling import size_and_offset_ms


@dataclass(frozen=True, slots=True)
class Cumulative:
    """Windows [start, start + n * step) for n from 1 until the size; starts are a size apart."""

    size_ms: int
    """A multiple of the step."""
    step_ms: int
    offset_ms: int = 0
    """How much later than the epoch windows begin: at least 0, less than the size."""

    @property
    def title(self) -> str:
        """What a plan says of these windows."""
        return f"{self.size_ms} ms, cumulative by {self.step_ms} ms"


@explained
def cumulative(size: str | int, step: str | int, offset: str | int = 0) -> Cumulative:
    """Windows of this size that also fire at every `step` on the way, with all rows from their beginning on:
    cumulative("1 d", "1 h") is the day so far, each hour.

    A result has the same `window_start` as the others of its day, and its own `window_end`. Raises
    OptionError for what is not a duration, and for a size that is no multiple of the step.
    """
    step_ms = duration_ms(step, "step")
    size_ms, offset_ms = size_and_offset_ms(size, offset)
    if step_ms < 1 or size_ms % step_ms:
        raise OptionError(f"step={step!r}: size={size!r} has to be a multiple of it, of at least 1 ms")
    return Cumulative(size_ms, step_ms, offset_ms % size_ms)
