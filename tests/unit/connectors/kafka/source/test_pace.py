"""Pace: small fetches pause for a moment, large ones do not."""

from __future__ import annotations

from onceflow.connectors.kafka.source.pace import GATHER_MS, RECORDS_FEW, Pace
from onceflow.runtime.clock import ManualClock


def test_after_a_fetch_of_few_records_others_may_gather_for_milliseconds() -> None:
    clock = ManualClock(1_000)
    pace = Pace(clock)
    assert not pace.is_gathering
    pace.took(RECORDS_FEW - 1, 9_000)
    clock.advance(GATHER_MS - 0.5)
    assert pace.is_gathering
    clock.advance(0.5)
    assert not pace.is_gathering
    assert GATHER_MS <= 5, "it is part of every record's latency"


def test_after_a_fetch_of_many_records_the_next_comes_at_once() -> None:
    pace = Pace(ManualClock(1_000))
    pace.took(1, 9_000)
    pace.took(RECORDS_FEW, 9_000)
    assert not pace.is_gathering


def test_after_as_many_as_were_asked_for_the_next_comes_at_once_few_or_not() -> None:
    pace = Pace(ManualClock(1_000))
    pace.took(7, 7)
    assert not pace.is_gathering
    pace.took(6, 7)
    assert pace.is_gathering
