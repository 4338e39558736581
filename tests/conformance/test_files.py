"""Files of each format pass the suites of sources and of sources that prune."""

from __future__ import annotations

import gzip
import json
import os
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any, ClassVar

import fastavro
import fsspec
import pyarrow as pa
import pyarrow.csv as pa_csv
import pyarrow.parquet as pq
import pytest

from onceflow.connectors.files.avro_files import AvroFiles
from onceflow.connectors.files.csv_files import Csv
from onceflow.connectors.files.json_lines import JsonLines
from onceflow.connectors.files.parquet_files import Parquet
from onceflow.connectors.files.source import FileSource, files_source
from onceflow.connectors.formats.avro.schema.derived import avro_of_arrow
from onceflow.testing.kit import SourceKit
from tests.s3_server import S3Server, gateway

SCHEMA = pa.schema([pa.field("n", pa.int64()), pa.field("text", pa.string(), nullable=False)])
SMALL = 64
"""A block of so many bytes, and a row group of so many rows: a file has several."""


def rows(first: int, count: int) -> pa.Table:
    made = [{"n": n, "text": f'a "{n}",\nb' if n % 3 else ""} for n in range(first, first + count)]
    return pa.Table.from_pylist(made, SCHEMA)


def write_jsonl(table: pa.Table, path: Path) -> None:
    path.write_text("\n\n".join(map(json.dumps, table.to_pylist())))


def write_jsonl_gz(table: pa.Table, path: Path) -> None:
    path.write_bytes(gzip.compress("".join(json.dumps(row) + "\n" for row in table.to_pylist()).encode()))


def write_csv(table: pa.Table, path: Path) -> None:
    pa_csv.write_csv(table, path)


def write_csv_gz(table: pa.Table, path: Path) -> None:
    with gzip.open(path, "wb") as file:
        pa_csv.write_csv(table, file)


def write_parquet(table: pa.Table, path: Path) -> None:
    pq.write_table(table, path, row_group_size=SMALL)


def write_avro(table: pa.Table, path: Path) -> None:
    schema = avro_of_arrow(SCHEMA, "Row")
    with path.open("wb") as file:
        fastavro.writer(file, schema, table.to_pylist(), codec="deflate", sync_interval=SMALL)


FORMATS: dict[str, tuple[Any, Callable[[pa.Table, Path], None]]] = {
    "jsonl": (JsonLines(block_bytes=SMALL), write_jsonl),
    "jsonl.gz": (JsonLines(block_bytes=SMALL), write_jsonl_gz),
    "csv": (Csv(block_bytes=SMALL), write_csv),
    "csv.gz": (Csv(block_bytes=SMALL), write_csv_gz),
    "parquet": (Parquet(batch_rows=11), write_parquet),
    "avro": (AvroFiles(gathered_bytes=2 * SMALL), write_avro),
}


class Files(SourceKit):
    """A folder of files that end with `ending`, watched."""

    ending: ClassVar[str]

    def prepare(self) -> None:
        folder, write = Path(self.folder), FORMATS[self.ending][1]
        for number, count in enumerate((3, 0, 1, 150)):
            write(rows(1_000 * number, count), folder / f"part-{number}.{self.ending}")
        for path in folder.iterdir():
            os.utime(path, (1_700_000_000, 1_700_000_000))
        (folder / f"_half.{self.ending}").write_text("not whole yet")

    def source(self) -> FileSource:
        form = FORMATS[self.ending][0]
        return files_source(f"{self.folder}/*.{self.ending}", SCHEMA, form, None, None)

    def pruning(self) -> FileSource:
        return replace(self.source(), watch_ms=10)


class TestJsonLines(Files):
    ending = "jsonl"


class TestPackedJsonLines(Files):
    ending = "jsonl.gz"
    in_new_processes = False


class TestCsv(Files):
    ending = "csv"
    in_new_processes = False


class TestPackedCsv(Files):
    ending = "csv.gz"
    in_new_processes = False


class TestParquet(Files):
    ending = "parquet"


class TestAvro(Files):
    ending = "avro"
    in_new_processes = False


class InPieces(Files):
    """Files that are cut: several splits of one file, which are finished one by one."""

    in_new_processes = False

    def source(self) -> FileSource:
        form = replace(FORMATS[self.ending][0], split_size=300)
        return files_source(f"{self.folder}/*.{self.ending}", SCHEMA, form, None, None)


class TestJsonLinesInPieces(InPieces):
    ending = "jsonl"


class TestAvroInPieces(InPieces):
    ending = "avro"


class TestParquetInPieces(InPieces):
    ending = "parquet"


@pytest.fixture(scope="module")
def server() -> Iterator[S3Server]:
    with S3Server(gateway()) as server:
        yield server


class OnS3(Files):
    """The same files as objects of a bucket."""

    server: ClassVar[S3Server]

    @pytest.fixture(autouse=True)
    def serve(self, server: S3Server) -> None:
        type(self).server = server  # the kit makes other objects of the class

    def prepare(self) -> None:
        super().prepare()
        bucket = self.server.new_bucket()
        self.settings |= {"bucket": bucket, "options": self.server.options}
        store = fsspec.filesystem("s3", **self.server.options)
        for path in Path(self.folder).iterdir():
            store.put_file(str(path), f"{bucket}/in/{path.name}")

    def source(self) -> FileSource:
        form, url = FORMATS[self.ending][0], f"s3://{self.settings['bucket']}/in/*.{self.ending}"
        return files_source(url, SCHEMA, form, None, self.settings["options"])


class TestJsonLinesOnS3(OnS3):
    ending = "jsonl"


class TestParquetOnS3(OnS3):
    ending = "parquet"
    in_new_processes = False
