"""Files as they are met: changed, gone, cut off, with other columns; and what is said of a bad record."""

from __future__ import annotations

import bz2
import datetime as dt
import gzip
import json
import lzma
import os
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from onceflow.connectors.files.csv_files import Csv
from onceflow.connectors.files.json_lines import JsonLines
from onceflow.connectors.files.parquet_files import Parquet
from onceflow.connectors.files.reader import FileReader
from onceflow.connectors.files.source import FileSource, files_source
from onceflow.runtime.clock import ManualClock
from onceflow.runtime.contracts import ReaderContext, SplitState
from onceflow.runtime.errors import BadRecordError, DataLossError, OnceflowError


@dataclass(frozen=True)
class Purchase:
    user: str
    amount: int
    note: str | None = None


def source_of(path: Path, of: Any = Purchase, form: Any = None) -> FileSource:
    return files_source(str(path), of, form, None, None)


def opened(source: FileSource, splits: list[SplitState] | None = None, **context: Any) -> FileReader:
    reader = source.open_reader(ReaderContext("job", "files", 0, 1, ManualClock(), **context))
    reader.add_splits(splits or source.open_enumerator("job", ManualClock()).initial_splits())
    return reader


def read(reader: FileReader) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = []
    while (fetch := reader.poll(0, 1_000)) is not None:
        rows += fetch.records.to_pylist()
    return rows


def written(folder: Path, name: str, content: str | bytes) -> Path:
    path = folder / name
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return path


ANN = {"user": "ann", "amount": 1, "note": None}
GOOD: list[tuple[str, str | bytes]] = [
    ("a.jsonl", '{"user":"ann","amount":1}\n\n  \r\n'),
    ("a.jsonl", '\ufeff{"amount":1,"user":"ann","more":[1]}'),
    ("a.csv", "user,amount,note\nann,1,\n\n"),
    ("a.csv", '\ufeffamount,more,note,user\r\n1,"x\n,y",,ann\r\n'),
    ("a.csv.gz", gzip.compress(b"user,amount,note\nann,1,", mtime=0)),
]


@pytest.mark.parametrize(("name", "content"), GOOD)
def test_what_is_read_all_the_same(name: str, content: str | bytes, tmp_path: Path) -> None:
    assert read(opened(source_of(written(tmp_path, name, content)))) == [ANN]


def test_an_empty_cell_is_null_unless_the_column_can_not_be(tmp_path: Path) -> None:
    path = written(tmp_path, "a.csv", 'user;amount;note\n;1;\nbob;2;""\n')
    rows = read(opened(source_of(path, form=Csv(delimiter=";"))))
    assert rows == [
        {"user": "", "amount": 1, "note": None},
        {"user": "bob", "amount": 2, "note": ""},
    ]


def test_a_file_without_a_line_has_no_records(tmp_path: Path) -> None:
    for name in ("a.jsonl", "a.csv"):
        assert read(opened(source_of(written(tmp_path, name, "")))) == []


def test_columns_that_nobody_reads_are_left_out(tmp_path: Path) -> None:
    pq.write_table(pa.table({"user": ["ann"], "amount": [1], "note": ["x"]}), tmp_path / "a.parquet")
    written(tmp_path, "a.csv", "user,amount,note\nann,not looked at,x\n")
    for name in ("a.parquet", "a.csv"):
        source = source_of(tmp_path / name).project(frozenset({"user"}))
        assert read(opened(source)) == [{"user": "ann"}]


def test_parquet_gives_what_it_has_as_it_is_wanted(tmp_path: Path) -> None:
    table = pa.table({"user": pa.array(["ann"]).dictionary_encode(), "amount": pa.array([1], pa.int16())})
    pq.write_table(table, tmp_path / "a.parquet")
    assert read(opened(source_of(tmp_path / "a.parquet"))) == [ANN]


@dataclass(frozen=True)
class Priced:
    n: int
    amount: float | None


