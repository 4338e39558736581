"""A reader's pin: made, looked behind, taken away, or left and deleted later."""

from __future__ import annotations

import shutil
from collections.abc import Iterable
from pathlib import Path

import pytest

from onceflow.runtime.checkpoint.memory_store import MemoryStore
from onceflow.runtime.checkpoint.savepoints.pins import PATIENCE_MS
from onceflow.runtime.checkpoint.savepoints.reading_pins import pin_to_read
from onceflow.runtime.checkpoint.store_url import open_store
from onceflow.runtime.clock import ManualClock
from onceflow.runtime.errors import Retryable

PROGRAMS = Path(__file__).parents[1] / "changed_programs"


@pytest.fixture
def folder(tmp_path: Path) -> str:
    return str(shutil.copytree(PROGRAMS / "golden_3", tmp_path / "checkpoints"))


def test_a_pin_that_was_left_goes_after_an_hour(folder: str) -> None:
    store, clock = open_store(folder), ManualClock(1_000_000)
    pin_to_read(store, clock)
    clock.advance(PATIENCE_MS)
    _, second = pin_to_read(store, clock)
    assert len(list(store.list("savepoints"))) == 2
    clock.advance(2)
    _, third = pin_to_read(store, clock)
    left = {status.path.split("/")[1] for status in store.list("savepoints")}
    assert left == {second, third}


class Copied(MemoryStore):
    """The log of a folder, in memory."""

    def __init__(self, folder: str) -> None:
        super().__init__()
        store = open_store(folder)
        for status in store.list("log"):
            super().create(status.path, store.read(status.path))


class Dropping(Copied):
    """What a reader finds whose checkpoint is dropped whenever he pins it."""

    is_pinned = False

    def create(self, path: str, content: bytes) -> None:
        super().create(path, content)
        self.is_pinned = True

    def read(self, path: str) -> bytes:
        if self.is_pinned and "log/" in path:
            raise FileNotFoundError(path)
        return super().read(path)

    def delete(self, paths: Iterable[str]) -> None:
        super().delete(paths)
        self.is_pinned = False


class ReadOnly(Copied):
    def create(self, path: str, content: bytes) -> None:
        raise PermissionError(path)


def test_a_checkpoint_that_is_dropped_before_it_is_pinned(folder: str) -> None:
    store = Dropping(folder)
    with pytest.raises(Retryable, match="run it with a higher --retained"):
        pin_to_read(store, ManualClock())
    assert not list(store.list("savepoints"))


def test_a_folder_that_cannot_be_written_is_read_without_a_pin(folder: str) -> None:
    manifest, pin = pin_to_read(ReadOnly(folder), ManualClock())
    assert (manifest.checkpoint_id, pin) == (2, None)
