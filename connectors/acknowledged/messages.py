"""What a queue delivers, and who brings it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol


@dataclass(frozen=True, slots=True)
class Message:
    """A message as it was delivered."""

    id: str | None
    """What it is known by when it is delivered again; None: it has none."""
    body: bytes
    tag: int
    """What acknowledges this delivery; it grows from one delivery of a connection to the next."""
    is_redelivered: bool
    """Whether the server says that it may have been delivered before."""
    attributes: Mapping[str, object] = field(default_factory=dict)
    """What else is known of it, by the names of the columns of `QueueReader`."""


class Deliveries(Protocol):
    """One connection to one queue, with a thread of its own that brings messages. Another thread takes them,
    and a third acknowledges."""

    def take(self, count: int) -> Sequence[Message]:
        """The next messages, `count` at most, without waiting. Raises what ended the connection once all
        before it are taken: Retryable (then a new connection is made), Fatal."""
        ...

    @property
    def is_empty(self) -> bool:
        """Whether the queue had nothing more to deliver when it was last looked, and all was taken. Asked for
        bounded sources only."""
        ...

    @property
    def alive_ms(self) -> float:
        """When the server last answered, by the monotonic clock of the reader."""
        ...

    def acknowledge(self, last_tag: int) -> None:
        """Acknowledge all deliveries of this connection up to this one. Does not wait; lost with the
        connection."""
        ...

    def close(self) -> None:
        """End the connection: what is not acknowledged is delivered again, to whoever comes."""
        ...
