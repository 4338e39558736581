"""A reader that wakes its slot when a message comes, so that nothing waits for the next look."""

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa
from onceflow.runtime.clock import Clock
from onceflow.runtime.contracts import Fetch, ReaderContext, SplitState
from onceflow.runtime.testing.conformance import WAKING_CHECKS, WakingSourceUnderTest


@dataclass(frozen=True)
class Inbox:
    """A source over a list in memory: for tests, since a picklable source would ask a server."""

    messages: list[int] = field(default_factory=list)
    readers: list["InboxReader"] = field(default_factory=list)
    record_type: type | None = None
    is_bounded: bool = False

    @property
    def schema(self) -> pa.Schema:
        return pa.schema([("n", pa.int64())])

    def open_enumerator(self, job: str, clock: Clock) -> "OneSplit":
        return OneSplit()

    def open_reader(self, context: ReaderContext) -> "InboxReader":
        self.readers.append(InboxReader(self, context))
        return self.readers[-1]

    def add(self) -> None:
        """Called from any thread; in a real reader by the client library's own."""
        self.messages.append(len(self.messages))
        for reader in self.readers:
            reader.context.wake()


class OneSplit:
    discovery_interval_ms = None

    def initial_splits(self) -> Sequence[SplitState]:
        return [SplitState("inbox", {"next": 0})]

    def discover(self, known: frozenset[str]) -> Sequence[SplitState]:
        return []

    def check_restored(self, splits: Sequence[SplitState]) -> None:
        pass

    def close(self) -> None:
        pass


class InboxReader:
    def __init__(self, source: Inbox, context: ReaderContext) -> None:
        self.context = context
        self._source = source
        self._next = 0

    def add_splits(self, splits: Sequence[SplitState]) -> None:
        self._next = int(splits[0].position["next"])

    def poll(self, timeout_ms: int, records_max: int) -> Fetch | None:
        new = self._source.messages[self._next : self._next + records_max]
        if not new:
            return None
        self._next += len(new)
        batch = pa.record_batch([pa.array(new)], schema=self._source.schema)
        return Fetch(batch, np.zeros(len(new), np.uint16), ("inbox",))

    def snapshot(self) -> Sequence[SplitState]:
        return [SplitState("inbox", {"next": self._next})]

    def publish_offsets(self, splits: Sequence[SplitState]) -> None:
        pass

    def close(self) -> None:
        pass


inbox = Inbox()
for check in WAKING_CHECKS:
    check(WakingSourceUnderTest(inbox, inbox.add))