@dataclass(frozen=True)
class Amount:
    n: int
    amount: float | None = 0.5
    at: dt.datetime = dt.datetime(2023, 1, 1, tzinfo=dt.UTC)
    tags: list[str] = field(default_factory=lambda: ["new"])


@pytest.mark.parametrize("name", ["a.parquet", "a.jsonl", "a.csv"])
def test_a_column_that_a_file_does_not_have_is_never_null_without_a_word(name: str, tmp_path: Path) -> None:
    path = tmp_path / name
    pq.write_table(pa.table({"n": [1], "amuont": [2.5]}), tmp_path / "a.parquet")
    written(tmp_path, "a.jsonl", '{"n": 1, "amuont": 2.5}\n')
    written(tmp_path, "a.csv", "n,amuont\n1,2.5\n")
    with pytest.raises(BadRecordError, match=r"amount"):
        read(opened(source_of(path, Priced)))


def test_a_field_with_a_default_has_it_where_a_parquet_file_has_no_column(tmp_path: Path) -> None:
    pq.write_table(pa.table({"n": [1, 2]}), tmp_path / "a.parquet")
    given = {"amount": 0.5, "at": dt.datetime(2023, 1, 1, tzinfo=dt.UTC), "tags": ["new"]}
    assert read(opened(source_of(tmp_path / "a.parquet", Amount))) == [{"n": n, **given} for n in (1, 2)]
    columns = pa.schema([pa.field("n", pa.int64()), pa.field("amount", pa.float64())])
    assert read(opened(source_of(tmp_path / "a.parquet", columns)))[0] == {"n": 1, "amount": None}


def test_a_column_in_the_names_of_folders_is_told_apart(tmp_path: Path) -> None:
    (tmp_path / "amount=2.5").mkdir()
    pq.write_table(pa.table({"n": [1]}), tmp_path / "amount=2.5" / "a.parquet")
    with pytest.raises(BadRecordError, match="names of folders are not read"):
        read(opened(source_of(tmp_path / "**" / "*.parquet", Priced)))


@dataclass(frozen=True)
class Reading:
    at: dt.datetime
    until: dt.datetime | None


def test_digits_that_a_datetime_has_no_room_for_are_cut_off_in_each_format(tmp_path: Path) -> None:
    """Spark writes microseconds, and pandas nanoseconds; a record type has milliseconds."""
    text = "2023-11-14T22:13:20.123456Z"
    lines = json.dumps({"at": text, "until": None}) + "\n"
    times = pa.array([1_700_000_000_123_456], pa.timestamp("us", "UTC"))
    paths = [
        written(tmp_path, "a.jsonl", lines),
        written(tmp_path, "a.csv", f"at,until\n{text},\n"),
        put_parquet(pa.table({"at": times, "until": pa.nulls(1, times.type)}))(tmp_path),
        tmp_path / "nanos.parquet",
    ]
    nanos = times.cast(pa.timestamp("ns", "UTC"))
    pq.write_table(pa.table({"at": nanos, "until": pa.nulls(1, nanos.type)}), paths[-1])
    cut = dt.datetime(2023, 11, 14, 22, 13, 20, 123_000, dt.UTC)
    for path in paths:
        assert read(opened(source_of(path, Reading))) == [{"at": cut, "until": None}], path.name


def test_offsets_count_the_records_of_a_file(tmp_path: Path) -> None:
    path = written(tmp_path, "a.jsonl", '{"user":"ann","amount":1}\n' * 5)
    source = source_of(path)
    reader = opened(source, with_origin=True)
    reader.poll(0, 3)
    fetch = opened(source, list(reader.snapshot()), with_origin=True).poll(0, 10)
    assert fetch is not None
    assert fetch.offset is not None
    assert (fetch.splits, fetch.offset.tolist()) == ((str(path),), [3, 4])


def put_parquet(table: pa.Table) -> Callable[[Path], Path]:
    def put(folder: Path) -> Path:
        pq.write_table(table, folder / "a.parquet")
        return folder / "a.parquet"

    return put


