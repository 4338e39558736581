"""Avro's object container files: all types, what other writers write, and each file that is not whole."""

from __future__ import annotations

import datetime as dt
import io
import zlib
from dataclasses import dataclass
from decimal import Decimal
from enum import Enum
from pathlib import Path
from typing import Any

import fastavro
import pyarrow as pa
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from onceflow import Job
from onceflow.connectors.files import AvroFiles
from onceflow.connectors.files.reader import FileReader
from onceflow.connectors.files.source import FileSource, files_source
from onceflow.runtime.clock import ManualClock
from onceflow.runtime.contracts import ReaderContext, SplitState
from onceflow.runtime.errors import BadRecordError, DataLossError, GraphError, OptionError
from onceflow.sinks.print import PrintSink

CODECS = {"none": "null", "deflate": "deflate", "snappy": "snappy", "zstd": "zstandard"}
SCHEMA = pa.schema([pa.field("n", pa.int64(), nullable=False), ("text", pa.string())])


def opened(source: FileSource, splits: list[SplitState] | None = None) -> FileReader:
    reader = source.open_reader(ReaderContext("job", "files", 0, 1, ManualClock(), with_origin=True))
    reader.add_splits(splits or source.open_enumerator("job", ManualClock()).initial_splits())
    return reader


def read(path: Path, of: Any = None, form: Any = None) -> list[dict[str, Any]]:
    reader, rows = opened(files_source(str(path), of, form)), list[dict[str, Any]]()
    while (fetch := reader.poll(0, 1_000)) is not None:
        rows += fetch.records.to_pylist()
    return rows


def encoded(batches: list[pa.RecordBatch], form: AvroFiles | None = None) -> bytes:
    file: Any = io.BytesIO()
    encoder = (form or AvroFiles()).encoder(file, batches[0].schema)
    for batch in batches:
        encoder.write(batch)
    encoder.finish()
    content: bytes = file.getvalue()
    return content


def numbers(first: int, count: int) -> pa.RecordBatch:
    rows = [{"n": n, "text": "x" * (n % 7) if n % 3 else None} for n in range(first, first + count)]
    return pa.RecordBatch.from_pylist(rows, SCHEMA)


def by_fastavro(rows: list[Any], schema: Any, **options: Any) -> bytes:
    file = io.BytesIO()
    fastavro.writer(file, schema, rows, **options)
    return file.getvalue()


class Color(Enum):
    RED = "red"
    BLUE = "blue"


@dataclass(frozen=True)
class Inner:
    a: int
    b: str | None = None


@dataclass(frozen=True)
class Everything:
    flag: bool
    n: int
    x: float
    text: str
    raw: bytes
    color: Color
    price: Decimal
    day: dt.date
    at: dt.datetime
    lasts: dt.timedelta
    inner: Inner
    many: list[Inner]
    counts: dict[str, int]
    by_number: dict[int, str]
    maybe: str | None = None


def everything(n: int) -> Everything:
    return Everything(
        n % 2 == 0, n * 10**9, n / 3, f"t{n}ä", bytes([n % 256]) * n, Color.BLUE if n % 2 else Color.RED,
        Decimal(n) / 4, dt.date(2026, 1, 1) + dt.timedelta(n),
        dt.datetime(2026, 1, 1, 0, 0, n, tzinfo=dt.UTC),
        dt.timedelta(microseconds=n), Inner(n), [Inner(i, "b") for i in range(n % 4)], {"k": n}, {n: "v"},
        None if n % 3 else "there",
    )  # fmt: skip


@pytest.mark.parametrize("compression", CODECS)
def test_rows_of_all_types_come_back_through_jobs(compression: str, tmp_path: Path) -> None:
    rows = [everything(n) for n in range(40)]
    write = Job("write")
    write.from_elements(*rows).to_files(str(tmp_path), format=AvroFiles(compression), uid="out")
    write.run(master="threads[1]")
    job = Job("read")
    found = job.from_files(f"{tmp_path}/*.avro", Everything).collect()
    job.run(master="threads[1]")
    assert found == rows
    (path,) = tmp_path.glob("*.avro")
    if compression != "zstd":  # for which fastavro needs a package
        with path.open("rb") as file:
            reader = fastavro.reader(file)
            assert reader.codec == CODECS[compression]
            theirs: list[Any] = list(reader)
        assert [row["price"] for row in theirs] == [row.price for row in rows]
        assert [row["at"] for row in theirs] == [row.at for row in rows]
        assert [row["inner"]["a"] for row in theirs] == list(range(40))


