"""Files of each format pass the suites of sources and of sources that prune."""

from __future__ import annotations

import gzip
import json
import os
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.csv as pa_csv
import pyarrow.parquet as pq
import pytest

from onceflow.connectors.files.csv_files import Csv
from onceflow.connectors.files.json_lines import JsonLines
from onceflow.connectors.files.parquet_files import Parquet
from onceflow.connectors.files.source import FileSource, files_source
from onceflow.runtime.contracts import Source
from onceflow.runtime.testing.conformance import PRUNING_CHECKS, SOURCE_CHECKS

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


FORMATS: dict[str, tuple[Any, Callable[[pa.Table, Path], None]]] = {
    "jsonl": (JsonLines(block_bytes=SMALL), write_jsonl),
    "jsonl.gz": (JsonLines(block_bytes=SMALL), write_jsonl_gz),
    "csv": (Csv(block_bytes=SMALL), write_csv),
    "csv.gz": (Csv(block_bytes=SMALL), write_csv_gz),
    "parquet": (Parquet(batch_rows=11), write_parquet),
}


@pytest.fixture(params=FORMATS)
def source(request: pytest.FixtureRequest, tmp_path: Path) -> FileSource:
    form, write = FORMATS[request.param]
    for number, count in enumerate((3, 0, 1, 150)):
        write(rows(1_000 * number, count), tmp_path / f"part-{number}.{request.param}")
    for path in tmp_path.iterdir():
        os.utime(path, (1_700_000_000, 1_700_000_000))
    (tmp_path / f"_half.{request.param}").write_text("not whole yet")
    return files_source(f"{tmp_path}/*.{request.param}", SCHEMA, form, None, None)


@pytest.mark.parametrize("check", SOURCE_CHECKS, ids=lambda check: check.__name__)
def test_as_a_source(check: Callable[[Source], None], source: Source) -> None:
    check(source)


@pytest.mark.parametrize("check", PRUNING_CHECKS, ids=lambda check: check.__name__)
def test_as_a_source_that_prunes(check: Callable[[Source], None], source: FileSource) -> None:
    check(replace(source, watch_ms=10))
