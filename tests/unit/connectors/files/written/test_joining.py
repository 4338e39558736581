"""Small files become one: what each format makes of them, drivers that were frozen while they joined, and
programs that join no more or otherwise. Crashes at each call are in test_commits."""

from __future__ import annotations

import contextlib
import io
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import duckdb
import fastavro
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from onceflow.connectors.files.file_format import FileFormat
from onceflow.connectors.files.source import file_format, files_source
from onceflow.connectors.files.written.commits import OutputCommits
from onceflow.connectors.files.written.joining import SmallFiles
from onceflow.connectors.files.written.open_store import is_name_of, open_store
from onceflow.connectors.files.written.output_store import OutputStore
from onceflow.connectors.files.written.plan import Promise
from onceflow.connectors.files.written.uploaded_store import UploadedStore
from onceflow.connectors.files.written.writer import PartsWriter, WriterSettings
from onceflow.runtime.clock import ManualClock
from onceflow.runtime.contracts import NoFiles, ReaderContext, SinkContext
from onceflow.runtime.errors import DataLossError, Fatal, Fenced
from onceflow.runtime.records import Records
from onceflow.sinks.files import CompactPolicy, FileSink
from tests.simulated_uploads import SimulatedUploads

SCHEMA = pa.schema([("n", pa.int64()), ("text", pa.string())])
TEXTS = ["plain", 'with "quotes", a comma\nand a line end', "", None, "n,text"]
FORMS = [
    *(("jsonl", each) for each in ("none", "gzip", "zstd")),
    *(("csv", each) for each in ("none", "gzip", "zstd")),
    *(("avro", each) for each in ("none", "deflate", "snappy", "zstd")),
    ("parquet", "zstd"),
]


def rows_of(first: int, count: int) -> list[dict[str, Any]]:
    return [{"n": n, "text": TEXTS[n % len(TEXTS)]} for n in range(first, first + count)]


def encoded(form: FileFormat, rows: list[dict[str, Any]]) -> bytes:
    file = io.BytesIO()
    encoder = form.encoder(file, SCHEMA)
    for row in rows:  # so there are several blocks and frames
        encoder.write(pa.RecordBatch.from_pylist([row], SCHEMA))
        encoder.flush()
    encoder.finish()
    return file.getvalue()


def read_by_us(path: Path, name: str) -> list[dict[str, Any]]:
    source = files_source(str(path), SCHEMA, name)
    reader = source.open_reader(ReaderContext("job", "files", 0, 1, ManualClock()))
    reader.add_splits(source.open_enumerator("job", ManualClock()).initial_splits())
    rows: list[dict[str, Any]] = []
    while (fetch := reader.poll(0, 1_000)) is not None:
        rows += fetch.records.to_pylist()
    return rows


def read_by_others(path: Path, name: str) -> list[dict[str, Any]]:
    if name == "avro":
        with path.open("rb") as file:
            return [dict(row) for row in fastavro.reader(file)]  # type: ignore[arg-type]
    if name == "parquet":
        return pl.read_parquet(path).to_dicts()
    read = "read_csv" if name == "csv" else "read_json"
    return duckdb.sql(f"select n, text from {read}('{path}')").pl().to_dicts()


@pytest.mark.parametrize(("name", "compression"), FORMS)
def test_joined_files_are_one_with_all_rows_in_their_order(
    name: str, compression: str, tmp_path: Path
) -> None:
    form = file_format(name, "", "test").compressed(compression, "test")
    several = [
        encoded(form, rows_of(0, 5)),
        encoded(form, []),
        encoded(form, rows_of(5, 1)),
        encoded(form, rows_of(6, 9)),
    ]
    path = tmp_path / f"joined{form.ending}"
    with path.open("wb") as file:
        form.join(iter(several), file, SCHEMA)
    assert read_by_us(path, name) == rows_of(0, 15)
    if (name, compression) == ("avro", "zstd"):
        return  # fastavro has no zstd here
    others = read_by_others(path, name)
    assert [row["n"] for row in others] == list(range(15))
    if name != "csv":  # where an empty text is null for others
        assert others == rows_of(0, 15)
    if name == "parquet":
        assert pq.ParquetFile(path).num_row_groups == 1


# --- The committer ------------------------------------------------------------------------------------

