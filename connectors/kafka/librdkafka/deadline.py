"""A limit for calls into librdkafka that may never return.

`send_offsets_to_transaction(timeout)` waits for ever, whatever its timeout, if the group's coordinator
is killed while the request is on its way and comes back later (librdkafka 2.16: seen with a broker
killed and restarted inside a transaction; the reply to the caller is never sent). Other transactional
calls wait for the same internal queue. So they run on another thread with a deadline; one that is
overdue is left behind with its producer, which the next producer's initialisation fences.

Once a connection broke, a call is overdue long before its timeout: what librdkafka sends again by itself
is answered moments after the broker is back, and what hangs never is.
"""

from __future__ import annotations

import math
import queue
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future, wait
from typing import TypeVar

Result = TypeVar("Result")

_AFTER_CUT_S = 3.0
_LOOK_S = 0.05


class OverdueError(TimeoutError):
    """The call has not returned, and may never: what it did is unknown. Use the handle no more."""


class CallsWithDeadline:
    """One call at a time, on a thread of its own that lives as long as calls return. Not thread-safe."""

    def __init__(self, name: str, after_cut_s: float = _AFTER_CUT_S) -> None:
        """`after_cut_s`: how long a call may still take once a connection broke."""
        self._name = name
        self._after_cut_s = after_cut_s
        self._jobs: queue.SimpleQueue[Callable[[], None] | None] | None = None

    def call(
        self,
        call: Callable[[], Result],
        timeout_s: float,
        what: str,
        is_cut: Callable[[], bool] = lambda: False,
        not_before_s: Callable[[], float] = lambda: 0.0,
    ) -> Result:
        """The call's result or exception. Raises OverdueError after timeout_s, or sooner once a connection
        broke, which the waiting thread asks `is_cut` now and then; the call goes on, unheard, and holds its
        thread: the next call gets another one. `not_before_s`: until then, by time.monotonic(), nobody
        answers, as far as is known when it is asked; timeout_s counts from there."""
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
        overdue = self._wait_done(future, timeout_s, is_cut, not_before_s)
        if overdue is not None:
            self.close()
            raise OverdueError(f"{what} has not returned within {overdue}")
        return future.result()

    def _wait_done(
        self,
        future: Future[Result],
        timeout_s: float,
        is_cut: Callable[[], bool],
        not_before_s: Callable[[], float],
    ) -> str | None:
        """Wait for a call: None once it is done; else how long was waited, in words."""
        started_s, cut_s = time.monotonic(), math.inf
        while True:
            after_cut_s = cut_s + self._after_cut_s
            usual_s = max(started_s, not_before_s()) + timeout_s
            left_s = min(usual_s, after_cut_s) - time.monotonic()
            if wait([future], max(0.0, min(left_s, _LOOK_S))).done:
                return None
            if left_s <= 0:
                break
            if cut_s == math.inf and is_cut():
                cut_s = time.monotonic()
        if after_cut_s < usual_s:
            return f"{self._after_cut_s:.0f} s after a connection broke"
        return f"{usual_s - started_s:.0f} s"

    def close(self) -> None:
        """End the thread, once a call that is under way returns. Does not wait."""
        if self._jobs is not None:
            self._jobs.put(None)
            self._jobs = None


def _work(jobs: queue.SimpleQueue[Callable[[], None] | None]) -> None:
    while (job := jobs.get()) is not None:
        job()
        del job  # it holds the producer, which may be given up meanwhile
