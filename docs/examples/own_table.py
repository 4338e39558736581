"""A sink with one commit for all its writers, examined. The table is small and whole: folder_table.py."""

from pathlib import Path
from tempfile import mkdtemp
from typing import Any

import pyarrow as pa
from onceflow import Job
from onceflow.runtime.clock import Clock, SystemClock
from onceflow.runtime.contracts import (
    CommitterContext,
    CommittingSink,
    CopiedFiles,
    NoFiles,
    PromisedFiles,
    SinkCommitter,
    SinkContext,
    SinkWriter,
)
from onceflow.runtime.errors import CorruptCheckpointError
from onceflow.runtime.records import Records
from onceflow.runtime.testing.conformance import (
    COMMITTER_CHECKS,
    CommittingSinkUnderTest,
)
from onceflow.runtime.testing.connectors.folder_table import FolderTable
from onceflow.testing.kit import CommittingSinkKit

schema = pa.schema([("n", pa.int64())])
clock: Clock = SystemClock()
files: PromisedFiles = NoFiles()
staged: Any = files  # this sink stages nothing: its rows wait in the table's own folder


def case() -> CommittingSinkUnderTest:
    table = FolderTable(mkdtemp())
    assert isinstance(table, CommittingSink)

    def open_writer(subtask: int, attempt: int) -> SinkWriter:
        context = SinkContext(
            "job", "beef", "out", subtask, 2, attempt, 0, staged, clock, schema
        )
        return table.open_writer(context)

    def open_committer(attempt: int) -> SinkCommitter:
        return table.open_committer(
            CommitterContext("job", "beef", "out", attempt, 0, schema, clock, files)
        )

    def records(n: int) -> Records:
        return Records(pa.RecordBatch.from_pylist([{"n": n}], schema))

    return CommittingSinkUnderTest(
        open_writer, open_committer, records, lambda: table.read()["n"].to_pylist()
    )


for check in COMMITTER_CHECKS:
    check(case())

try:  # in a job, `files` has what the committables name; small ones twice (CopiedFiles)
    assert not isinstance(files, CopiedFiles)
    files.open("staged/1")
except CorruptCheckpointError as error:
    assert "staged/1" in str(error)

table = FolderTable(mkdtemp())
job = Job("to-a-table")
job.from_elements(1, 2, 3).sink_to(table, uid="table")
job.run(master="threads[2]")
assert sorted(table.read()["value"].to_pylist()) == [1, 2, 3]


class TestTable(CommittingSinkKit):
    """The same checks and many more, each a test: what a file of your own would be."""

    def sink(self) -> FolderTable:
        return FolderTable(f"{self.folder}/table")

    def visible(self) -> list[int]:
        there = Path(self.folder, "table").exists()
        return self.sink().read()["n"].to_pylist() if there else []
