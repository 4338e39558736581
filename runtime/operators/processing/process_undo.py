"""Undo: takes back what a call of process() did before it raised, so that its record has no effect at all."""

from __future__ import annotations

from typing import Any

from onceflow.runtime.operators.processing.process_output import Made, Sent
from onceflow.runtime.state.row_values import DeclaredStates
from onceflow.runtime.state.timers import KeyTimers


class Undo:
    """State, timers of both kinds, what was yielded, and what was sent to side outputs, of one key and one
    call. What the user's object keeps for itself, and what it did outside, nobody can take back."""

    def __init__(
        self, states: DeclaredStates, timers: KeyTimers, clock_timers: KeyTimers, sent: Sent, made: Made
    ) -> None:
        self._states = states
        self._timers = timers
        self._clock_timers = clock_timers
        self._sent = sent
        self._made = made
        self._saved: tuple[list[Any], set[int] | None, set[int] | None] = ([], None, None)
        self._lengths: list[int] = []

    def begin(self, row: int) -> None:
        """A call for the key in this row comes next."""
        self._saved = self._states.save(row), self._timers.save(row), self._clock_timers.save(row)
        self._lengths = [len(records) for records, _ in self._sent.values()]

    def roll_back(self, row: int) -> None:
        """The call has raised: all is as it was before it."""
        values, timers, clock_timers = self._saved
        self._states.bring_back(row, values)
        self._timers.bring_back(row, timers)
        self._clock_timers.bring_back(row, clock_timers)
        self._made.undo()
        for (records, times), length in zip(self._sent.values(), self._lengths, strict=True):
            del records[length:], times[length:]