EACH = CompactPolicy(checkpoints=1)


def sink(folder: Path, compact: CompactPolicy | None = EACH, form: Any = "jsonl") -> FileSink:
    return FileSink(str(folder), form, compact=compact)


def store_of(described: FileSink) -> OutputStore:
    return open_store(described.place, "beef0123", "out")


def committer(described: FileSink, attempt: int, store: OutputStore | None = None) -> OutputCommits:
    small = SmallFiles(described.compact, described.form, SCHEMA)
    return OutputCommits(store or store_of(described), attempt, None, small)


def promised(
    described: FileSink, checkpoint_id: int, store: OutputStore | None = None, attempt: int = 1
) -> list[Promise]:
    """What two writers promise: a row each."""
    settings = WriterSettings(
        described.form, described.buckets, described.roll, 9, joins=described.compact is not None
    )
    made: list[Promise] = []
    for subtask in range(2):
        context = SinkContext(
            "job",
            "beef0123",
            "out",
            subtask,
            2,
            attempt,
            checkpoint_id - 1,
            NoFiles(),
            ManualClock(),
            SCHEMA,  # type: ignore[arg-type]
        )
        writer = PartsWriter(context, settings, store or store_of(described))
        rows = rows_of(2 * checkpoint_id + subtask, 1)
        writer.write(Records(pa.RecordBatch.from_pylist(rows, SCHEMA)))
        made.append(Promise.from_json(writer.pre_commit(checkpoint_id).stage().payload))
    return made


def commit(commits: OutputCommits, checkpoint_id: int, promises: list[Promise]) -> None:
    commits.last_committed()
    commits.commit(checkpoint_id, promises)


def numbers(folder: Path, pattern: str = "out-*") -> list[list[int]]:
    """The rows of each file that anybody sees."""
    found = sorted(folder.glob(pattern))
    return [[row["n"] for row in read_by_us(path, path.name.split(".")[1])] for path in found]


def test_files_of_several_checkpoints_are_seen_as_one_and_nothing_is_left(tmp_path: Path) -> None:
    described = sink(tmp_path, CompactPolicy(checkpoints=2))
    commits = committer(described, 1)
    commit(commits, 1, promised(described, 1))
    assert numbers(tmp_path) == []
    commit(commits, 2, promised(described, 2))
    assert numbers(tmp_path) == [[2, 3, 4, 5]]
    commit(commits, 3, [])
    left = [path for path in (tmp_path / ".onceflow").rglob("*") if path.is_file()]
    assert [path.name for path in left] == ["committed-0000000003"]