def put(name: str, content: str | bytes) -> Callable[[Path], Path]:
    return lambda folder: written(folder, name, content)


CSV = "user,amount,note\n"
BAD: list[tuple[Callable[[Path], Path], type[OnceflowError], str]] = [
    (
        put("a.jsonl", '{"user":"ann","amount":1}\n{"user":"bob","amount":"x"}\n'),
        BadRecordError,
        r"a.jsonl: the record at byte 26 .*amount",
    ),
    (put("a.jsonl", '\n{"user"'), BadRecordError, "a.jsonl: the record at byte 1 can't"),
    (
        put("a.csv", CSV + "ann,1,\n" * 9 + "bob,x,\n"),
        BadRecordError,
        "the record at byte 80 .*invalid value 'x'",
    ),
    (
        put("a.csv", CSV + "ann,1,\nbob,,\n"),
        BadRecordError,
        "byte 24 .*: column 'amount' is empty, and may not be",
    ),
    (put("a.csv", CSV + "ann,1\n"), BadRecordError, "byte 17 .*: Expected 3 columns, got 2"),
    (put("a.csv", CSV + "ann,1,2,3\n"), BadRecordError, "byte 17 .*: Expected 3 columns, got 4"),
    (
        put("a.csv", "usr,amount,note\nann,1,\n"),
        BadRecordError,
        "a.csv has no column 'user' .did you mean 'usr'",
    ),
    (put("a.csv", "user,amount,note,user\na,1,,b\n"), BadRecordError, "a.csv has two columns 'user'"),
    (put("a.csv", b"user,amount,note\n\xff,1,\n"), BadRecordError, "byte 17 .*UTF8"),
    (put("a.jsonl.gz", b"not packed"), DataLossError, "a.jsonl.gz is damaged: Not a gzipped file"),
    (
        put("a.jsonl.gz", gzip.compress(b'{"user":"a"}', mtime=0)[:-9]),
        DataLossError,
        "is cut off: its gzip stream",
    ),
    (put("a.parquet", b"PAR1"), DataLossError, "a.parquet is no whole Parquet file"),
    (
        put_parquet(pa.table({"usr": ["a"], "amount": [1]})),
        BadRecordError,
        "a.parquet has no column 'user' .did you mean 'usr'",
    ),
    (
        put_parquet(pa.table({"user": ["a"], "amount": [1.5]})),
        BadRecordError,
        "column 'amount' is double there, and wanted as int64: ",
    ),
    (
        put_parquet(pa.table({"user": ["a"], "amount": pa.nulls(1, pa.int64())})),
        BadRecordError,
        "column 'amount' is null in a row of row group 0, and may not be",
    ),
]


@pytest.mark.parametrize(("make", "kind", "sentence"), BAD)
def test_what_can_not_be_read_is_named(
    make: Callable[[Path], Path], kind: type[OnceflowError], sentence: str, tmp_path: Path
) -> None:
    path = make(tmp_path)
    with pytest.raises(kind, match=sentence):
        read(opened(source_of(path)))


