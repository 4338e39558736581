"""job.from_files(...): what is refused when it is written, and what a name says."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from onceflow.connectors.files.csv_files import Csv
from onceflow.connectors.files.source import FileSource, files_source
from onceflow.runtime.errors import UsageError


@dataclass(frozen=True)
class Tagged:
    user: str
    tags: list[str]


def made(url: str, of: Any = Tagged, form: Any = None, watch: Any = None) -> FileSource:
    return files_source(url, of, form, watch, None)


def test_the_name_says_the_format_and_watching_makes_it_unbounded() -> None:
    source = made("in/*.jsonl.gz")
    assert (source.form.name, source.is_bounded, source.record_type) == ("jsonl", True, Tagged)
    assert not made("in/*.parquet", watch="10 s").is_bounded
    assert made("in", form="parquet").form.name == "parquet"
    assert made("in/*.ndjson").form.name == "jsonl"


def test_parquet_says_its_columns_itself(tmp_path: Path) -> None:
    pq.write_table(pa.table({"n": [1], "s": pa.array(["x"]).dictionary_encode()}), tmp_path / "a.parquet")
    source = made(f"{tmp_path}/*.parquet", of=None)
    assert source.schema == pa.schema([("n", pa.int64()), ("s", pa.string())])


Make = Callable[[], object]
MISTAKES: list[tuple[Make, str]] = [
    (
        lambda: made("in"),
        r"job.from_files\('in'\): the name does not say of what format.*jsonl, csv, parquet",
    ),
    (
        lambda: made("in", form="josnl"),
        "format='josnl' is none of jsonl, csv, parquet, avro .did you mean 'jsonl'",
    ),
    (lambda: made("in", form=3), "format=3: give one of jsonl, csv, parquet"),
    (lambda: made("in/*.csv"), "column 'tags' is list<.*>, for which CSV has no form"),
    (lambda: made("in/*.jsonl", of=None), "what is in the files has to be said: type="),
    (lambda: made("in/*.jsonl", of=int), "type=int is not a record type"),
    (lambda: made("nothing/*.parquet", of=None), "there is no file yet to tell the columns from: say type="),
    (lambda: made("in/*.jsonl", watch="soon"), "watch"),
    (lambda: Csv(delimiter=", "), "delimiter=', ': it has to be one character"),
    (
        lambda: made("in/*.jsonl", of=pa.schema([("t", pa.time32("s"))])),
        r"no way to decode the Arrow type time32\[s\]",
    ),
]


@pytest.mark.parametrize(("make", "sentence"), MISTAKES)
def test_each_mistake_has_its_sentence(make: Make, sentence: str) -> None:
    with pytest.raises(UsageError, match=sentence):
        make()
