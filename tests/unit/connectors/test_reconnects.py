"""When a reader tries again that has lost its system, and when it gives up."""

from __future__ import annotations

import pytest

from onceflow.connectors.reconnects import Reconnects
from onceflow.runtime.clock import ManualClock
from onceflow.runtime.errors import Retryable, Unavailable


def test_pauses_get_longer_are_said_and_end() -> None:
    clock, said, tried = ManualClock(), list[str](), list[float]()
    reconnects = Reconnects(clock, said.append, 10_000)
    while clock.monotonic_ms() < 10_000:
        if reconnects.is_time:
            tried.append(clock.monotonic_ms())
            reconnects.failed(Retryable("it is away"))
        clock.advance(50)
    assert tried == [0, 50, 150, 350, 750, 1_550, 3_150, 6_350]
    assert said[0] == "the source waits since 2 s: it is away"
    with pytest.raises(Unavailable, match=r"gave up after 10 s \(timeout\): it is away"):
        reconnects.failed(Retryable("it is away"))


def test_what_works_again_begins_anew() -> None:
    clock, said = ManualClock(), list[str]()
    reconnects = Reconnects(clock, said.append, 10_000)
    reconnects.failed(Retryable("it is away"))
    assert not reconnects.is_time
    reconnects.worked()
    assert reconnects.is_time
    assert said == [""]
    clock.advance(60_000)
    reconnects.failed(Retryable("it is away"))
    clock.advance(50)
    assert reconnects.is_time
