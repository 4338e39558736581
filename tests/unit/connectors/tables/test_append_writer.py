"""AppendWriter: how many files there are, and what is in memory."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.fs as pafs
import pyarrow.parquet as pq
import pytest

from onceflow.connectors.tables.append_writer import (
    FILE_BYTES_MAX,
    OPEN_FILES_MAX,
    AppendedTable,
    AppendWriter,
    written_files,
)
from onceflow.connectors.tables.columns import FittedColumns
from onceflow.connectors.tables.file_names import FileNames
from onceflow.connectors.tables.file_store import FileStore
from onceflow.connectors.tables.grouping import groups
from onceflow.runtime.clock import ManualClock
from onceflow.runtime.contracts import Committable, NoFiles, SinkContext
from onceflow.runtime.errors import Retryable
from onceflow.runtime.records import Records

SCHEMA = pa.schema([("n", pa.int64())])


class ByValue:
    """A partition for each n."""

    def split(self, batch: pa.RecordBatch) -> Iterator[Any]:
        for rows in groups(batch, ["n"]):
            yield {"n": rows.column(0)[0].as_py()}, rows


def writer_in(folder: Path, restored_id: int = 0, attempt: int = 1, committed: int | None = None) -> Any:
    store = FileStore(pafs.LocalFileSystem(), str(folder), folder)
    table = AppendedTable(
        store, FileNames("beef.out"), FittedColumns(SCHEMA, ()), ByValue(), SCHEMA, lambda _: {}, committed
    )
    files: Any = NoFiles()
    context = SinkContext("job", "beef", "out", 0, 1, attempt, restored_id, files, ManualClock(), SCHEMA)
    writer = AppendWriter(context, table)
    writer.recover([])
    return writer


def rows(*numbers: int) -> Records:
    return Records(pa.RecordBatch.from_pydict({"n": numbers}, SCHEMA))


def read(folder: Path, committable: Committable) -> list[int]:
    found: list[int] = []
    for file in written_files([committable]):
        part = pq.read_table(folder / file.path)
        assert (len(part), (folder / file.path).stat().st_size) == (file.rows, file.bytes)
        assert set(part.column("n").to_pylist()) == {file.partition["n"]}
        found += part.column("n").to_pylist()
    return sorted(found)


def test_more_partitions_than_files_may_be_open(tmp_path: Path) -> None:
    writer = writer_in(tmp_path)
    numbers = list(range(2 * OPEN_FILES_MAX))
    writer.write(rows(*numbers))
    writer.write(rows(0, 1))
    committable = writer.pre_commit(1).stage()
    assert read(tmp_path, committable) == sorted([*numbers, 0, 1])
    assert len(written_files([committable])) == len(numbers) + 2


def test_an_aborted_checkpoint_is_part_of_the_next(tmp_path: Path) -> None:
    writer = writer_in(tmp_path)
    writer.write(rows(1))
    aborted = writer.pre_commit(1)
    writer.write(rows(2))
    assert read(tmp_path, writer.pre_commit(2).stage()) == [1, 2]
    assert read(tmp_path, aborted.stage()) == [1]
    writer.commit(2)
    assert written_files([writer.pre_commit(3).stage()]) == []


def test_a_file_that_could_not_be_finished_is_not_tried_again(tmp_path: Path) -> None:
    writer = writer_in(tmp_path)
    writer.write(rows(1))
    pre_commit = writer.pre_commit(1)
    (file,) = pre_commit.files
    file._file.close()
    with pytest.raises(ValueError, match="closed"):
        pre_commit.stage()
    with pytest.raises(Retryable, match="could not be finished"):
        writer.pre_commit(2).stage()


def test_a_large_file_is_closed_and_another_one_begun(tmp_path: Path) -> None:
    wide = pa.schema([("n", pa.int64())])
    writer = writer_in(tmp_path)
    batch = pa.RecordBatch.from_arrays([pa.array([7]).take(pa.array([0] * (1 << 20)))], schema=wide)
    count = FILE_BYTES_MAX // batch.nbytes + 2
    for _ in range(count):
        writer.write(Records(batch))
    assert len(written_files([writer.pre_commit(1).stage()])) == 2


def test_groups_keep_the_order_of_rows_and_tell_null_from_values() -> None:
    table = {"a": ["x", None, "x", "y"], "b": [1, 1, 2, 1], "n": [0, 1, 2, 3]}
    batch = pa.RecordBatch.from_pydict(table)
    found = [part.to_pydict() for part in groups(batch, ["a"])]
    assert sorted(part["n"] for part in found) == [[0, 2], [1], [3]]
    assert all(pc.count_distinct(part.column("a"), mode="all").as_py() == 1 for part in groups(batch, ["a"]))
    assert sorted(part.column("n").to_pylist() for part in groups(batch, ["a", "b"])) == [[0], [1], [2], [3]]


def test_what_is_swept_is_what_no_checkpoint_can_name(tmp_path: Path) -> None:
    first = writer_in(tmp_path)
    for checkpoint_id in (1, 1_500, 2_000):
        first.write(rows(checkpoint_id))
        first.pre_commit(checkpoint_id).stage()
    first.write(rows(9))  # after checkpoint 2000: in none
    assert numbers_of(tmp_path) == [0, 1, 1_500, 2_000]
    writer_in(tmp_path, 1_500, attempt=2, committed=2_000)
    assert numbers_of(tmp_path) == [0, 1, 1_500, 2_000], "the ledger is ahead: nothing is touched"
    writer_in(tmp_path, 2_000, attempt=2, committed=2_000)
    assert numbers_of(tmp_path) == [0, 1, 1_500]
    late = writer_in(tmp_path, 2_000, attempt=3)
    late.write(rows(9))
    writer_in(tmp_path, 1_500, attempt=2)
    assert numbers_of(tmp_path) == [0, 1, 2_000], "a zombie takes nothing of later attempts"


def numbers_of(folder: Path) -> list[int]:
    """The checkpoints after which the files were begun."""
    return sorted(int(path.name.split(".")[0]) for path in folder.rglob("*.parquet"))
