"""Background: work that a slot's thread must not wait for, and how its outcome comes back.

Writing snapshots and committing sinks take milliseconds to seconds; records flow meanwhile. A job runs
on another thread; its outcome is a callback that runs on the slot's own thread, between two steps. In
the simulation jobs and callbacks are steps of their own (runtime/testing).
"""

from __future__ import annotations

import queue
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Protocol, TypeVar

Result = TypeVar("Result")


class Background(Protocol):
    """Runs jobs off the slot's thread. `commits` keep their order, one at a time; `writes` don't."""

    def write(self, job: Callable[[], Result], done: Callable[[Result], None]) -> None:
        """Run job, then done(result) on the slot's thread. An exception of job is raised there."""
        ...

    def commit(self, job: Callable[[], Result], done: Callable[[Result], None]) -> None: ...

    def deliver(self) -> bool:
        """On the slot's thread: call back what is done. True if anything was."""
        ...

    def close(self) -> None: ...


class Threads:
    """Background on threads of this process."""

    def __init__(self, writers: int, on_done: Callable[[], None]) -> None:
        """`on_done` is called, on any thread, when there is something to deliver."""
        self._writers = ThreadPoolExecutor(writers, thread_name_prefix="onceflow-write")
        self._committer = ThreadPoolExecutor(1, thread_name_prefix="onceflow-commit")
        self._outcomes: queue.SimpleQueue[Callable[[], None]] = queue.SimpleQueue()
        self._on_done = on_done

    def write(self, job: Callable[[], Result], done: Callable[[Result], None]) -> None:
        self._submit(self._writers, job, done)

    def commit(self, job: Callable[[], Result], done: Callable[[Result], None]) -> None:
        self._submit(self._committer, job, done)

    def deliver(self) -> bool:
        delivered = False
        while True:
            try:
                outcome = self._outcomes.get_nowait()
            except queue.Empty:
                return delivered
            outcome()
            delivered = True

    def close(self) -> None:
        """Don't wait: a commit may be waiting for a broker that is away."""
        self._writers.shutdown(wait=False, cancel_futures=True)
        self._committer.shutdown(wait=False, cancel_futures=True)

    def _submit(
        self, pool: ThreadPoolExecutor, job: Callable[[], Result], done: Callable[[Result], None]
    ) -> None:
        def finished(future: Future[Result]) -> None:
            if not future.cancelled():
                self._outcomes.put(lambda: done(future.result()))
                self._on_done()

        pool.submit(job).add_done_callback(finished)
