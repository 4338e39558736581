"""Output that can't be staged at one checkpoint is whole at the next, or fails until it is made anew."""

from __future__ import annotations

import io
from typing import BinaryIO

import pyarrow as pa
import pytest

from onceflow.connectors.kafka.client import PRODUCE_SCHEMA
from onceflow.connectors.kafka.transactions.held import HeldOutput, RestoredOutput
from onceflow.runtime.errors import Retryable


class _File(io.BytesIO):
    """Keeps its content when it is closed; the disk is full after `room` bytes."""

    def __init__(self, room: int, disk: FullDisk) -> None:
        super().__init__()
        self.room = room
        self.disk = disk
        self.content = b""

    def write(self, block: bytes) -> int:  # type: ignore[override]
        if self.tell() + len(block) > self.room:
            raise OSError(28, "No space left on device")
        return super().write(block)

    def close(self) -> None:
        if not self.disk.has_room_to_close:
            raise OSError(28, "No space left on device")
        if not self.closed:
            self.content = self.getvalue()
        super().close()


class FullDisk:
    """StagedFiles whose n-th file has so much room."""

    def __init__(self, *rooms: int) -> None:
        self.rooms = list(rooms)
        self.files: dict[str, _File] = {}
        self.has_room_to_close = True

    def create(self, name: str) -> tuple[str, BinaryIO]:
        path = f"{len(self.files)}.{name}"
        self.files[path] = _File(self.rooms.pop(0) if self.rooms else 1 << 30, self)
        return path, self.files[path]

    def open(self, path: str) -> BinaryIO:
        return io.BytesIO(self.files[path].content)


def rows(*values: bytes) -> pa.RecordBatch:
    record = {"topic": "out", "partition": 0, "key": None, "timestamp": None, "headers": None}
    return pa.RecordBatch.from_pylist([{**record, "value": v} for v in values], schema=PRODUCE_SCHEMA)


def values_of(output: HeldOutput | RestoredOutput) -> list[bytes]:
    return [value for batch in output.batches() for value in batch["value"].to_pylist()]


@pytest.mark.parametrize("room", [0, 100, 1_000, 2_000])
def test_rows_in_memory_are_staged_whole_after_the_disk_was_full(room: int) -> None:
    files = FullDisk(room)
    held = HeldOutput(files, memory_bytes_max=1 << 20)
    held.add(rows(b"a" * 700))
    held.add(rows(b"b" * 700))
    held.freeze(1)
    with pytest.raises(OSError, match="No space left"):
        held.stage()
    staged = held.stage()
    assert staged.rows == 2
    assert values_of(RestoredOutput(staged, files)) == values_of(held) == [b"a" * 700, b"b" * 700]


def test_rows_in_memory_are_staged_whole_after_a_file_could_not_be_closed() -> None:
    files = FullDisk()
    held = HeldOutput(files, memory_bytes_max=1 << 20)
    held.add(rows(b"a" * 700))
    held.freeze(1)
    files.has_room_to_close = False
    with pytest.raises(OSError, match="No space left"):
        held.stage()
    files.has_room_to_close = True
    assert values_of(RestoredOutput(held.stage(), files)) == [b"a" * 700]


def test_rows_that_were_only_in_a_spilled_file_are_never_staged_in_part() -> None:
    files = FullDisk(4_000)
    held = HeldOutput(files, memory_bytes_max=1_000)
    held.add(rows(b"a" * 1_500))  # spilled
    held.add(rows(b"b" * 700))
    held.add(rows(b"c" * 200))
    held.freeze(1)
    files.files["0.output.arrows"].room = 0
    with pytest.raises(OSError, match="No space left"):
        held.stage()
    for _ in range(2):
        with pytest.raises(Retryable, match="No space left"):
            held.stage()
