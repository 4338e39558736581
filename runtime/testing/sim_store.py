"""The checkpoint store of the simulation: watched, with a crash around every write; and damage to it."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import BinaryIO, Protocol

from onceflow.runtime.checkpoint.copies import COPIES_FOLDER, copy_path
from onceflow.runtime.checkpoint.memory_store import MemoryStore
from onceflow.runtime.checkpoint.store import CheckpointStore, FileStatus
from onceflow.runtime.testing.choices import Choices


def damage(store: MemoryStore, choices: Choices, can_delete: bool) -> str:
    """Alter, cut or delete a file that is there twice, or its copy; what was done, "" if none is."""
    originals = [
        status.path
        for status in store.list("")
        if not status.path.startswith(f"{COPIES_FOLDER}/") and _is_there_twice(store, status.path)
    ]
    if not originals:
        return ""
    path = originals[choices.choose(len(originals), "damaged file")]
    if choices.choose(2, "original or copy"):
        path = copy_path(path)
    content = store.read(path)
    place = choices.choose(len(content), "damaged byte")
    store.delete([path])
    match choices.choose(3 if can_delete else 2, "damage"):
        case 0:
            altered = bytes([content[place] ^ 1 << choices.choose(8, "bit")])
            store.create(path, content[:place] + altered + content[place + 1 :])
            return f"{path} was altered at byte {place}"
        case 1:
            store.create(path, content[:place])
            return f"{path} was cut to {place} bytes"
        case _:
            return f"{path} was deleted"


def _is_there_twice(store: MemoryStore, path: str) -> bool:
    try:
        content = store.read(path)
        return bool(content) and store.read(copy_path(path)) == content
    except FileNotFoundError:
        return False


class WorldChecker(Protocol):
    """What a world tells of all that is durable and visible. Raises Violation."""

    attempt: int
    """The latest in the log."""

    def on_log_entry(self, path: str, content: bytes) -> None: ...

    def on_delete(self, path: str) -> None: ...

    def check_complete(self) -> None:
        """The job has finished."""


class WatchedStore:
    """The durable store: the checker hears of every entry, a crash may hit around every write."""

    def __init__(self, store: CheckpointStore, checker: WorldChecker, point: Callable[[str], None]) -> None:
        self._store = store
        self._checker = checker
        self._point = point

    def describe(self, path: str = "") -> str:
        return self._store.describe(path)

    def create(self, path: str, content: bytes) -> None:
        self._point("before create")
        self._store.create(path, content)
        self._checker.on_log_entry(path, content)
        self._point("after create")

    def write_copy(self, path: str, content: bytes) -> None:
        self._point("before write_copy")
        self._store.write_copy(path, content)

    def create_file(self, path: str) -> BinaryIO:
        self._point("before create_file")
        return self._store.create_file(path)

    def read(self, path: str) -> bytes:
        return self._store.read(path)

    def open(self, path: str) -> BinaryIO:
        return self._store.open(path)

    def list(self, folder: str) -> list[FileStatus]:
        return self._store.list(folder)

    def delete(self, paths: Iterable[str]) -> None:
        for path in paths:
            self._point("delete")
            self._checker.on_delete(path)
            self._store.delete([path])
