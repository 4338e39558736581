"""Staged output in files, as sinks get them: `contracts.StagedFiles`."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import BinaryIO
from urllib.parse import quote

from onceflow.runtime.checkpoint.copies import copy_path, create_copied_file
from onceflow.runtime.checkpoint.state_paths import STAGED_FOLDER, attempt_folder
from onceflow.runtime.checkpoint.store import CheckpointStore
from onceflow.runtime.errors import CorruptCheckpointError


class PromisedStagedFiles:
    """contracts.PromisedFiles and CopiedFiles: staged files of any attempt, for reading."""

    def __init__(
        self, store: CheckpointStore, on_healed: Callable[[str], None] = lambda problem: None
    ) -> None:
        """`on_healed(problem)`: see StateFiles."""
        self._store = store
        self._on_healed = on_healed

    def open(self, path: str) -> BinaryIO:
        try:
            return self._store.open(path)
        except FileNotFoundError:
            raise CorruptCheckpointError(
                f"{self._store.describe(path)} is gone: it holds output that a checkpoint promised"
            ) from None

    def open_copy(self, path: str) -> BinaryIO | None:
        try:
            return self._store.open(copy_path(path))
        except OSError:
            return None

    def healed(self, problem: str) -> None:
        self._on_healed(f"{problem}; read from its copy")


class AttemptStagedFiles:
    """contracts.StagedFiles and CopiedFiles for one writer of one attempt.

    `lane` tells the writers of an attempt apart (uid and subtask); a counter tells its files apart.
    """

    def __init__(
        self,
        store: CheckpointStore,
        attempt: int,
        uid: str,
        subtask: int,
        on_healed: Callable[[str], None] = lambda problem: None,
    ) -> None:
        """`on_healed(problem)`: see StateFiles."""
        self._store = store
        self._promised = PromisedStagedFiles(store, on_healed)
        self._prefix = f"{attempt_folder(STAGED_FOLDER, attempt)}/{quote(uid, safe='')}.{subtask}"
        self._numbers = itertools.count()

    def create(self, name: str) -> tuple[str, BinaryIO]:
        path = f"{self._prefix}.{next(self._numbers):08d}.{quote(name, safe='')}"
        return path, create_copied_file(self._store, path)

    def open(self, path: str) -> BinaryIO:
        return self._promised.open(path)

    def open_copy(self, path: str) -> BinaryIO | None:
        return self._promised.open_copy(path)

    def healed(self, problem: str) -> None:
        self._promised.healed(problem)
