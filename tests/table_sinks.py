"""A sink of a table as the engine drives it, in one process: a writer, the committer, checkpoint by
checkpoint; and as the suite of the contract drives it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from onceflow.runtime.checkpoint.memory_store import MemoryStore
from onceflow.runtime.checkpoint.staged_files import AttemptStagedFiles
from onceflow.runtime.clock import ManualClock, SystemClock
from onceflow.runtime.contracts import (
    Committable,
    CommitterContext,
    SinkCommitter,
    SinkContext,
    SinkWriter,
)
from onceflow.runtime.driver.committers import commit_once
from onceflow.runtime.records import Records
from onceflow.runtime.testing.conformance import CommittingSinkUnderTest

Row = Mapping[str, Any]
ORDERS = pa.schema([("id", pa.int64()), ("day", pa.string()), ("cents", pa.int32())])
NUMBERED = pa.schema([("n", pa.int64()), ("day", pa.string())])
LINEAGE = "beef"


def order(n: int, cents: int = 1, day: str | None = "mon") -> dict[str, Any]:
    """A row of ORDERS."""
    return {"id": n, "day": day, "cents": cents}


def under_test(
    sink: Any, committed: Callable[[], int], visible: Callable[[], list[int]]
) -> CommittingSinkUnderTest:
    """A sink of rows of NUMBERED, for the suite. `committed`: the checkpoint with which a new attempt
    begins."""
    store = MemoryStore()

    def open_writer(subtask: int, attempt: int) -> SinkWriter:
        files = AttemptStagedFiles(store, attempt, "out", subtask)
        where = ("job", LINEAGE, "out", subtask, 2, attempt, committed())
        writer: SinkWriter = sink.open_writer(SinkContext(*where, files, ManualClock(), NUMBERED))
        return writer

    def open_committer(attempt: int) -> SinkCommitter:
        files = AttemptStagedFiles(store, attempt, "out", 0)
        context = CommitterContext("job", LINEAGE, "out", attempt, 0, NUMBERED, ManualClock(), files)
        committer: SinkCommitter = sink.open_committer(context)
        return committer

    def records(n: int) -> Records:
        return Records(pa.RecordBatch.from_pylist([{"n": n, "day": f"day {n % 2}"}], NUMBERED))

    return CommittingSinkUnderTest(open_writer, open_committer, records, visible)


class TableJob:
    """One attempt of a job that writes to a table."""

    def __init__(
        self,
        sink: Any,
        schema: pa.Schema,
        attempt: int = 1,
        restored_id: int = 0,
        store: MemoryStore | None = None,
        lineage: str = LINEAGE,
        promised: Sequence[Committable] = (),
    ) -> None:
        """`promised`: by the restored checkpoint; it is committed before the slots start."""
        self.store = store or MemoryStore()
        files, clock = AttemptStagedFiles(self.store, attempt, "out", 0), SystemClock()
        sink.check(schema, "out")
        self.schema = schema
        self.committer = sink.open_committer(
            CommitterContext("job", lineage, "out", attempt, restored_id, schema, clock, files)
        )
        if promised:
            commit_once(self.committer, "out", restored_id, promised)
        self.writer = sink.open_writer(
            SinkContext("job", lineage, "out", 0, 1, attempt, restored_id, files, clock, schema)
        )
        self.writer.recover([])

    def promise(
        self, checkpoint_id: int, rows: Sequence[Row], kinds: Sequence[int] | None = None
    ) -> list[Committable]:
        """Write rows, and pre-commit."""
        batch = pa.RecordBatch.from_pylist([dict(row) for row in rows], self.schema)
        self.writer.write(Records(batch, kind=None if kinds is None else np.array(kinds, np.int8)))
        return [self.writer.pre_commit(checkpoint_id).stage()]

    def checkpoint(self, checkpoint_id: int, rows: Sequence[Row], kinds: Sequence[int] | None = None) -> None:
        """A whole checkpoint."""
        commit_once(self.committer, "out", checkpoint_id, self.promise(checkpoint_id, rows, kinds))
        self.writer.commit(checkpoint_id)

    def close(self) -> None:
        self.writer.close()
        self.committer.close()
