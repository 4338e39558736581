"""What every reader must do that wakes the loop (`ReaderContext.wake`) when there is something to poll."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from onceflow.runtime.clock import SystemClock
from onceflow.runtime.contracts import ReaderContext, Source, SourceReader
from onceflow.runtime.testing.conformance.checking import DEADLINE_S
from onceflow.runtime.testing.conformance.sources import initial_splits


@dataclass(frozen=True)
class WakingSourceUnderTest:
    """A source that is empty, and is not bounded. `add()` puts a row where the source reads."""

    source: Source
    add: Callable[[], None]


def what_comes_wakes_the_loop(case: WakingSourceUnderTest) -> None:
    """Each time after a poll that brought nothing; and the poll after that brings it."""
    woken = threading.Event()
    reader = case.source.open_reader(
        ReaderContext("conformance", "source", 0, 1, SystemClock(), wake=woken.set)
    )
    reader.add_splits(initial_splits(case.source))
    for _ in range(3):
        drain(reader)
        woken.clear()
        if drain(reader):
            continue
        case.add()
        assert woken.wait(DEADLINE_S), "nobody was woken"
        assert drain(reader) == 1
    reader.close()


WAKING_CHECKS: Sequence[Callable[[WakingSourceUnderTest], None]] = (what_comes_wakes_the_loop,)


def drain(reader: SourceReader) -> int:
    """The rows that come without waiting."""
    rows, deadline = 0, time.monotonic() + DEADLINE_S
    while (fetch := reader.poll(0, 1_000)) is not None:
        assert time.monotonic() < deadline, "no end of fetches without rows"
        rows += fetch.records.num_rows
    return rows
