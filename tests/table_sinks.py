"""A sink of a table as the engine drives it, in one process: a writer, the committer, checkpoint by
checkpoint."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from onceflow.runtime.checkpoint.memory_store import MemoryStore
from onceflow.runtime.checkpoint.state_files import AttemptStagedFiles
from onceflow.runtime.clock import SystemClock
from onceflow.runtime.contracts import Committable, CommitterContext, SinkContext
from onceflow.runtime.driver.committers import commit_once
from onceflow.runtime.records import Records

Row = Mapping[str, Any]


class TableJob:
    """One attempt of a job that writes to a table."""

    def __init__(
        self,
        sink: Any,
        schema: pa.Schema,
        attempt: int = 1,
        restored_id: int = 0,
        store: MemoryStore | None = None,
        lineage: str = "beef",
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
