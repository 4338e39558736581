"""to_files(...): a folder that a job fills, and what is refused when it is written."""

from __future__ import annotations

import errno
import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import duckdb
import polars as pl
import pyarrow as pa
import pytest

from onceflow import Job, WatermarkStrategy
from onceflow.runtime.clock import ManualClock
from onceflow.runtime.contracts import NoFiles, SinkContext
from onceflow.runtime.errors import Retryable, UsageError
from onceflow.runtime.records import Records
from onceflow.sinks.files import CompactPolicy, FileSink, RollPolicy, daily, file_sink, hourly

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
        ("out/*.csv", "csv", r"FileSink\('out/\*.csv'\): name a folder"),
        ("memory://out", "csv", r"not written to memory://: what is in it is seen by one process only"),
        ("gs://out", "csv", r"not written to gs://: whether its creates and uploads keep their word has not"),
        ("ftp://host/out", "csv", r"not written to ftp://: it is not known whether"),
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


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"partition_by": 3}, r"partition_by=3: give a column's name, hourly\(\)"),
        ({"roll": "1 MiB"}, r"roll='1 MiB': give RollPolicy\(size=\"64 MiB\"\)"),
        ({"open_files_max": 0}, "open_files_max=0 has to be 1 or more"),
        ({"success_marker": "_SUCCESS"}, "success_marker needs folders of spans of time"),
        ({"success_marker": "DONE", "partition_by": daily("ts")}, 'a name that begins with "_" or "."'),
        ({"compact": 10}, r"compact=10: give CompactPolicy\(checkpoints=10\)"),
        (
            {"compact": CompactPolicy(), "roll": RollPolicy(on_checkpoint=False, idle="1 s")},
            r"compact= and RollPolicy\(on_checkpoint=False\) are two ways",
        ),
        ({"compression": "gzop"}, r"compression='gzop' is none of zstd, .* \(did you mean 'gzip'"),
        ({"compression": "bz2", "format": "jsonl"}, "compression='bz2' is none of gzip, zstd, none"),
    ],
)
def test_each_option_that_is_wrong_has_its_sentence(options: dict[str, Any], sentence: str) -> None:
    with pytest.raises(UsageError, match=sentence):
        FileSink("out", **options)


@pytest.mark.parametrize(
    ("by", "sentence"),
    [
        ("usr", r"partition_by names column 'usr', which is not in the rows \(did you mean 'user'"),
        (hourly("tss"), "partition_by names column 'tss', which is not in the rows"),
        (["user", "ts"], "partition_by has all columns, and none is left for the files"),
        ("_user", r"no folder can be called after it"),
    ],
)
def test_columns_that_no_folder_can_be_made_of_are_refused(by: Any, sentence: str) -> None:
    names = ["_user", "user", "ts"] if by == "_user" else ["user", "ts"]
    schema = pa.schema([(name, pa.int64()) for name in names])
    with pytest.raises(UsageError, match=f"sink 'out': .*{sentence}"):
        FileSink("out", partition_by=by).check(schema, "out")


def test_the_plan_says_when_rows_are_seen() -> None:
    over = RollPolicy(on_checkpoint=False, interval="1 h")
    assert "files end over checkpoints" in FileSink("out", "jsonl", roll=over).plan_note
    assert "files end with each checkpoint" in FileSink("out", "parquet", roll=over).plan_note
    assert (
        "files end with each checkpoint" in FileSink("hdfs://127.0.0.1:1/out", "jsonl", roll=over).plan_note
    )
    assert "files end with each checkpoint" in FileSink("out", "jsonl").plan_note
    assert "files of up to 7 checkpoints are joined" in FileSink("out", compact=CompactPolicy(7)).plan_note


ROWS_IN_TIME = [
    {"country": c, "ts": ts, "n": n}
    for n, (c, ts) in enumerate([("de", 0), (None, 3_600_000), ("a/b", 1), ("de", 86_400_000), ("de", 2)])
]


