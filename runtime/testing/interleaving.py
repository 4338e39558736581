"""Several processes on one store, each in a thread that goes on only when it is told to.

Every call to the store is a step, and who takes the next one is a choice; so is that a process dies before
its step. For what is right by the order of its steps alone.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Mapping
from typing import BinaryIO

from onceflow.runtime.checkpoint.store import CheckpointStore, FileStatus
from onceflow.runtime.testing.choices import Choices

DEADLINE_S = 60.0
CHANGE_OF_TURN = "who is next"
STEPS_MAX = 40
"""A process is killed before one of its first so many steps, or not."""


class Killed(BaseException):
    """Ends a process where it stands: nothing catches it."""


class Process:
    """A thread that runs `work(store)`; each call to that store waits for `step`."""

    def __init__(self, name: str, work: Callable[[CheckpointStore], None], store: CheckpointStore) -> None:
        self.name = name
        self.outcome: BaseException | None = None
        """What it ended with, if not well."""
        self._turn, self._back = threading.Semaphore(0), threading.Semaphore(0)
        self._is_killed = self.is_over = False
        self._thread = threading.Thread(
            target=self._run, args=(work, SteppedStore(store, self._wait)), daemon=True
        )
        self._thread.start()
        self._hand_over()

    @property
    def was_killed(self) -> bool:
        return isinstance(self.outcome, Killed)

    def step(self, is_killed: bool = False) -> None:
        """Let it do its next call and what follows, up to the one after; or die before it."""
        assert not self.is_over
        self._is_killed = is_killed
        self._turn.release()
        self._hand_over()

    def _hand_over(self) -> None:
        assert self._back.acquire(timeout=DEADLINE_S), f"{self.name} hangs"

    def _wait(self) -> None:
        self._back.release()
        assert self._turn.acquire(timeout=DEADLINE_S), f"{self.name} was forgotten"
        if self._is_killed:
            raise Killed

    def _run(self, work: Callable[[CheckpointStore], None], store: CheckpointStore) -> None:
        try:
            work(store)
        except BaseException as error:
            self.outcome = error
        self.is_over = True
        self._back.release()


def run_interleaved(
    works: Mapping[str, Callable[[CheckpointStore], None]],
    store: CheckpointStore,
    choices: Choices,
    check: Callable[[], None] = lambda: None,
) -> Mapping[str, Process]:
    """Run them all to their ends, and tell how they ended. The ordinary case is one after the other; one of
    them may be killed before any of its steps. `check` is called after each step."""
    processes = [Process(name, work, store) for name, work in works.items()]
    victim = [None, *processes][choices.choose(len(processes) + 1, "who is killed")]
    steps_left = choices.choose(STEPS_MAX, "before which step") if victim is not None else 0
    current = 0
    while alive := [process for process in processes if not process.is_over]:
        # 0: whose turn it was.
        current = (current + choices.choose(len(alive), CHANGE_OF_TURN)) % len(alive)
        process = alive[current]
        is_killed = process is victim and steps_left == 0
        steps_left -= process is victim
        process.step(is_killed)
        check()
    return {process.name: process for process in processes}


class SteppedStore:
    """A store whose every call, and every single deletion, waits for its turn."""

    def __init__(self, store: CheckpointStore, wait: Callable[[], None]) -> None:
        self._store = store
        self._wait = wait

    def describe(self, path: str = "") -> str:
        return self._store.describe(path)

    def create(self, path: str, content: bytes) -> None:
        self._wait()
        self._store.create(path, content)

    def create_file(self, path: str) -> BinaryIO:
        self._wait()
        return self._store.create_file(path)

    def write_copy(self, path: str, content: bytes) -> None:
        self._wait()
        self._store.write_copy(path, content)

    def read(self, path: str) -> bytes:
        self._wait()
        return self._store.read(path)

    def open(self, path: str) -> BinaryIO:
        self._wait()
        return self._store.open(path)

    def list(self, folder: str) -> list[FileStatus]:
        self._wait()
        return self._store.list(folder)

    def delete(self, paths: Iterable[str]) -> None:
        for path in paths:
            self._wait()
            self._store.delete([path])
