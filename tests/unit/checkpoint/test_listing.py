"""What `onceflow checkpoints DIR` shows, also of a folder whose job completes and removes checkpoints."""

from __future__ import annotations

import pytest

from onceflow.runtime.checkpoint import events as ev
from onceflow.runtime.checkpoint import listing
from onceflow.runtime.checkpoint.listing import CheckpointStatus, list_checkpoints
from onceflow.runtime.checkpoint.memory_store import MemoryStore
from onceflow.runtime.checkpoint.store import CheckpointStore, FileStatus
from onceflow.runtime.errors import UsageError
from onceflow.runtime.testing.mutation import Mutant, mutated
from tests.unit.checkpoint.test_io import driver, opened, write_checkpoint


def test_the_list_shows_completed_incomplete_and_unreadable() -> None:
    store = MemoryStore()
    with pytest.raises(UsageError, match="not a checkpoint folder"):
        list_checkpoints(store)
    io = driver(store)
    base = opened(io).manifest
    write_checkpoint(io, store, base, 1, 1)
    store.create("state/attempt-000001/0000000002.op.0.arrows", b"half")
    store.create("log/0000000004.json", b"{torn")
    lines = {(line.status, line.checkpoint_id): line for line in list_checkpoints(store)}
    assert lines[CheckpointStatus.COMPLETED, 1].total_bytes == 10
    assert lines[CheckpointStatus.INCOMPLETE, 2].total_bytes == 4
    assert "log/0000000004.json" in lines[CheckpointStatus.UNREADABLE, None].problem


class Hurried(MemoryStore):
    """Its job completes a checkpoint, and retention removes the one before, whenever files are counted."""

    def __init__(self, times: int) -> None:
        super().__init__()
        self.left, self.last = 0, 1
        self.io = driver(self, retained=1)
        self.base = opened(self.io).manifest
        self.left = times
        write_checkpoint(self.io, self, self.base, 1, self.last)

    def list(self, folder: str) -> list[FileStatus]:
        if folder == "state" and self.left > 0:
            self.left -= 1
            self.last += 1
            write_checkpoint(self.io, self, self.base, 1, self.last)
            self.io.execute(ev.Subsume(1, self.last))
        return super().list(folder)


def completed(store: CheckpointStore) -> list[int | None]:
    return [
        line.checkpoint_id for line in list_checkpoints(store) if line.status is CheckpointStatus.COMPLETED
    ]


def test_the_list_is_made_anew_where_retention_was_faster() -> None:
    """It was empty then, as if no checkpoint had ever completed."""
    store = Hurried(times=3)
    assert completed(store) == [store.last]
    with mutated(Mutant("one look is enough", [(listing, "LOOKS_MAX", 1)])):
        assert completed(Hurried(times=3)) == []
