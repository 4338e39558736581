"""When a planner of batches may look again."""

from __future__ import annotations

from onceflow.connectors.look_pace import LookPace
from onceflow.runtime.clock import ManualClock


def test_not_again_right_after_there_was_nothing_and_at_once_after_there_was_something() -> None:
    clock = ManualClock(0)
    pace = LookPace(clock, 500)
    assert pace.is_due()
    clock.advance(499)
    assert not pace.is_due()
    clock.advance(1)
    assert pace.is_due()
    assert not pace.is_due()
    pace.found_some()
    assert pace.is_due()
