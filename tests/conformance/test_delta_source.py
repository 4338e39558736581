"""A Delta table passes the suite of sources, and what is no plain table is refused."""

from __future__ import annotations

import datetime as dt
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake

from onceflow import Job
from onceflow.connectors.delta import delta_source
from onceflow.connectors.delta.source import DeltaSource
from onceflow.runtime.clock import SystemClock
from onceflow.runtime.errors import DataLossError, GraphError, JobFailedError, OptionError
from onceflow.testing.kit import SourceKit

NOON = dt.datetime(2026, 11, 27, 12, 0, 0, 250, tzinfo=dt.UTC)
PARTITION_VALUES = {
    "day": dt.date(2026, 11, 27),
    "at": NOON,
    "local": NOON.replace(tzinfo=None),
    "is_paid": True,
    "shop": "a b/ü=1",
    "number": -7,
}


@dataclass(frozen=True)
class Order:
    n: int
    shop: str | None


def append(url: str, rows: list[dict[str, Any]], partition_by: list[str] | None = None) -> None:
    write_deltalake(url, pa.Table.from_pylist(rows), mode="append", partition_by=partition_by or ["shop"])


def orders(first: int, count: int) -> list[dict[str, Any]]:
    return [{"n": n, "shop": (None, "a b", "ü/1")[n % 3]} for n in range(first, first + count)]


def read(source: DeltaSource) -> list[dict[str, Any]]:
    job = Job("read")
    rows = job.source(source, uid="rows").collect()
    job.run(master="threads[2]")
    return [row if isinstance(row, dict) else vars(row) for row in rows]


class TestDelta(SourceKit):
    """A table of several commits and partitions, as it was before the last one."""

    def prepare(self) -> None:
        url = f"{self.folder}/table"
        for first in (0, 50, 60):
            append(url, orders(first, 50 if first < 60 else 1))
        self.settings["version"] = DeltaTable(url).version()
        append(url, orders(1_000, 10))

    def source(self) -> DeltaSource:
        return delta_source(f"{self.folder}/table", Order, version=int(self.settings["version"]))


def test_partition_values_and_rows_come_back_as_they_were_written(tmp_path: Path) -> None:
    url = str(tmp_path / "table")
    written = [{"n": 1, **PARTITION_VALUES}, {"n": 2, **dict.fromkeys(PARTITION_VALUES)}]
    table = pa.Table.from_pylist(written, pa.table({k: [v] for k, v in written[0].items()}).schema)
    write_deltalake(url, table, partition_by=list(PARTITION_VALUES))
    assert sorted(read(delta_source(url)), key=lambda row: row["n"]) == written


def test_only_what_the_job_needs_is_read_and_rows_may_have_a_type(tmp_path: Path) -> None:
    url = str(tmp_path / "table")
    append(url, orders(0, 30))
    job = Job("shops")
    shops = job.source(delta_source(url, Order), uid="rows").select("shop").collect()
    job.run(master="threads[1]")
    assert sorted(row["shop"] or "" for row in shops) == sorted(row["shop"] or "" for row in orders(0, 30))


def test_a_file_that_vacuum_took_away_ends_the_job_and_is_named(tmp_path: Path) -> None:
    url = str(tmp_path / "table")
    append(url, orders(0, 9))
    source = delta_source(url)
    gone = next((tmp_path / "table").rglob("*.parquet"))
    gone.unlink()
    with pytest.raises(JobFailedError, match=rf"{gone.name} is gone, and it was to be read"):
        read(source)
    enumerator = source.open_enumerator("job", SystemClock())
    with pytest.raises(DataLossError, match="is gone"):
        enumerator.check_restored(enumerator.initial_splits())


def test_what_is_written_later_is_not_read(tmp_path: Path) -> None:
    url = str(tmp_path / "table")
    append(url, orders(0, 9))
    source = delta_source(url, Order)
    known = source.open_enumerator("job", SystemClock()).initial_splits()
    append(url, orders(100, 9))
    enumerator = source.open_enumerator("job", SystemClock())
    assert enumerator.discover(frozenset(split.split_id for split in known)) == []
    assert len(enumerator.initial_splits()) == 2 * len(known) == 6


def test_tables_whose_files_are_not_their_rows_are_refused(tmp_path: Path) -> None:
    url = str(tmp_path / "table")
    append(url, orders(0, 9))
    table = DeltaTable(url)
    table.alter.set_table_properties({"delta.enableDeletionVectors": "true"}, raise_if_not_exists=False)
    with pytest.raises(GraphError, match="deletionVectors"):
        delta_source(url)


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        ({"type": int}, "type=int is not a record type"),
        ({"version": "3"}, "give the number of a version"),
        ({"type": pa.schema([pa.field("m", pa.int64(), nullable=False)])}, "has no column 'm'"),
    ],
)
def test_mistakes_are_told_before_anything_runs(
    arguments: dict[str, Any], sentence: str, tmp_path: Path
) -> None:
    append(str(tmp_path / "table"), orders(0, 3))
    with pytest.raises((GraphError, OptionError), match=sentence):
        delta_source(str(tmp_path / "table"), **arguments)


def test_a_table_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(GraphError, match=r"delta_source\('.*nowhere'\): there is no Delta table"):
        delta_source(str(tmp_path / "nowhere"))
