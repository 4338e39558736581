"""A Delta and an Iceberg table become what they were at an older checkpoint, in one commit."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake
from pyiceberg.catalog import load_catalog

from onceflow.runtime.contracts import Committable
from onceflow.runtime.contracts.sink import WentBack
from onceflow.runtime.errors import Fatal, Indeterminate
from onceflow.runtime.records import RowKind
from onceflow.sinks.delta import DeltaSink
from onceflow.sinks.iceberg import IcebergSink
from tests.read_tables import read_delta, read_iceberg
from tests.table_sinks import ORDERS, TableJob, order

DELETE = int(RowKind.DELETE)


@dataclass
class Table:
    """One of the two on this machine. `key`: that of its sink."""

    kind: str
    folder: Path
    key: str | None

    @property
    def catalog(self) -> dict[str, str]:
        uri = f"sqlite:///{self.folder}/catalog.db"
        return {"type": "sql", "uri": uri, "warehouse": f"file://{self.folder}"}

    @property
    def url(self) -> str:
        return str(self.folder / "orders")

    def sink(self) -> Any:
        if self.kind == "delta":
            return DeltaSink(self.url, key=self.key, create_table=True)
        return IcebergSink(self.catalog, "shop.orders", key=self.key, create_table=True)

    def rows(self) -> list[tuple[int, int]]:
        """What DuckDB reads: id and cents."""
        if self.kind == "delta":
            found = read_delta(self.url)
        else:
            found = read_iceberg(
                load_catalog(None, **self.catalog).load_table("shop.orders").metadata_location
            )
        return sorted((row["id"], row["cents"]) for row in found)

    def write_by_somebody_else(self) -> None:
        rows = pa.table({"id": [77], "day": ["sun"], "cents": [7]}, schema=ORDERS)
        if self.kind == "delta":
            write_deltalake(self.url, rows, mode="append")
        else:
            load_catalog(None, **self.catalog).load_table("shop.orders").append(rows)


@pytest.fixture(params=["delta", "iceberg"])
def kind(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def written(table: Table) -> list[list[Committable]]:
    """Three checkpoints; what each has promised."""
    job = TableJob(table.sink(), ORDERS)
    kinds = {1: [0, 0], 2: [0, DELETE], 3: [0, 0]} if table.key else {}
    rows = {
        1: [order(1, 10), order(2, 20)],
        2: [order(1, 11), order(2, 20)],
        3: [order(3, 30), order(1, 12)],
    }
    promised: list[list[Committable]] = []
    for n in (1, 2, 3):
        promised.append(job.promise(n, rows[n], kinds.get(n)))
        job.committer.last_committed()
        job.committer.commit(n, promised[-1])
        job.writer.commit(n)
    job.close()
    return promised


def went_back(table: Table, to: int, promised: Sequence[Committable], past: int = 3) -> TableJob:
    job = TableJob(table.sink(), ORDERS, attempt=2, restored_id=past + 1)
    assert job.committer.last_committed() is not None
    job.committer.take_back(past + 1, WentBack(to, past), promised)  # type: ignore[attr-defined]
    assert job.committer.last_committed() == past + 1
    return job


@pytest.mark.parametrize("to", [1, 2])
def test_appended_rows_are_gone_and_new_ones_are_added(kind: str, to: int, tmp_path: Path) -> None:
    table = Table(kind, tmp_path, None)
    promised = written(table)
    before = {1: [(1, 10), (2, 20)], 2: [(1, 10), (1, 11), (2, 20), (2, 20)]}[to]
    job = went_back(table, to, promised[to - 1])
    assert table.rows() == before
    job.checkpoint(5, [order(9, 90)])
    job.close()
    assert table.rows() == [*before, (9, 90)]


@pytest.mark.parametrize(("to", "before"), [(1, [(1, 10), (2, 20)]), (2, [(1, 11)])])
def test_rows_by_key_are_what_they_were(
    kind: str, to: int, before: list[tuple[int, int]], tmp_path: Path
) -> None:
    table = Table(kind, tmp_path, "id")
    promised = written(table)
    assert table.rows() == [(1, 12), (3, 30)]
    went_back(table, to, promised[to - 1]).close()
    assert table.rows() == before


def test_going_back_before_the_first_row_leaves_none(kind: str, tmp_path: Path) -> None:
    table = Table(kind, tmp_path, None)
    written(table)
    job = went_back(table, 0, [])
    assert table.rows() == []
    job.checkpoint(5, [order(9, 90)])
    job.close()
    assert table.rows() == [(9, 90)]


def test_rows_of_others_between_two_checkpoints_stay_where_only_ours_are_later(
    kind: str, tmp_path: Path
) -> None:
    table = Table(kind, tmp_path, None)
    job = TableJob(table.sink(), ORDERS)
    job.checkpoint(1, [order(1, 10)])
    table.write_by_somebody_else()
    job.checkpoint(2, [order(2, 20)])
    job.close()
    went_back(table, 1, [], past=2).close()
    assert table.rows() == [(1, 10), (77, 7)]


def test_columns_that_the_sink_has_added_since_are_added_again(tmp_path: Path) -> None:
    """Delta restores the columns with the version."""
    url = str(tmp_path / "orders")
    narrow = pa.schema([ORDERS.field("id"), ORDERS.field("cents")])
    job = TableJob(DeltaSink(url, create_table=True), narrow)
    job.checkpoint(1, [{"id": 1, "cents": 10}])
    job.close()
    wide = DeltaSink(url, schema_evolution="add")
    job = TableJob(wide, ORDERS, attempt=2, restored_id=1)
    job.checkpoint(2, [order(2, 20)])
    job.close()
    job = TableJob(wide, ORDERS, attempt=3, restored_id=3)
    assert job.committer.last_committed() == 2
    job.committer.take_back(3, WentBack(1, 2), [])  # type: ignore[attr-defined]
    job.checkpoint(4, [order(4, 40)])
    job.close()
    found = sorted((row["id"], row["cents"], row["day"]) for row in read_delta(url))
    assert found == [(1, 10, None), (4, 40, "mon")]


def test_a_frozen_commit_of_the_abandoned_time_fails(kind: str, tmp_path: Path) -> None:
    table = Table(kind, tmp_path, None)
    promised = written(table)
    frozen = TableJob(table.sink(), ORDERS)
    frozen.committer.last_committed()
    late = frozen.promise(4, [order(4, 40)])
    went_back(table, 1, promised[0]).close()
    with pytest.raises(Indeterminate, match="in doubt"):
        frozen.committer.commit(4, late)
    assert table.rows() == [(1, 10), (2, 20)]


def test_rows_of_others_are_not_taken_away(kind: str, tmp_path: Path) -> None:
    table = Table(kind, tmp_path, None)
    promised = written(table)
    table.write_by_somebody_else()
    with pytest.raises(Fatal, match=r"is somebody else's.* younger than checkpoint 1.*--from 3"):
        went_back(table, 1, promised[0])
    assert (77, 7) in table.rows()
    went_back(table, 3, promised[2], past=4).close()
    assert (77, 7) in table.rows(), "nothing of the job is younger than checkpoint 3"


def test_versions_that_change_no_row_may_be_in_between(tmp_path: Path) -> None:
    table = Table("delta", tmp_path, None)
    promised = written(table)
    DeltaTable(table.url).optimize.compact()
    went_back(table, 1, promised[0]).close()
    assert table.rows() == [(1, 10), (2, 20)]


def test_one_can_go_back_from_the_copy_to_one_before_it(kind: str, tmp_path: Path) -> None:
    table = Table(kind, tmp_path, None)
    promised = written(table)
    went_back(table, 2, promised[1]).close()
    went_back(table, 1, promised[0], past=4).close()
    assert table.rows() == [(1, 10), (2, 20)]
