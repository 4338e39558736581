"""Background: work that a slot's thread must not wait for, and how its outcome comes back.

Writing snapshots and committing sinks take milliseconds to seconds; records flow meanwhile. A job runs
on another thread; its outcome is a callback that runs on the slot's own thread, between two steps. In
the simulation jobs and callbacks are steps of their own (runtime/testing).
"""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable
from functools import partial
from typing import Protocol, TypeVar

Result = TypeVar("Result")
_Jobs = queue.SimpleQueue[Callable[[], Callable[[], None]] | None]


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
    """Background on threads of this process.

    Daemon threads, and not an executor, whose threads Python joins at its exit: a commit may wait for a
    broker that is away, and the process has to end all the same.
    """

    def __init__(self, writers: int, on_done: Callable[[], None]) -> None:
        """`on_done` is called, on any thread, when there is something to deliver."""
        self._writes: _Jobs = queue.SimpleQueue()
        self._commits: _Jobs = queue.SimpleQueue()
        self._outcomes: queue.SimpleQueue[Callable[[], None]] = queue.SimpleQueue()
        self._on_done = on_done
        self._is_closed = False
        self._workers = [self._start("write", self._writes) for _ in range(writers)]
        self._committer = self._start("commit", self._commits)

    def write(self, job: Callable[[], Result], done: Callable[[Result], None]) -> None:
        self._submit(self._writes, job, done)

    def commit(self, job: Callable[[], Result], done: Callable[[Result], None]) -> None:
        self._submit(self._commits, job, done)

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
        """Drop what has not begun; what has goes on, and nobody waits for it."""
        self._is_closed = True
        for _ in self._workers:
            self._writes.put(None)
        self._commits.put(None)

    def _start(self, name: str, jobs: _Jobs) -> threading.Thread:
        thread = threading.Thread(target=self._work, args=(jobs,), name=f"onceflow-{name}", daemon=True)
        thread.start()
        return thread

    def _work(self, jobs: _Jobs) -> None:
        while (job := jobs.get()) is not None:
            if not self._is_closed:
                self._outcomes.put(job())
                del job  # or what it holds, a snapshot, would stay until the next one comes
                self._on_done()

    def _submit(self, jobs: _Jobs, job: Callable[[], Result], done: Callable[[Result], None]) -> None:
        def run() -> Callable[[], None]:
            try:
                result = job()
            except BaseException as error:
                return partial(_raise, error)
            return lambda: done(result)

        jobs.put(run)


def _raise(error: BaseException) -> None:
    raise error
