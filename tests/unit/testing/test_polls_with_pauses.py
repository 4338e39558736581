"""The checks of sources leave the processor to the threads of a reader that has nothing yet."""

from __future__ import annotations

import time
from typing import cast

from onceflow.runtime.contracts import SourceReader
from onceflow.runtime.testing.conformance import checking
from onceflow.runtime.testing.conformance.checking import polled
from onceflow.runtime.testing.mutation import Mutant, mutated

POLLS = 200
PAUSES_S = POLLS * 0.001
"""How long so many polls take at least, on whatever machine."""


class Empty:
    """A reader that has nothing, and counts how often it was asked."""

    polls = 0

    def poll(self, timeout_ms: int, records_max: int) -> None:
        self.polls += 1


def taken_s() -> float:
    """The time of that many polls that bring nothing."""
    reader, began_s = Empty(), time.monotonic()
    for _ in range(POLLS):
        assert polled(cast(SourceReader, reader), 1) is None
    assert reader.polls == POLLS
    return time.monotonic() - began_s


def test_after_a_poll_that_brings_nothing_there_is_a_pause() -> None:
    assert taken_s() >= PAUSES_S


def test_without_it_the_check_polls_all_the_time() -> None:
    with mutated(Mutant("no pause", [(checking, "_NOTHING_S", 0.0)])):
        assert min(taken_s() for _ in range(20)) < PAUSES_S