def test_folders_by_event_time_and_column_are_read_by_duckdb_and_get_a_success_marker(tmp_path: Path) -> None:
    """A marker when the watermark has passed the end of an hour: at the end of the input, all."""
    job = Job("folders")
    rows = job.from_records(
        ROWS_IN_TIME, watermarks=WatermarkStrategy.bounded_out_of_orderness("1 d", event_time="ts")
    )
    rows.sink_to(FileSink(str(tmp_path), partition_by=[hourly(), "country"], success_marker="_SUCCESS"))
    job.run(master="threads[2]")
    found = duckdb.sql(
        f"select country, n, date, hour from read_parquet('{tmp_path}/**/*.parquet', hive_partitioning=true) "
        "order by n"
    ).fetchall()
    assert [row[:2] for row in found] == [("de", 0), (None, 1), ("a/b", 2), ("de", 3), ("de", 4)]
    assert [str(row[2]) for row in found] == ["1970-01-01"] * 3 + ["1970-01-02", "1970-01-01"]
    marked = sorted(str(path.parent.relative_to(tmp_path)) for path in tmp_path.rglob("_SUCCESS"))
    assert marked == ["date=1970-01-01/hour=00", "date=1970-01-01/hour=01", "date=1970-01-02/hour=00"]


@pytest.mark.parametrize("form", ["jsonl", "csv"])
@pytest.mark.parametrize("compression", ["gzip", "zstd", "none"])
def test_files_that_stay_open_over_checkpoints_are_whole_and_packed(
    form: str, compression: str, tmp_path: Path
) -> None:
    """Each checkpoint ends a compressed piece; together they are one file, for the job that reads it too."""

    def numbers() -> Iterator[int]:
        yield from range(20_000)

    write, read = Job("write"), Job("read")
    roll = RollPolicy(on_checkpoint=False, interval="1 h")
    sink = FileSink(str(tmp_path), form, roll=roll, compression=compression)
    write.from_records(numbers).sink_to(sink, uid="out")
    write.run(master="threads[1]", checkpoint_interval="20 ms")
    (path,) = tmp_path.glob("out-*")
    rows = read.from_files(str(path), pa.schema([("value", pa.int64())])).collect()
    read.run(master="threads[1]")
    assert [row["value"] for row in rows] == list(range(20_000))


def test_a_file_ends_at_its_size_and_the_least_recent_one_where_too_many_are_open(tmp_path: Path) -> None:
    job = Job("sizes")
    sizes = FileSink(str(tmp_path / "sizes"), "jsonl", roll=RollPolicy(size="1 kB"))
    rows = job.from_records([{"n": n, "m": n % 50} for n in range(2_000)])
    rows.sink_to(sizes, uid="sizes")
    rows.sink_to(FileSink(str(tmp_path / "open"), "jsonl", "m", open_files_max=7), uid="open")
    job.run(master="threads[1]")
    for name in ("sizes", "open"):
        files = [path.read_text().splitlines() for path in (tmp_path / name).rglob("*.jsonl")]
        assert sorted(json.loads(line)["n"] for lines in files for line in lines) == list(range(2_000))
        assert len(files) > 1


class FullEncoder:
    gathered_bytes = 0

    def __init__(self) -> None:
        self.tries = 0

    def write(self, batch: pa.RecordBatch) -> None: ...

    def flush(self) -> None: ...

    def finish(self) -> None:
        self.tries += 1
        raise OSError(errno.ENOSPC, "full")


def test_a_file_that_could_not_be_finished_is_never_part_of_a_checkpoint(tmp_path: Path) -> None:
    """Its rows are in it alone: only a new attempt has them again."""
    full = FullEncoder()

    class Full:
        name, endings, ending, has_prefix = "full", (".full",), ".full", False

        def check(self, schema: pa.Schema, where: str) -> None: ...

        def encoder(self, file: object, schema: pa.Schema) -> FullEncoder:
            return full

        def decoder(self, schema: pa.Schema) -> None: ...

        def of_type(self, of: object) -> None: ...

    sink = file_sink(str(tmp_path), Full(), None)
    context = SinkContext("job", "beef", "out", 0, 1, 1, 0, NoFiles(), ManualClock(), SCHEMA)  # type: ignore[arg-type]
    writer = sink.open_writer(context)
    writer.write(Records(pa.RecordBatch.from_pylist([{"n": 1}], SCHEMA)))
    with pytest.raises(OSError, match="full"):
        writer.pre_commit(1).stage()
    with pytest.raises(Retryable, match=r"out-0000000001-0000-000-beef.full could not be finished: .*full"):
        writer.pre_commit(2).stage()
    assert full.tries == 1
