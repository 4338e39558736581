"""From the path or URL that a user gives to the savepoint there, copied or pinned."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from onceflow.runtime.checkpoint.savepoints.pins import ABANDONED, pin_path, pinned_folder, record_path
from onceflow.runtime.checkpoint.savepoints.savepoint import RECORD_NAME, Savepoint, decode_savepoint
from onceflow.runtime.checkpoint.store import CheckpointStore
from onceflow.runtime.checkpoint.store_url import open_store
from onceflow.runtime.errors import CorruptCheckpointError, UsageError

_PINNED = re.compile(r"(?P<job>.+)/savepoints/(?P<id>[0-9a-f]{16})/*")


class NoSavepointError(UsageError):
    """No savepoint is in this folder."""


class SavepointFolder:
    """Where a savepoint is. Nothing is read before `read`."""

    def __init__(
        self, store: CheckpointStore, pinned_in: CheckpointStore | None = None, pin_id: str = ""
    ) -> None:
        """`store`: the folder itself. `pinned_in`: the checkpoint folder in which it is the pinned savepoint
        `pin_id`, if it is one."""
        self.store = store
        self._pinned_in = pinned_in
        self._pin_id = pin_id

    def describe(self) -> str:
        """The folder as a user finds it."""
        if self._pinned_in is not None:
            return self._pinned_in.describe(pinned_folder(self._pin_id))
        return self.store.describe()

    def read(self) -> Savepoint:
        """What is there. Raises UsageError if that is not a savepoint, CorruptCheckpointError, OSError."""
        if self._pinned_in is not None:
            content = _read(self._pinned_in, record_path(self._pin_id))
            if content not in (None, ABANDONED):
                return self._pinned(self._pinned_in, content)
        content = _read(self.store, RECORD_NAME)
        if content is None or content == ABANDONED:
            raise NoSavepointError(
                f"{self.describe()} is not a savepoint: it has no {RECORD_NAME}; "
                "`onceflow savepoint` takes one"
            )
        taken = decode_savepoint(content, self.store.describe(RECORD_NAME))
        if taken.is_pinned and self._pinned_in is None:
            raise UsageError(
                f"{self.describe()} was pinned in {taken.taken_of} and moved without its state: "
                "`onceflow savepoints export` makes one that can be moved"
            )
        return taken

    def _pinned(self, store: CheckpointStore, content: bytes) -> Savepoint:
        taken = decode_savepoint(content, store.describe(record_path(self._pin_id)))
        if taken.is_pinned and _read(store, pin_path(self._pin_id)) is None:
            raise CorruptCheckpointError(
                f"{self.describe()} has lost its pin, {store.describe(pin_path(self._pin_id))}, so the job "
                "may have deleted its state: take another savepoint"
            )
        return taken

    def files_of(self, taken: Savepoint) -> CheckpointStore:
        """Where the paths of its manifest lead from."""
        if not taken.is_pinned:
            return self.store
        assert self._pinned_in is not None, "`read` refuses it"
        return self._pinned_in


def savepoint_at(url: str, options: Mapping[str, Any] | None = None) -> SavepointFolder:
    """The savepoint at this path or URL. Nothing is contacted yet. `options`: see `open_store`, whose errors
    it raises."""
    store, found = open_store(url, options), _PINNED.fullmatch(url)
    if found is None:
        return SavepointFolder(store)
    return SavepointFolder(store, open_store(found["job"], options), found["id"])


def pinned_at(store: CheckpointStore, savepoint_id: str) -> SavepointFolder:
    """The savepoint of this id that is pinned in a checkpoint folder."""
    return SavepointFolder(store, store, savepoint_id)


def _read(store: CheckpointStore, path: str) -> bytes | None:
    try:
        return store.read(path)
    except FileNotFoundError:
        return None
