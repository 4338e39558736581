"""ThreadedDeliveries: what all connections to queues have that a thread of their own serves."""

from __future__ import annotations

import collections
import threading
from abc import ABC, abstractmethod
from collections.abc import Sequence

from onceflow.connectors.acknowledged.messages import Message
from onceflow.runtime.contracts import ReaderContext
from onceflow.runtime.errors import Fatal, OnceflowError

_CLOSE_S = 10.0


class ThreadedDeliveries(ABC):
    """The half of Deliveries that is the same for each: a deque between the thread that brings messages and
    the one that takes them, and the error that ended the former."""

    def __init__(self, what: str, context: ReaderContext) -> None:
        """`what`: the queue, for messages and the thread's name. `start` starts the thread."""
        self._what = what
        self._clock, self._wake = context.clock, context.wake
        self._messages: collections.deque[Message] = collections.deque()
        self._is_at_end = False
        """Whether there was nothing more to deliver, when it was last looked."""
        self._error: OnceflowError | None = None
        self._closed = threading.Event()
        self._changed = threading.Condition()
        self._thread = threading.Thread(target=self._run, name=f"onceflow {what}", daemon=True)

    def start(self) -> None:
        """Start the thread; called once everything is in place that it needs."""
        self._thread.start()

    def take(self, count: int) -> Sequence[Message]:
        """See Deliveries."""
        messages = self._messages
        taken = [messages.popleft() for _ in range(min(count, len(messages)))]
        if not taken and self._error is not None:
            raise self._error
        return taken

    @property
    def is_empty(self) -> bool:
        """See Deliveries."""
        return self._is_at_end and not self._messages

    def close(self) -> None:
        """See Deliveries."""
        self._end()
        self._thread.join(_CLOSE_S)

    def _end(self) -> None:
        """Make all that serve see that it is over."""
        self._closed.set()
        with self._changed:
            self._changed.notify_all()

    @abstractmethod
    def _serve(self) -> None:
        """What the thread does until `_closed` is set: append to `_messages` and wake the reader. Raises what
        ends the connection."""

    def _run(self) -> None:
        try:
            self._serve()
        except OnceflowError as error:
            self._error = self._error or error
        except Exception as error:  # a bug: told where it is polled, and not on a thread that nobody sees
            self._error = Fatal(f"{self._what}: {type(error).__name__}: {error}")
        self._wake()
