"""A limit for calls into librdkafka that may never return.

`send_offsets_to_transaction(timeout)` waits for ever, whatever its timeout, if the group's coordinator
is killed while the request is on its way and comes back later (librdkafka 2.16: seen with a broker
killed and restarted inside a transaction; the reply to the caller is never sent). Other transactional
calls wait for the same internal queue. So they run on another thread with a deadline; one that is
overdue is left behind with its producer, which the next producer's initialisation fences.
"""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable
from concurrent.futures import Future
from typing import TypeVar

Result = TypeVar("Result")


class OverdueError(TimeoutError):
    """The call has not returned, and may never: what it did is unknown. Use the handle no more."""


class CallsWithDeadline:
    """One call at a time, on a thread of its own that lives as long as calls return. Not thread-safe."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._jobs: queue.SimpleQueue[Callable[[], None] | None] | None = None

    def call(self, call: Callable[[], Result], timeout_s: float, what: str) -> Result:
        """The call's result or exception. Raises OverdueError after timeout_s; the call goes on, unheard,
        and holds its thread: the next call gets another one."""
        future: Future[Result] = Future()

        def run() -> None:
            try:
                future.set_result(call())
            except BaseException as error:
                future.set_exception(error)

        if self._jobs is None:
            self._jobs = queue.SimpleQueue()
            threading.Thread(target=_work, args=(self._jobs,), name=self._name, daemon=True).start()
        self._jobs.put(run)
        try:
            return future.result(timeout_s)
        except TimeoutError:
            if future.done():
                raise  # the call's own
            self.close()
            raise OverdueError(f"{what} has not returned within {timeout_s:.0f} s") from None

    def close(self) -> None:
        """End the thread, once a call that is under way returns. Does not wait."""
        if self._jobs is not None:
            self._jobs.put(None)
            self._jobs = None


def _work(jobs: queue.SimpleQueue[Callable[[], None] | None]) -> None:
    while (job := jobs.get()) is not None:
        job()
        del job  # it holds the producer, which may be given up meanwhile