def test_a_file_is_whole_after_each_flush_and_has_several_blocks() -> None:
    file: Any = io.BytesIO()
    encoder = AvroFiles("none").encoder(file, SCHEMA)
    assert list(fastavro.reader(io.BytesIO(file.getvalue()))) == []
    encoder.write(numbers(0, 100_000))
    encoder.flush()
    assert encoder.gathered_bytes == 0
    encoder.write(numbers(100_000, 3).slice(1, 2))
    encoder.finish()
    blocks = list(fastavro.block_reader(io.BytesIO(file.getvalue())))
    assert len(blocks) > 2
    assert max(block.size for block in blocks[:-1]) < (1 << 18) + 100  # with the marker
    rows = [row["n"] for block in blocks for row in block]
    assert rows == [*range(100_000), 100_001, 100_002]


WRITER = {
    "type": "record",
    "name": "shop.Sale",
    "fields": [
        {"name": "text", "type": "string"},
        {"name": "old", "type": {"type": "map", "values": {"type": "array", "items": "double"}}},
        {"name": "n", "type": "int"},
        {"name": "size", "type": {"type": "enum", "name": "Size", "symbols": ["S", "M"]}},
        {"name": "id", "type": {"type": "fixed", "name": "Id", "size": 4}},
    ],
}
SALES = [
    {"text": f"t{n}", "old": {"a": [1.5] * n}, "n": n, "size": "SM"[n % 2], "id": b"abcd"} for n in range(9)
]


@dataclass(frozen=True)
class Sale:
    n: int
    text: str | None
    size: str
    more: int = 7


@pytest.mark.parametrize("codec", ["null", "deflate", "snappy", "bzip2", "xz"])
def test_fields_of_other_writers_are_found_by_name_with_defaults(codec: str, tmp_path: Path) -> None:
    path = tmp_path / "a.avro"
    path.write_bytes(by_fastavro(SALES, WRITER, codec=codec, sync_interval=20))
    wanted = [{"n": n, "text": f"t{n}", "size": "SM"[n % 2], "more": 7} for n in range(9)]
    assert read(path, Sale) == wanted
    assert [row["n"] for row in read(path, pa.schema([("n", pa.int64())]))] == list(range(9))
    themselves = read(path)
    assert themselves == [{**row, "old": list(row["old"].items())} for row in SALES]  # type: ignore[attr-defined]


@settings(max_examples=30, deadline=None)
@given(
    interval=st.integers(1, 200),
    gathered=st.integers(1, 300),
    records_max=st.integers(1, 20),
    piece=st.sampled_from([None, 90, 250]),
    cuts=st.lists(st.booleans(), max_size=40),
)
@example(interval=30, gathered=100, records_max=3, piece=None, cuts=[True] * 40)
@example(interval=30, gathered=1, records_max=20, piece=90, cuts=[True, False] * 20)
def test_reading_goes_on_exactly_where_it_was(
    tmp_path_factory: pytest.TempPathFactory,
    interval: int,
    gathered: int,
    records_max: int,
    piece: int | None,
    cuts: list[bool],
) -> None:
    path = tmp_path_factory.mktemp("avro") / "a.avro"
    fields = [{"name": "n", "type": "long"}, {"name": "text", "type": ["null", "string"]}]
    schema = {"type": "record", "name": "R", "fields": fields}
    path.write_bytes(by_fastavro(numbers(0, 60).to_pylist(), schema, sync_interval=interval))
    source = files_source(str(path), SCHEMA, AvroFiles(gathered_bytes=gathered, split_size=piece))
    splits = list(source.open_enumerator("job", ManualClock()).initial_splits())
    assert piece is None or interval > 60 or len(splits) > 1
    reader, restarts, rows = opened(source, splits), iter(cuts), list[int]()
    while (fetch := reader.poll(0, records_max)) is not None:
        rows += fetch.records.column("n").to_pylist()
        if next(restarts, False) and not fetch.finished:
            left = list(reader.snapshot())
            reader.close()
            done = [split for split in left if split.split_id not in reader._unread]
            reader.forget_splits([split.split_id for split in done])
            reader = opened(source, [split for split in left if split not in done])
    assert rows == list(range(60))


def test_a_record_that_does_not_fit_is_a_dead_letter_with_its_block(tmp_path: Path) -> None:
    path = tmp_path / "a.avro"
    fields = [{"name": "n", "type": ["null", "long"]}, {"name": "text", "type": "string"}]
    rows = [{"n": None if n in (3, 5) else n, "text": "x"} for n in range(8)]
    schema = {"type": "record", "name": "R", "fields": fields}
    path.write_bytes(by_fastavro(rows, schema, sync_interval=8))
    reader = opened(files_source(str(path), SCHEMA, dead_letters=PrintSink()))
    fetch = reader.poll(0, 100)
    assert fetch is not None
    assert fetch.dead_letters is not None
    assert fetch.offset is not None
    assert fetch.records.column("n").to_pylist() == [0, 1, 2, 4, 6, 7]
    assert fetch.offset.tolist() == [0, 1, 2, 4, 6, 7]
    letters = fetch.dead_letters.to_pylist()
    blocks = [(b.offset, b.num_records) for b in fastavro.block_reader(io.BytesIO(path.read_bytes()))]
    firsts = [sum(count for _, count in blocks[:n]) for n in range(len(blocks))]
    for bad, letter in zip((3, 5), letters, strict=True):
        n = max(n for n, first in enumerate(firsts) if first <= bad)
        assert letter["offset"] == blocks[n][0]
        assert letter["value"] == b"\x00\x02x"
        assert letter["reason"].startswith(f"record {bad - firsts[n]} of the block there: n is null")
    with pytest.raises(BadRecordError, match=r"byte \d+ can't be decoded: record .* dead_letters="):
        read(path, SCHEMA)


