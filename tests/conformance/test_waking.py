"""A source that wakes the loop: an inbox in memory."""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from onceflow.runtime.contracts import Fetch, ReaderContext, SplitState
from onceflow.runtime.testing.conformance import WAKING_CHECKS, WakingSourceUnderTest

SCHEMA = pa.schema([("n", pa.int64())])


@dataclass(frozen=True)
class InboxSource:
    """Rows that other threads put into an inbox. Positions are counts: nothing can be read again."""

    inbox: queue.SimpleQueue[int] = field(default_factory=queue.SimpleQueue)
    schema: pa.Schema = SCHEMA
    is_bounded: bool = False
    record_type: type | None = None

    def open_enumerator(self, job: str, clock: Any) -> InboxEnumerator:
        return InboxEnumerator()

    def open_reader(self, context: ReaderContext) -> InboxReader:
        return InboxReader(self.inbox, context.wake)


class InboxEnumerator:
    discovery_interval_ms = None

    def initial_splits(self) -> Sequence[SplitState]:
        return [SplitState("inbox", {"count": 0})]

    def discover(self, known: frozenset[str]) -> Sequence[SplitState]:
        return []

    def check_restored(self, splits: Sequence[SplitState]) -> None: ...

    def close(self) -> None: ...


class InboxReader:
    """A thread of its own waits at the inbox; `poll` never waits."""

    def __init__(self, inbox: queue.SimpleQueue[int], wake: Callable[[], None]) -> None:
        self._inbox, self._wake = inbox, wake
        self._taken: queue.SimpleQueue[int] = queue.SimpleQueue()
        self._count = 0
        threading.Thread(target=self._take, daemon=True).start()

    def _take(self) -> None:
        while (n := self._inbox.get()) >= 0:
            self._taken.put(n)
            self._wake()  # behind the put: who is woken finds it

    def add_splits(self, splits: Sequence[SplitState]) -> None: ...

    def poll(self, timeout_ms: int, records_max: int) -> Fetch | None:
        if self._taken.empty():
            return None
        self._count += 1
        batch = pa.RecordBatch.from_pylist([{"n": self._taken.get()}], SCHEMA)
        return Fetch(batch, np.zeros(1, np.uint16), ("inbox",))

    def snapshot(self) -> Sequence[SplitState]:
        return [SplitState("inbox", {"count": self._count})]

    def publish_offsets(self, splits: Sequence[SplitState]) -> None: ...

    def close(self) -> None:
        self._inbox.put(-1)


@pytest.mark.parametrize("check", WAKING_CHECKS, ids=lambda check: check.__name__)
def test_inbox(check: Callable[[WakingSourceUnderTest], None]) -> None:
    source = InboxSource()
    check(WakingSourceUnderTest(source, lambda: source.inbox.put(1)))
