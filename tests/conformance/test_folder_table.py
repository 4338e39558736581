"""The folder table passes the suite of sinks that commit in the driver, and refuses what does not fit."""

from __future__ import annotations

import io
from pathlib import Path
from typing import BinaryIO

import pyarrow as pa
import pytest

from onceflow.runtime.clock import ManualClock
from onceflow.runtime.contracts import CommitterContext, SinkContext
from onceflow.runtime.errors import Fatal
from onceflow.runtime.records import Records
from onceflow.runtime.testing.connectors.folder_table import FolderTable
from onceflow.testing.kit import CommittingSinkKit

SCHEMA = pa.schema([("n", pa.int64())])


class NoFiles:
    def create(self, name: str) -> tuple[str, BinaryIO]:
        return name, io.BytesIO()

    def open(self, path: str) -> BinaryIO:
        return io.BytesIO()


def context(subtask: int, attempt: int, schema: pa.Schema = SCHEMA) -> SinkContext:
    return SinkContext("job", "beef", "out", subtask, 2, attempt, 0, NoFiles(), ManualClock(), schema)


class TestFolderTable(CommittingSinkKit):
    def sink(self) -> FolderTable:
        return FolderTable(f"{self.folder}/table")

    def visible(self) -> list[int]:
        return read(self.sink()) if Path(f"{self.folder}/table").exists() else []


def read(table: FolderTable) -> list[int]:
    return table.read().column("n").to_pylist()  # type: ignore[no-any-return]


def test_a_table_with_other_columns_is_refused_in_one_sentence(tmp_path: Path) -> None:
    table = FolderTable(str(tmp_path))
    table.open_writer(context(0, 1))
    table.open_writer(context(1, 1))
    with pytest.raises(Fatal) as refusal:
        table.open_writer(context(0, 1, pa.schema([("n", pa.string()), ("at", pa.int64())])))
    assert str(refusal.value) == (
        f"the table {tmp_path} has the columns n: int64, and sink 'out' writes n: string, at: int64: "
        "write to another table, or select what this one has"
    )


def test_two_jobs_write_to_one_table(tmp_path: Path) -> None:
    """Each has a ledger of its own; the slower one asks again."""
    table = FolderTable(str(tmp_path))
    one, two = (
        table.open_committer(CommitterContext("job", lineage, "out", 1, 0, SCHEMA, ManualClock()))
        for lineage in ("aa", "bb")
    )
    writer = table.open_writer(context(0, 1))
    writer.write(Records(pa.RecordBatch.from_pylist([{"n": 1}], SCHEMA)))
    promised = [writer.pre_commit(1).stage()]
    assert one.last_committed() is two.last_committed() is None
    one.commit(1, promised)
    assert two.last_committed() is None
    two.commit(7, promised)
    assert (one.last_committed(), two.last_committed()) == (1, 7)
    assert read(table) == [1, 1]
