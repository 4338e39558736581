"""A function that remembers the batches it has seen makes of `foreach_batch` a sink that passes the suite of
sinks."""

from __future__ import annotations

from collections.abc import Callable

import pyarrow as pa
import pytest

from onceflow.runtime.checkpoint.memory_store import MemoryStore
from onceflow.runtime.checkpoint.state_files import AttemptStagedFiles
from onceflow.runtime.clock import ManualClock
from onceflow.runtime.contracts import BatchContext, SinkContext, SinkWriter
from onceflow.runtime.graph.functions import ArrowReader
from onceflow.runtime.records import Records
from onceflow.runtime.testing.conformance import SINK_CHECKS, SinkUnderTest
from onceflow.sinks.foreach import ForeachSink

SCHEMA = pa.schema([("n", pa.int64())])


@pytest.mark.parametrize("check", SINK_CHECKS, ids=lambda check: check.__name__)
def test_foreach_batch(check: Callable[[SinkUnderTest], None]) -> None:
    seen: dict[str, list[int]] = {}
    store = MemoryStore()

    def remember(batch: pa.RecordBatch, context: BatchContext) -> None:
        rows = batch.column(0).to_pylist()
        assert seen.setdefault(context.batch_id, rows) == rows, "a batch that comes again has the same rows"

    sink = ForeachSink(remember, ArrowReader(), is_per_record=False, takes_context=True)

    def open_writer(subtask: int, parallelism: int, attempt: int, restored: int) -> SinkWriter:
        files = AttemptStagedFiles(store, attempt, "out", subtask)
        return sink.open_writer(
            SinkContext(
                "job", "beef", "out", subtask, parallelism, attempt, restored, files, ManualClock(), SCHEMA
            )
        )

    def records(n: int) -> Records:
        return Records(pa.RecordBatch.from_pylist([{"n": n}], SCHEMA))

    check(SinkUnderTest(open_writer, records, lambda: [n for rows in seen.values() for n in rows]))
