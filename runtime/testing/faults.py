"""Wrappers that fail: before, instead, or after having done it.

Two coins for each call (Materialize's persist): should it happen, and should it be reported as a time
out. So "it happened and you were told nothing" is an ordinary case.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from typing import Any, BinaryIO, NoReturn

from onceflow.runtime.checkpoint.store import CheckpointStore, FileStatus
from onceflow.runtime.errors import Indeterminate, Retryable
from onceflow.runtime.testing.choices import Choices


class FaultyStore:
    """A CheckpointStore whose conditional create fails as `faults_left` allows.

    The three outcomes: not done (Retryable), done but unknown, and unknown and not done
    (Indeterminate both). `calm`: how many more fair outcomes there are while all is well, so that the
    faults are not spent on the first calls; after a fault the next one is near.
    """

    def __init__(self, store: CheckpointStore, choices: Choices, faults: int = 0, calm: int = 0) -> None:
        self._store = store
        self._choices = choices
        self._calm = calm
        self._is_calm = True
        self.faults_left = faults

    def describe(self, path: str = "") -> str:
        return self._store.describe(path)

    def create(self, path: str, content: bytes) -> None:
        courses = 4 + (self._calm if self._is_calm else 0)
        outcome = self._choices.choose(courses, "store: create") if self.faults_left > 0 else 0
        self._is_calm = outcome not in (1, 2, 3)
        if self._is_calm:
            self._store.create(path, content)
            return
        self.faults_left -= 1
        match outcome:
            case 1:
                raise Retryable(f"{self.describe(path)} was not created (injected)")
            case 2:
                raise Indeterminate(f"no answer on {self.describe(path)} (injected, not done)")
            case _:
                self._store.create(path, content)
                raise Indeterminate(f"no answer on {self.describe(path)} (injected, done)")

    def write_copy(self, path: str, content: bytes) -> None:
        self._store.write_copy(path, content)

    def create_file(self, path: str) -> BinaryIO:
        return self._store.create_file(path)

    def read(self, path: str) -> bytes:
        return self._store.read(path)

    def open(self, path: str) -> BinaryIO:
        return self._store.open(path)

    def list(self, folder: str) -> list[FileStatus]:
        return self._store.list(folder)

    def delete(self, paths: Iterable[str]) -> None:
        self._store.delete(paths)


class CrashAt:
    """Wraps any object of a contract: the process ends, without a goodbye, before or after one call.

        writer = CrashAt(writer, "commit", after=True)

    For real processes against real brokers; `nth` counts the calls of that method from 1.
    """

    def __init__(
        self,
        wrapped: object,
        method: str,
        *,
        after: bool,
        nth: int = 1,
        crash: Callable[[], NoReturn] = lambda: os._exit(137),
    ) -> None:
        self._wrapped = wrapped
        self._method = method
        self._after = after
        self._nth = nth
        self._calls = 0
        self._crash = crash

    def __getattr__(self, name: str) -> Any:
        attribute = getattr(self._wrapped, name)
        if name != self._method:
            return attribute

        def crashing(*arguments: Any, **options: Any) -> Any:
            self._calls += 1
            if self._calls == self._nth and not self._after:
                self._crash()
            result = attribute(*arguments, **options)
            if self._calls == self._nth:
                self._crash()
            return result

        return crashing
