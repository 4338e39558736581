"""An Iceberg table, appended to and by key, passes the suite of sinks that commit in the driver."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyiceberg.catalog import load_catalog

from onceflow.connectors.iceberg.iceberg_committer import committed_in
from onceflow.connectors.tables.file_names import ledger_name
from onceflow.runtime.checkpoint.memory_store import MemoryStore
from onceflow.runtime.checkpoint.state_files import AttemptStagedFiles
from onceflow.runtime.clock import ManualClock
from onceflow.runtime.contracts import (
    CommitterContext,
    CommittingSink,
    SinkCommitter,
    SinkContext,
    SinkWriter,
)
from onceflow.runtime.records import Records
from onceflow.runtime.testing.conformance import COMMITTER_CHECKS, CommittingSinkUnderTest
from onceflow.sinks.iceberg import IcebergSink
from tests.read_tables import read_iceberg

SCHEMA = pa.schema([("n", pa.int64()), ("day", pa.string())])


@pytest.mark.parametrize("key", [None, "n"], ids=["appended", "by key"])
@pytest.mark.parametrize("check", COMMITTER_CHECKS, ids=lambda check: check.__name__)
def test_iceberg(check: Callable[[CommittingSinkUnderTest], None], key: str | None, tmp_path: Path) -> None:
    catalog = {"type": "sql", "uri": f"sqlite:///{tmp_path}/catalog.db", "warehouse": f"file://{tmp_path}"}
    sink = IcebergSink(catalog, "shop.orders", key=key, create_table=True, partition_by="day")
    assert isinstance(sink, CommittingSink)
    store = MemoryStore()

    def open_writer(subtask: int, attempt: int) -> SinkWriter:
        restored_id = committed(catalog)
        files = AttemptStagedFiles(store, attempt, "out", subtask)
        return sink.open_writer(
            SinkContext("job", "beef", "out", subtask, 2, attempt, restored_id, files, ManualClock(), SCHEMA)
        )

    def open_committer(attempt: int) -> SinkCommitter:
        files = AttemptStagedFiles(store, attempt, "out", 0)
        context = CommitterContext("job", "beef", "out", attempt, 0, SCHEMA, ManualClock(), files)
        return sink.open_committer(context)

    def records(n: int) -> Records:
        return Records(pa.RecordBatch.from_pylist([{"n": n, "day": f"day {n % 2}"}], SCHEMA))

    def visible() -> list[int]:
        return [row["n"] for row in read_iceberg(load(catalog).metadata_location)]

    check(CommittingSinkUnderTest(open_writer, open_committer, records, visible))


def load(catalog: dict[str, str]) -> Any:
    return load_catalog(None, **catalog).load_table("shop.orders")


def committed(catalog: dict[str, str]) -> int:
    """The checkpoint with which a new attempt begins."""
    return committed_in(load(catalog), ledger_name("beef", "out")) or 0
