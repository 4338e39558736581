"""Wrong versions of what fires in pieces, for `mutants.py` and the tests beside the code."""

from __future__ import annotations

from collections.abc import Iterator

from onceflow.runtime.operators.operator import FrozenState
from onceflow.runtime.records import Watermark
from onceflow.runtime.slot.firing import Firing
from onceflow.runtime.testing.sim_tally import Tally

_original_snapshot = Tally.snapshot


def out_before_it_has_fired(self: Firing) -> Iterator[int]:
    """A watermark, and the end behind it, go out at once; what they make due fires afterwards."""
    while self._behind:
        element = self._behind.pop(0)
        self._send(element)
        if not isinstance(element, Watermark):
            continue
        while self._behind:
            self._send(self._behind.pop(0))
        for uid, operator, firing, _ in self._operators:
            operator.on_watermark(self._watermark_at(uid, element.time_ms))
            while firing is not None and (fired := firing.fire(self._left)):
                yield fired


def snapshot_without_what_is_due(self: Tally) -> FrozenState:
    """Between two pieces it says that all windows up to the watermark have fired."""
    windows, timers = self._windows, self._timers
    due = self._due()
    self._windows = {(key, end): v for (key, end), v in windows.items() if (end, key) not in due}
    self._timers = timers.difference(due)
    state = _original_snapshot(self)
    self._windows, self._timers = windows, timers
    assert state is not None
    return state