def test_a_file_without_line_ends_is_no_file_of_lines(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    with path.open("wb") as file:
        file.truncate(80 << 20)
    with pytest.raises(DataLossError, match="there is no end of a record within 64 MiB from byte 0 on"):
        read(opened(source_of(path)))


def lines(count: int) -> str:
    return "".join(f'{{"user":"u{n}","amount":{n}}}\n' for n in range(count))


def test_a_file_that_is_changed_while_it_is_read_is_refused(tmp_path: Path) -> None:
    path = written(tmp_path, "a.jsonl", lines(10))
    reader = opened(source_of(path))
    assert reader.poll(0, 4) is not None
    written(tmp_path, "a.jsonl", lines(11))
    with pytest.raises(
        DataLossError, match=r"a.jsonl was changed since it was found \(it had .*11 records of it were"
    ):
        read(reader)


def test_a_file_that_is_changed_before_it_is_read_on_is_refused(tmp_path: Path) -> None:
    path = written(tmp_path, "a.jsonl", lines(10))
    source = source_of(path)
    reader = opened(source)
    reader.poll(0, 4)
    at_four = list(reader.snapshot())
    os.utime(path, (1, 1))
    enumerator = source.open_enumerator("job", ManualClock())
    for meet in (lambda: enumerator.check_restored(at_four), lambda: read(opened(source, at_four))):
        with pytest.raises(
            DataLossError, match=r"was changed since .* \(written anew\), and 4 records of it were read"
        ):
            meet()
    path.unlink()
    with pytest.raises(DataLossError, match=r"a.jsonl is gone, and 4 records of it were read: put it back"):
        enumerator.check_restored(at_four)


def test_large_files_are_read_in_pieces_that_are_cut_between_records(tmp_path: Path) -> None:
    """Each row of each piece once; a piece is a split of its own, and goes on where it was."""
    rows = [{"n": n, "text": "x" * (n % 40)} for n in range(2_000)]
    schema = pa.schema([("n", pa.int64()), ("text", pa.string())])
    (tmp_path / "a.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    with pq.ParquetWriter(tmp_path / "b.parquet", schema) as writer:
        for first in range(0, 2_000, 250):
            writer.write_table(pa.Table.from_pylist(rows[first : first + 250], schema))
    for name, form in (("a.jsonl", JsonLines(split_size="10 kB")), ("b.parquet", Parquet(split_size=2_000))):
        source = files_source(str(tmp_path / name), schema, form)
        splits = source.open_enumerator("job", ManualClock()).initial_splits()
        assert len({split.split_id for split in splits}) == len(splits) > 3
        found: list[int] = []
        for split in splits:
            position = split
            while True:  # a new reader for each poll: it goes on exactly
                reader = source.open_reader(ReaderContext("job", "files", 0, 1, ManualClock()))
                reader.add_splits([position])
                fetch = reader.poll(0, 97)
                (position,) = reader.snapshot()
                assert fetch is not None
                found += fetch.records.column("n").to_pylist()
                if fetch.finished:
                    break
        assert found == list(range(2_000))


@pytest.mark.parametrize("packing", ["gz", "bz2", "xz", "zst"])
def test_each_compression_is_read_and_a_cut_off_file_is_refused(packing: str, tmp_path: Path) -> None:
    """A file may be several compressed ones behind one another, as those that were open over checkpoints."""
    pack = {"gz": gzip.compress, "bz2": bz2.compress, "xz": lzma.compress, "zst": zstd_compress}[packing]
    content = b"".join(pack(b"".join(b'{"n":%d}\n' % n for n in range(k, k + 500))) for k in (0, 500))
    schema = pa.schema([("n", pa.int64())])

    def read(name: str) -> list[int]:
        source = files_source(str(tmp_path / name), schema)
        reader = source.open_reader(ReaderContext("job", "files", 0, 1, ManualClock()))
        reader.add_splits(source.open_enumerator("job", ManualClock()).initial_splits())
        rows: list[int] = []
        while (fetch := reader.poll(0, 10_000)) is not None:
            rows += fetch.records.column("n").to_pylist()
        return rows

    (tmp_path / f"a.jsonl.{packing}").write_bytes(content)
    assert read(f"a.jsonl.{packing}") == list(range(1_000))
    (tmp_path / f"b.jsonl.{packing}").write_bytes(content[:-5])
    with pytest.raises(DataLossError, match=rf"b.jsonl.{packing} is (cut off|damaged)"):
        read(f"b.jsonl.{packing}")
    (tmp_path / f"c.jsonl.{packing}").write_bytes(b"not packed at all, whatever the name says")
    with pytest.raises(DataLossError, match=rf"c.jsonl.{packing} is (cut off|damaged)"):
        read(f"c.jsonl.{packing}")


def zstd_compress(content: bytes) -> bytes:
    packed = pa.BufferOutputStream()
    with pa.CompressedOutputStream(packed, "zstd") as stream:
        stream.write(content)
    return packed.getvalue().to_pybytes()
