"""Rows that wait in the checkpoint folder: the same ones for whoever commits them, or none at all."""

from __future__ import annotations

import errno
from typing import BinaryIO

import numpy as np
import pyarrow as pa
import pytest

from onceflow.cli.checkpoints import read_staged_output
from onceflow.connectors.staged_rows import BATCH_ROWS_MAX, StagedRowsWriter, are_row_files, row_files
from onceflow.runtime.checkpoint.copies import copy_path
from onceflow.runtime.checkpoint.memory_store import MemoryStore
from onceflow.runtime.checkpoint.staged_files import AttemptStagedFiles, PromisedStagedFiles
from onceflow.runtime.clock import ManualClock
from onceflow.runtime.contracts import Committable, SinkContext, StagedFiles
from onceflow.runtime.errors import CorruptCheckpointError
from onceflow.runtime.records import Records

SCHEMA = pa.schema([("n", pa.int64())])


@pytest.fixture
def store() -> MemoryStore:
    return MemoryStore()


def writer(files: StagedFiles, memory_bytes_max: int = 1 << 20) -> StagedRowsWriter:
    context = SinkContext("job", "beef", "out", 3, 4, 1, 0, files, ManualClock(), SCHEMA)
    return StagedRowsWriter(context, memory_bytes_max)


def rows(*numbers: int) -> Records:
    return Records(pa.RecordBatch.from_pylist([{"n": n} for n in numbers], SCHEMA))


def read(store: MemoryStore, committable: Committable) -> list[int]:
    files = PromisedStagedFiles(store)
    batches = [batch for file in row_files(committable) for batch in file.batches(files)]
    return [n for batch in batches for n in batch.column(0).to_pylist()]


def test_rows_come_back_in_their_order_also_what_was_too_much_for_the_memory(store: MemoryStore) -> None:
    out = writer(AttemptStagedFiles(store, 1, "out", 3), memory_bytes_max=100)
    for first in range(0, 100, 10):
        out.write(rows(*range(first, first + 10)))
    out.write(rows())
    committable = out.pre_commit(1).stage()
    assert (committable.uid, committable.owner, committable.checkpoint_id) == ("out", "3", 1)
    assert len(committable.paths) > 1
    assert read(store, committable) == list(range(100))


@pytest.mark.parametrize("is_staged", [True, False], ids=["staged", "in memory"])
def test_small_batches_are_gathered_and_a_large_one_stays_whole(is_staged: bool, store: MemoryStore) -> None:
    """A store that takes a statement for each batch would fall behind a stream that trickles in."""
    out = writer(AttemptStagedFiles(store, 1, "out", 3), memory_bytes_max=1 << 30)
    sizes = [1] * 50 + [BATCH_ROWS_MAX - 50, 1, BATCH_ROWS_MAX + 5, 2, 3]
    ends = np.cumsum(sizes)
    for end, size in zip(ends, sizes, strict=True):
        out.write(Records(pa.record_batch([pa.array(range(end - size, end), pa.int64())], schema=SCHEMA)))
    promise = out.pre_commit(1)
    if is_staged:
        files = PromisedStagedFiles(store)
        batches = [batch for file in row_files(promise.stage()) for batch in file.batches(files)]
    else:
        batches = list(out.rows(1))
    assert [batch.num_rows for batch in batches] == [BATCH_ROWS_MAX, 1, BATCH_ROWS_MAX + 5, 5]
    assert pa.Table.from_batches(batches).column("n").to_pylist() == list(range(ends[-1]))


def test_what_is_not_committed_is_part_of_the_next_checkpoint_and_written_once(store: MemoryStore) -> None:
    out = writer(AttemptStagedFiles(store, 1, "out", 3))
    out.write(rows(1))
    first = out.pre_commit(1)
    out.write(rows(2))
    second = out.pre_commit(2).stage()
    assert read(store, second) == [1, 2]
    assert first.stage().paths == second.paths[:1], "a late stage of the aborted one writes nothing anew"
    assert [file.rows for file in out.promised(2)] == [1, 1]
    out.forget(2)
    assert out.pre_commit(3).stage().paths == []


class FullOnce:
    """A disk that is full at the first file."""

    def __init__(self, files: StagedFiles) -> None:
        self._files = files
        self._is_full = True

    def create(self, name: str) -> tuple[str, BinaryIO]:
        if self._is_full:
            self._is_full = False
            raise OSError(errno.ENOSPC, "full")
        return self._files.create(name)

    def open(self, path: str) -> BinaryIO:
        return self._files.open(path)


def test_a_stage_that_failed_is_made_up_for_by_the_next(store: MemoryStore) -> None:
    out = writer(FullOnce(AttemptStagedFiles(store, 1, "out", 3)))
    out.write(rows(1))
    with pytest.raises(OSError, match="full"):
        out.pre_commit(1).stage()
    assert read(store, out.pre_commit(2).stage()) == [1]


def test_nothing_of_a_damaged_file_is_handed_on(store: MemoryStore) -> None:
    out = writer(AttemptStagedFiles(store, 1, "out", 3))
    out.write(rows(*range(1_000)))
    committable = out.pre_commit(1).stage()
    (path,) = committable.paths
    store.write_copy(path, store.read(path)[:-9] + b"123456789")
    assert read(store, committable) == list(range(1_000)), "its copy is whole"
    store.delete([copy_path(path)])
    with pytest.raises(CorruptCheckpointError, match=f"staged rows {path} are damaged"):
        read(store, committable)


# --- What `onceflow checkpoints --verify` reads of them ---


def test_rows_that_wait_are_verified_and_what_was_read_from_a_copy_is_told(store: MemoryStore) -> None:
    out = writer(AttemptStagedFiles(store, 1, "out", 3))
    out.write(rows(1, 2))
    committable = out.pre_commit(1).stage()
    said: list[str] = []
    read_staged_output(store, committable, said.append)
    assert said == []
    [path] = committable.paths
    store.write_copy(path, store.read(path)[:-1])
    read_staged_output(store, committable, said.append)
    [problem] = said
    assert problem.startswith(f"operator 'out': staged rows {path} are damaged")
    assert problem.endswith("; read from its copy")
    store.delete([copy_path(path)])
    with pytest.raises(CorruptCheckpointError, match="are damaged"):
        read_staged_output(store, committable, said.append)


@pytest.mark.parametrize("files", [None, "abc", [{"path": "a"}], ["a"], [{"path": "b", "rows": 1}]])
def test_what_another_sink_has_staged_is_for_it_to_read(files: object) -> None:
    assert not are_row_files(Committable("out", "3", 1, {"files": files}, ["a"]))
