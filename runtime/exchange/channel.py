"""Channel: a bounded queue of elements between two subtasks; full means backpressure.

A channel has one sender and one receiver, keeps the order of its elements, and loses or doubles none
while both live. When either dies the attempt is over, so a channel has no recovery of its own.

The bound is in bytes, follows the receiver (`channel_bound.py`), and is soft: a sender asks `has_room` before
it starts on a batch, and what that one batch produces still fits in. Nobody ever blocks inside `send`, so one
thread can serve every task of a slot without deadlock: a task whose outputs have no room is just not run.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Collection, Iterable
from typing import Protocol

from onceflow.runtime.clock import Clock
from onceflow.runtime.exchange.channel_bound import ChannelBound
from onceflow.runtime.records import Barrier, Element, Records

CAPACITY_BYTES = 1 << 20
"""The most that one channel is to hold. A batch of 10k rows of the main job is about 0.4 MB. What waits in a
channel is what a barrier waits behind, and a slot works downstream first: more buys nothing."""
_GATE_BYTES = 32 << 20
_CAPACITY_BYTES_MIN = 64 << 10


def capacity_of(channels: int) -> int:
    """The bound of each of the channels of one gate: in wide jobs they share what a gate may hold, or a
    hundred of them would be a hundred MiB for each edge."""
    return max(_CAPACITY_BYTES_MIN, min(CAPACITY_BYTES, _GATE_BYTES // channels))


CONTROL_ELEMENT_BYTES = 64
"""What a watermark or barrier counts for."""


class OutputChannel(Protocol):
    """The sender's end of a channel."""

    @property
    def has_room(self) -> bool:
        """False: don't start work that sends here."""
        ...

    @property
    def bound_bytes(self) -> int:
        """How much may be on its way here."""
        ...

    @property
    def is_slow(self) -> bool:
        """Whether the bound is lower than it would be for a receiver that is fast."""
        ...

    sent_bytes: int
    """All that was sent so far."""

    def send(self, element: Element) -> None: ...


class InputChannel(Protocol):
    """The receiver's end of a channel."""

    def receive(self) -> Element | None:
        """The next element, or None if there is none now."""
        ...

    def waiting(self) -> Iterable[Element]:
        """What has come and was not received yet, in its order."""
        ...

    @property
    def waiting_barriers(self) -> Collection[int]:
        """The checkpoints whose barriers are among it."""
        ...


def size_of(element: Element) -> int:
    """Bytes that count against a channel's bound."""
    return element.nbytes if isinstance(element, Records) else CONTROL_ELEMENT_BYTES


class LocalChannel:
    """A channel with both ends in one process and one thread: elements are handed over by reference."""

    def __init__(
        self,
        capacity_bytes: int = CAPACITY_BYTES,
        clock: Clock | None = None,
        goal_ms: float | None = None,
    ) -> None:
        """`goal_ms`: see ChannelBound; it needs a clock."""
        self._elements: deque[tuple[Element, int]] = deque()
        self._bound = ChannelBound(capacity_bytes, goal_ms)
        self._clock = clock
        self._queued_bytes = 0
        self.waiting_barriers: deque[int] = deque()
        self.sent_bytes = 0

    @property
    def has_room(self) -> bool:
        return self._queued_bytes < self._bound.bytes

    @property
    def bound_bytes(self) -> int:
        return self._bound.bytes

    @property
    def is_slow(self) -> bool:
        return not self._bound.is_most

    def send(self, element: Element) -> None:
        size = size_of(element)
        self._elements.append((element, size))
        self._queued_bytes += size
        self.sent_bytes += size
        if isinstance(element, Barrier):
            self.waiting_barriers.append(element.checkpoint_id)

    def receive(self) -> Element | None:
        if not self._elements:
            if self._clock is not None and self._bound.is_at_work:
                self._bound.on_empty(self._clock.monotonic_ms())
            return None
        element, size = self._elements.popleft()
        self._queued_bytes -= size
        if isinstance(element, Barrier):
            self.waiting_barriers.popleft()
        if self._clock is not None:
            self._bound.on_taken(size, self._queued_bytes, self._clock.monotonic_ms())
        return element

    def waiting(self) -> Iterable[Element]:
        return (element for element, _ in self._elements)

    def __repr__(self) -> str:
        return f"LocalChannel({len(self._elements)} elements, {self._queued_bytes} bytes)"
