"""Files of each format, here and on another file system, pass the suite of sinks that commit in the
driver."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import fsspec
import pyarrow as pa
import pytest

from onceflow.connectors.files.source import files_source
from onceflow.runtime.clock import ManualClock
from onceflow.runtime.contracts import (
    CommitterContext,
    CommittingSink,
    NoFiles,
    ReaderContext,
    SinkCommitter,
    SinkContext,
    SinkWriter,
)
from onceflow.runtime.records import Records
from onceflow.runtime.testing.conformance import COMMITTER_CHECKS, CommittingSinkUnderTest
from onceflow.sinks.files import file_sink

SCHEMA = pa.schema([("n", pa.int64())])


PLACES = ["here parquet", "here jsonl", "here csv", "memory jsonl"]


@pytest.fixture(params=PLACES)
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[tuple[str, str]]:
    """A URL, and a format."""
    where, form = request.param.split()
    folder = f"memory://{uuid.uuid4().hex}"
    yield (str(tmp_path / "out") if where == "here" else f"{folder}/out"), form
    if where == "memory":
        fsspec.filesystem("memory").rm(folder, recursive=True)


def read(url: str, form: str) -> list[int]:
    """What a careful reader sees: the job's own."""
    source = files_source(url, SCHEMA, form, None, None)
    if not source.place.files():
        return []
    reader = source.open_reader(ReaderContext("job", "files", 0, 1, ManualClock()))
    reader.add_splits(source.open_enumerator("job", ManualClock()).initial_splits())
    rows: list[int] = []
    while (fetch := reader.poll(0, 1_000)) is not None:
        rows += fetch.records.column(0).to_pylist()
    return rows


@pytest.mark.parametrize("check", COMMITTER_CHECKS, ids=lambda check: check.__name__)
def test_files(check: Callable[[CommittingSinkUnderTest], None], place: tuple[str, str]) -> None:
    url, form = place
    sink = file_sink(url, form, None)
    assert isinstance(sink, CommittingSink)
    files: Any = NoFiles()

    def open_writer(subtask: int, attempt: int) -> SinkWriter:
        return sink.open_writer(
            SinkContext("job", "beef", "out", subtask, 2, attempt, 0, files, ManualClock(), SCHEMA)
        )

    def open_committer(attempt: int) -> SinkCommitter:
        context = CommitterContext("job", "beef", "out", attempt, 0, SCHEMA, ManualClock())
        return sink.open_committer(context)

    def records(n: int) -> Records:
        return Records(pa.RecordBatch.from_pylist([{"n": n}], SCHEMA))

    check(CommittingSinkUnderTest(open_writer, open_committer, records, lambda: read(url, form)))