# --- What is no whole file ------------------------------------------------------------------------

WHOLE = encoded([numbers(0, 50)])
HEADER = len(encoded([numbers(0, 0)]))


@pytest.mark.parametrize("size", [5, HEADER - 1, HEADER + 1, HEADER + 9, len(WHOLE) - 1])
def test_a_file_that_is_cut_off_is_named(size: int, tmp_path: Path) -> None:
    (tmp_path / "a.avro").write_bytes(WHOLE[:size])
    with pytest.raises(DataLossError, match=r"a\.avro is cut off in the block at byte \d+: put the whole"):
        read(tmp_path / "a.avro", SCHEMA)


def container(schema: str, codec: str, count: int, packed: bytes, sync: bytes = b"s" * 16) -> bytes:
    meta = {"avro.schema": schema.encode(), "avro.codec": codec.encode()}
    head = io.BytesIO()
    fastavro.schemaless_writer(head, {"type": "map", "values": "bytes"}, meta)
    begin = b"Obj\x01" + head.getvalue() + b"s" * 16
    return begin + bytes([count * 2 if count >= 0 else -count * 2 - 1, len(packed) * 2]) + packed + sync


NUMBER = '{"type": "record", "name": "R", "fields": [{"name": "n", "type": "long"}]}'
DAMAGED = {
    "no Avro object container file: it begins with b'PAR1', .*; give": b"PAR1...",
    "packed with 'lzo', and known are null, .*: write it anew": container(NUMBER, "lzo", 1, b"\x02"),
    "block at byte 0: its header has no schema; put": container("{", "null", 1, b"\x02"),
    r"byte \d+: the file's sync marker": container(NUMBER, "null", 1, b"\x02", b"t" * 16),
    "can't be unpacked with deflate": container(NUMBER, "deflate", 1, b"\xff\xff"),
    r"can't be unpacked with snappy \(its checksum": container(NUMBER, "snappy", 1, b"\x01\x00\x02abcd"),
    "1 bytes are left over after the last record": container(NUMBER, "null", 1, b"\x02\x02"),
    "ends in the middle of a number": container(NUMBER, "null", 2, b"\x02"),
    "-1 records are said to be": container(NUMBER, "null", -1, b""),
}


@pytest.mark.parametrize("message", DAMAGED)
def test_a_file_that_is_damaged_says_where(message: str, tmp_path: Path) -> None:
    (tmp_path / "a.avro").write_bytes(DAMAGED[message])
    with pytest.raises(DataLossError, match=rf"a\.avro is .*{message}"):
        read(tmp_path / "a.avro", pa.schema([("n", pa.int64())]))


def test_a_deflate_stream_without_an_end_is_damaged(tmp_path: Path) -> None:
    packer = zlib.compressobj(wbits=-15)
    packed = packer.compress(b"\x02") + packer.flush(zlib.Z_SYNC_FLUSH)
    (tmp_path / "a.avro").write_bytes(container(NUMBER, "deflate", 1, packed))
    with pytest.raises(DataLossError, match="its stream has no end"):
        read(tmp_path / "a.avro", pa.schema([("n", pa.int64())]))


def test_what_can_not_be_read_or_written_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "a.avro"
    path.write_bytes(by_fastavro(SALES, WRITER))
    with pytest.raises(BadRecordError, match=r"it has no field 'm', .*; give the type="):
        read(path, pa.schema([pa.field("m", pa.int64(), nullable=False)]))
    with pytest.raises(BadRecordError, match="text is string in its schema, which can't be read as int64"):
        read(path, pa.schema([("text", pa.int64())]))
    with pytest.raises(GraphError, match=r"here: Avro has no type for column 'n', which is uint64: cast"):
        AvroFiles().check(pa.schema([("n", pa.uint64())]), "here")
    with pytest.raises(OptionError, match="compression='lzo' is none of none, deflate, snappy, zstd"):
        AvroFiles("lzo")
    path.write_bytes(b"PAR1")
    with pytest.raises(GraphError, match=r"from_files.*a\.avro is no Avro object container file"):
        files_source(str(path))