class Folder:
    """The folder of a sink, from which somebody takes away all he sees."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def store(self) -> OutputStore:
        return store_of(sink(self._path))

    def take_away(self) -> list[list[int]]:
        """The rows of each file."""
        found = numbers(self._path)
        for path in self._path.glob("out-*"):
            path.unlink()
        return found


class Bucket:
    """The same on S3."""

    def __init__(self) -> None:
        self._uploads = SimulatedUploads()

    def store(self) -> OutputStore:
        is_ours = lambda name: is_name_of(name, "out", "beef0123")  # noqa: E731
        uploads: Any = self._uploads
        return UploadedStore(uploads, "here", "here/.onceflow/beef0123.out", is_ours, 1)

    def take_away(self) -> list[list[int]]:
        names = [name for name in self._uploads.names("here/") if not name.startswith(".")]
        found = [self._uploads.objects[f"here/{name}"] for name in names]
        self._uploads.delete([f"here/{name}" for name in names])
        return [[json.loads(line)["n"] for line in content.splitlines()] for content in found]


class Freezes:
    """A store whose caller stands still before one kind of call, while somebody else does something."""

    def __init__(self, store: OutputStore, call: str, name: str, meanwhile: Callable[[], None]) -> None:
        self._store, self._call, self._name, self._meanwhile = store, call, name, meanwhile
        self.froze = False

    def __getattr__(self, attribute: str) -> Any:
        found = getattr(self._store, attribute)

        def call(*arguments: Any) -> Any:
            is_it = attribute == self._call and any(self._name in str(each) for each in arguments)
            if is_it and not self.froze:
                self.froze = True
                self._meanwhile()
            return found(*arguments)

        return call if callable(found) else found


@pytest.mark.parametrize("kind", ["here", "s3"])
@pytest.mark.parametrize(
    ("call", "name"),
    [
        ("create_note", "committing-"),
        ("read_note", "committing-"),
        ("show", "waiting/"),
        ("read_note", "waiting/"),
        ("create", ""),
        ("create_note", "joined-"),
        ("show", "name='out-"),
        ("create_note", "committed-"),
    ],
)
def test_a_driver_that_was_frozen_while_it_joined_shows_no_row_again(
    call: str, name: str, kind: str, tmp_path: Path
) -> None:
    """A newer attempt commits meanwhile, and somebody takes the file away as soon as he sees it. Nor does the
    frozen one delete what the newer one has in its ledger."""
    place = Bucket() if kind == "s3" else Folder(tmp_path)
    store, taken = place.store(), list[list[int]]()
    described = sink(tmp_path, CompactPolicy(checkpoints=2))
    newer = committer(described, 2, place.store())
    commit(committer(described, 1, store), 1, promised(described, 1, store))
    promises = promised(described, 2, store)

    def meanwhile() -> None:
        commit(newer, 2, promises)
        taken.extend(place.take_away())
        commit(newer, 3, promised(described, 3, place.store(), 2))

    freezes = Freezes(store, call, name, meanwhile)
    with contextlib.suppress(Fenced, FileNotFoundError, DataLossError):
        commit(committer(described, 1, freezes), 2, promises)  # type: ignore[arg-type]
    assert freezes.froze
    assert taken == [[2, 3, 4, 5]]
    assert place.take_away() == []
    commit(newer, 4, promised(described, 4, place.store(), 2))
    assert place.take_away() == [[6, 7, 8, 9]]


@pytest.mark.parametrize("form", ["jsonl", "csv"])
def test_a_program_that_joins_no_more_shows_what_waits_as_it_is(form: str, tmp_path: Path) -> None:
    """In another format, too."""
    before = sink(tmp_path, CompactPolicy(checkpoints=9))
    commit(committer(before, 1), 1, promised(before, 1))
    after = sink(tmp_path, None, form)
    commit(committer(after, 2), 2, promised(after, 2, attempt=2))
    assert numbers(tmp_path, "out-*.jsonl") + numbers(tmp_path, "out-*.csv") == [[2], [3], [4], [5]]


def test_a_program_with_another_format_shows_what_waits_in_the_old_one(tmp_path: Path) -> None:
    before, after = sink(tmp_path, CompactPolicy(checkpoints=9)), sink(tmp_path, EACH, "avro")
    commit(committer(before, 1), 1, promised(before, 1))
    commit(committer(after, 2), 2, promised(after, 2, attempt=2))
    assert numbers(tmp_path, "*.jsonl") == [[2], [3]]
    assert numbers(tmp_path, "*.avro") == [[4, 5]]


def begun_and_killed(described: FileSink, promises: list[Promise]) -> None:
    class KilledError(BaseException):
        """The driver is gone."""

    def killed() -> None:
        raise KilledError

    store = Freezes(store_of(described), "read_note", "waiting/", killed)
    with pytest.raises(KilledError):
        commit(committer(described, 1, store), 1, promises)  # type: ignore[arg-type]


def test_a_format_that_changes_in_the_middle_of_a_commit_is_refused(tmp_path: Path) -> None:
    before, after = sink(tmp_path), sink(tmp_path, EACH, "avro")
    promises = promised(before, 1)
    begun_and_killed(before, promises)
    with pytest.raises(
        Fatal, match=r"was being joined when the job was killed.*start the job once as it was"
    ):
        commit(committer(after, 2), 1, promises)
    commit(committer(before, 3), 1, promises)
    assert numbers(tmp_path) == [[2, 3]]


def test_a_file_that_waits_and_is_gone_ends_the_job(tmp_path: Path) -> None:
    described = sink(tmp_path)
    promises = promised(described, 1)
    begun_and_killed(described, promises)
    next((tmp_path / ".onceflow").rglob("*.waiting")).unlink()
    with pytest.raises(DataLossError, match=r"a file that waits to be joined into .* is gone"):
        commit(committer(described, 2), 1, promises)
    assert numbers(tmp_path) == []
