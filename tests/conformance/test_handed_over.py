"""Sinks whose rows are handed on in the driver pass the suite of sinks that commit there."""

from __future__ import annotations

import io
from collections.abc import Callable
from contextlib import redirect_stdout
from typing import Any

import pyarrow as pa
import pytest

from onceflow.runtime.api.collected import Collected
from onceflow.runtime.checkpoint.events import Outcome
from onceflow.runtime.checkpoint.memory_store import MemoryStore
from onceflow.runtime.checkpoint.state_files import AttemptStagedFiles, PromisedStagedFiles
from onceflow.runtime.clock import ManualClock
from onceflow.runtime.contracts import CommitterContext, SinkCommitter, SinkContext, SinkWriter
from onceflow.runtime.graph.steps import Rows
from onceflow.runtime.records import Records
from onceflow.runtime.testing.conformance import COMMITTER_CHECKS, CommittingSinkUnderTest
from onceflow.sinks.collect import CollectSink
from onceflow.sinks.print import PrintSink

SCHEMA = pa.schema([("n", pa.int64())])
Check = Callable[[CommittingSinkUnderTest], None]


def under_test(sink: Any, visible: Callable[[], list[int]]) -> CommittingSinkUnderTest:
    store, clock = MemoryStore(), ManualClock()

    def open_writer(subtask: int, attempt: int) -> SinkWriter:
        files = AttemptStagedFiles(store, attempt, "out", subtask)
        return sink.open_writer(  # type: ignore[no-any-return]
            SinkContext("job", "beef", "out", subtask, 2, attempt, 0, files, clock, SCHEMA)
        )

    def open_committer(attempt: int) -> SinkCommitter:
        restored = 0 if attempt == 1 else 1
        files = PromisedStagedFiles(store)
        return sink.open_committer(  # type: ignore[no-any-return]
            CommitterContext("job", "beef", "out", attempt, restored, SCHEMA, clock, files)
        )

    def records(n: int) -> Records:
        return Records(pa.RecordBatch.from_pylist([{"n": n}], SCHEMA))

    return CommittingSinkUnderTest(open_writer, open_committer, records, visible)


@pytest.mark.parametrize("check", COMMITTER_CHECKS, ids=lambda check: check.__name__)
def test_printing(check: Check) -> None:
    shown = io.StringIO()
    with redirect_stdout(shown):
        check(under_test(PrintSink(), lambda: [int(line[6:-1]) for line in shown.getvalue().splitlines()]))


@pytest.mark.parametrize("check", COMMITTER_CHECKS, ids=lambda check: check.__name__)
def test_collecting(check: Check) -> None:
    rows: Collected[Any] = Collected("job", "out", Rows(SCHEMA, None, False))

    def visible() -> list[int]:
        rows.on_end(Outcome.FINISHED)
        return [row["n"] for row in rows]

    check(under_test(CollectSink(rows, 1 << 20), visible))
