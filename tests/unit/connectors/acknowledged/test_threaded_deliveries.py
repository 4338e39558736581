"""What a thread that serves a queue leaves for the one that takes: messages first, then what ended it."""

from __future__ import annotations

import threading

import pytest

from onceflow.connectors.acknowledged.messages import Message
from onceflow.connectors.acknowledged.threaded_deliveries import ThreadedDeliveries
from onceflow.runtime.clock import ManualClock
from onceflow.runtime.contracts import ReaderContext
from onceflow.runtime.errors import Fatal, Retryable

MESSAGES = [Message(str(n), b"", n, False) for n in range(3)]


class Served(ThreadedDeliveries):
    """Brings the messages, and ends with `error` if it is given one, else when it is closed."""

    def __init__(self, error: Exception | None) -> None:
        self._end_with = error
        self.has_served = threading.Event()
        context = ReaderContext("job", "orders", 0, 1, ManualClock(), wake=self.has_served.set)
        super().__init__("queue 'q'", context)
        self.start()

    def _serve(self) -> None:
        self._messages.extend(MESSAGES)
        self._is_at_end = True
        if self._end_with is not None:
            raise self._end_with
        self._wake()
        assert self._closed.wait(60)


def test_what_ended_it_is_told_when_all_before_it_are_taken() -> None:
    deliveries = Served(Retryable("gone"))
    assert deliveries.has_served.wait(60)
    assert list(deliveries.take(2)) == MESSAGES[:2]
    assert list(deliveries.take(2)) == MESSAGES[2:]
    with pytest.raises(Retryable, match="gone"):
        deliveries.take(2)


def test_a_mistake_on_the_thread_is_told_where_it_is_polled() -> None:
    deliveries = Served(ValueError("oh"))
    assert deliveries.has_served.wait(60)
    deliveries.take(3)
    with pytest.raises(Fatal, match="queue 'q': ValueError: oh"):
        deliveries.take(1)


def test_it_is_empty_when_all_that_was_there_is_taken_and_ends_when_it_is_closed() -> None:
    deliveries = Served(None)
    assert deliveries.has_served.wait(60)
    assert not deliveries.is_empty
    deliveries.take(3)
    assert deliveries.is_empty
    deliveries.close()
    assert not any(thread.name == "onceflow queue 'q'" for thread in threading.enumerate())
    assert list(deliveries.take(1)) == []
