"""Copies the rows of a growing folder, or of a queue, into a folder table, until it is told to stop.

python folder_copy.py FOLDER files|queue [METHOD before|after NTH]: where the committer ends the process
"""

from __future__ import annotations

import sys
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from onceflow.runtime.api.job import Job
from onceflow.runtime.contracts import CommitterContext, SinkContext, SinkWriter
from onceflow.runtime.testing.connectors.folder_queue import FolderQueue
from onceflow.runtime.testing.connectors.folder_source import FolderSource
from onceflow.runtime.testing.connectors.folder_table import FolderTable
from onceflow.runtime.testing.faults import CrashAt

SCHEMA = pa.schema([("n", pa.int64())])


@dataclass(frozen=True)
class CrashingTable:
    """A folder table whose committer ends the process at a call."""

    table: FolderTable
    method: str
    is_after: bool
    nth: int

    def check(self, schema: pa.Schema, uid: str) -> None:
        self.table.check(schema, uid)

    def open_writer(self, context: SinkContext) -> SinkWriter:
        return self.table.open_writer(context)

    def open_committer(self, context: CommitterContext) -> Any:
        committer = self.table.open_committer(context)
        return CrashAt(committer, self.method, after=self.is_after, nth=self.nth)


def main(folder: str, kind: str, method: str = "", when: str = "", nth: str = "0") -> None:
    job = Job("copy")
    source_of = FolderSource if kind == "files" else FolderQueue
    rows = job.source(source_of(f"{folder}/in", SCHEMA), uid=kind)
    table = FolderTable(f"{folder}/table")
    crashing = CrashingTable(table, method, when == "after", int(nth))
    rows.sink_to(crashing if method else table, uid="table")
    job.run(f"{folder}/checkpoints", master="threads[2]", checkpoint_interval="100 ms")


if __name__ == "__main__":
    main(*sys.argv[1:])
