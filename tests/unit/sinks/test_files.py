"""to_files(...): a folder that a job fills, and what is refused when it is written."""

from __future__ import annotations

import errno
from collections.abc import Callable
from pathlib import Path

import polars as pl
import pyarrow as pa
import pytest

from onceflow import Job
from onceflow.runtime.clock import ManualClock
from onceflow.runtime.contracts import NoFiles, SinkContext
from onceflow.runtime.errors import Retryable, UsageError
from onceflow.runtime.records import Records
from onceflow.sinks.files import FileWriter, file_sink

ROWS = [{"user": "ann", "n": 1}, {"user": "bob, the 2nd", "n": 2}, {"user": '"', "n": 3}]
SCHEMA = pa.schema([("n", pa.int64())])


@pytest.mark.parametrize("form", ["parquet", "jsonl", "csv"])
def test_what_is_written_is_read_by_anybody(form: str, tmp_path: Path) -> None:
    job = Job("files")
    job.from_records(ROWS).to_files(str(tmp_path), format=form, uid="users")
    job.run(master="threads[2]")
    (path,) = tmp_path.glob("users-*")
    assert path.match(f"users-0000000001-*.{form}")
    read = {"parquet": pl.read_parquet, "jsonl": pl.read_ndjson, "csv": pl.read_csv}[form]
    assert read(path).to_dicts() == ROWS


def test_a_job_reads_what_another_has_written(tmp_path: Path) -> None:
    first, second = Job("first"), Job("second")
    first.from_records(ROWS).to_files(str(tmp_path))
    first.run(master="threads[1]")
    rows = second.from_files(str(tmp_path), format="parquet").collect()
    second.run(master="threads[1]")
    assert rows == ROWS


Use = Callable[[str], object]


@pytest.mark.parametrize(
    ("url", "form", "sentence"),
    [
        ("out/*.csv", "csv", r"to_files\('out/\*.csv'\): name a folder"),
        ("out.parquet", "parquet", "names a file, and there will be one for each subtask and checkpoint"),
        ("out", "xml", r"format='xml' is none of jsonl, csv, parquet"),
    ],
)
def test_each_mistake_has_its_sentence(url: str, form: str, sentence: str) -> None:
    with pytest.raises(UsageError, match=sentence):
        file_sink(url, form, None)


def test_columns_that_csv_has_no_form_for_are_refused() -> None:
    job = Job("files")
    with pytest.raises(
        UsageError, match=r"sink 'tags': column 'tags' is list<.*>, for which CSV has no form"
    ):
        job.from_records([{"tags": ["a"]}]).to_files("out", format="csv", uid="tags")


class FullEncoder:
    def __init__(self) -> None:
        self.tries = 0

    def write(self, batch: pa.RecordBatch) -> None: ...

    def finish(self) -> None:
        self.tries += 1
        raise OSError(errno.ENOSPC, "full")


def test_a_file_that_could_not_be_finished_is_never_part_of_a_checkpoint(tmp_path: Path) -> None:
    """Its rows are in it alone: only a new attempt has them again."""
    full = FullEncoder()

    class Full:
        name, endings = "full", (".full",)

        def check(self, schema: pa.Schema, where: str) -> None: ...

        def encoder(self, file: object, schema: pa.Schema) -> FullEncoder:
            return full

        def decoder(self, schema: pa.Schema) -> None: ...

        def of_type(self, of: object) -> None: ...

    sink = file_sink(str(tmp_path), Full(), None)
    context = SinkContext("job", "beef", "out", 0, 1, 1, 0, NoFiles(), ManualClock(), SCHEMA)  # type: ignore[arg-type]
    writer = FileWriter(sink, context)
    writer.write(Records(pa.RecordBatch.from_pylist([{"n": 1}], SCHEMA)))
    with pytest.raises(OSError, match="full"):
        writer.pre_commit(1).stage()
    with pytest.raises(Retryable, match=r"out-0000000001-0000-beef.full could not be finished: .*full"):
        writer.pre_commit(2).stage()
    assert full.tries == 1
