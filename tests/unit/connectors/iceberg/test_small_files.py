"""Small files of an Iceberg table are joined, whatever is committed meanwhile: no row is lost, none doubled,
and the table can go back over it. The judges are DuckDB and pyiceberg."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyiceberg.catalog import Catalog, load_catalog
from pyiceberg.exceptions import CommitFailedException
from pyiceberg.table import Table

from onceflow.connectors.iceberg.iceberg_ledger import committed_in
from onceflow.connectors.iceberg.small_files import Joined, exchange, join_small_files, write_joined
from onceflow.connectors.tables.file_names import ledger_name
from onceflow.runtime.contracts.sink import WentBack
from onceflow.runtime.records import RowKind
from onceflow.sinks.iceberg import IcebergSink
from tests.read_tables import read_iceberg
from tests.table_sinks import LINEAGE, ORDERS, TableJob, order

LEDGER = ledger_name(LINEAGE, "out")


class Shop:
    """A table that a job writes into, a checkpoint after the other."""

    def __init__(self, folder: Path, **options: Any) -> None:
        uri = f"sqlite:///{folder}/catalog.db"
        self.catalog = {"type": "sql", "uri": uri, "warehouse": f"file://{folder}/warehouse"}
        self.sink = IcebergSink(self.catalog, "shop.orders", create_table=True, **options)
        self.job = TableJob(self.sink, ORDERS)

    def opened(self) -> Catalog:
        return load_catalog(None, **self.catalog)

    def table(self) -> Table:
        return self.opened().load_table("shop.orders")

    def files(self) -> list[str]:
        return sorted(task.file.file_path for task in self.table().scan().plan_files())

    def ids(self) -> list[int]:
        """The rows, on which two readers have to agree."""
        found = sorted(row["id"] for row in read_iceberg(self.table().metadata_location))
        assert sorted(self.table().scan().to_arrow()["id"].to_pylist()) == found
        return found

    def join(self) -> None:
        join_small_files(self.job.committer._settings, LEDGER, "here")  # type: ignore[attr-defined]

    def write_joined(self) -> Sequence[Joined]:
        return write_joined(self.opened(), "shop.orders", LEDGER, "here")

    def exchange(self, joined: Sequence[Joined], catalog: Any = None) -> None:
        exchange(catalog or self.opened(), "shop.orders", LEDGER, joined)


@pytest.fixture
def shop(tmp_path: Path) -> Shop:
    made = Shop(tmp_path, partition_by="day")
    for n in range(1, 6):
        made.job.checkpoint(n, [order(n, day="mon"), order(10 + n, day="tue")])
    return made


IDS = [1, 2, 3, 4, 5, 11, 12, 13, 14, 15]


def test_the_files_of_each_partition_become_one(shop: Shop) -> None:
    assert len(shop.files()) == 10
    shop.join()
    assert len(shop.files()) == 2
    assert shop.ids() == IDS
    assert committed_in(shop.table(), LEDGER) == 5
    days = shop.table().scan(row_filter="day = 'tue'")
    assert sorted(days.to_arrow()["id"].to_pylist()) == [11, 12, 13, 14, 15]
    assert len(list(days.plan_files())) == 1, "readers skip the other partition"
    before = shop.files()
    shop.join()
    assert shop.files() == before, "there is nothing left to join"


def test_the_sink_does_it_after_so_many_commits(tmp_path: Path) -> None:
    shop = Shop(tmp_path, compact_every=4)
    for n in range(1, 5):
        shop.job.checkpoint(n, [order(n)])
    shop.job.close()
    assert len(shop.files()) == 1
    assert shop.ids() == [1, 2, 3, 4]


def test_rows_by_key_stay_what_they_are(tmp_path: Path) -> None:
    shop = Shop(tmp_path, key="id")
    for n in range(1, 5):
        shop.job.checkpoint(n, [order(n), order(n + 10)])
    shop.join()
    assert len(shop.files()) == 1
    shop.job.checkpoint(5, [order(2), order(3), order(11)], [RowKind.DELETE, RowKind.INSERT, RowKind.INSERT])
    assert shop.ids() == [1, 3, 4, 11, 12, 13, 14]


def test_older_files_get_the_columns_that_were_added_since(shop: Shop) -> None:
    with shop.table().update_schema() as update:
        update.union_by_name(pa.schema([("note", pa.string())]))
    shop.join()
    assert shop.ids() == IDS
    assert shop.table().scan().to_arrow()["note"].to_pylist() == [None] * 10


# --- What is committed meanwhile ----------------------------------------------------------------------------


def test_what_the_sink_commits_meanwhile_is_there(shop: Shop) -> None:
    joined = shop.write_joined()
    shop.job.checkpoint(6, [order(6, day="mon")])
    shop.exchange(joined)
    assert shop.ids() == sorted([*IDS, 6])
    assert len(shop.files()) == 3
    assert committed_in(shop.table(), LEDGER) == 6


def test_rows_that_somebody_deletes_meanwhile_do_not_come_back(shop: Shop) -> None:
    """The other partition is joined all the same."""
    joined = shop.write_joined()
    shop.table().delete("id = 3")
    shop.exchange(joined)
    assert shop.ids() == [n for n in IDS if n != 3]
    assert len(shop.files()) == 5


def test_who_joins_the_same_files_at_once_doubles_nothing(shop: Shop) -> None:
    """An older driver that stood still may do it."""
    joined = shop.write_joined()
    shop.join()
    shop.exchange(joined)
    assert shop.ids() == IDS
    assert len(shop.files()) == 2


class Hurried:
    """A catalog in which somebody does something between a look at a table and each request."""

    def __init__(self, catalog: Catalog, meanwhile: Callable[[], None]) -> None:
        self._catalog = catalog
        self._meanwhile = meanwhile

    def load_table(self, name: str) -> Table:
        return self._catalog.load_table(name)

    def commit_table(self, *arguments: Any) -> Any:
        self._meanwhile()
        return self._catalog.commit_table(*arguments)


def test_who_is_refused_begins_again_on_top_of_what_is_there(shop: Shop) -> None:
    """Somebody commits between its look and its request, twice."""
    others = iter([6, 7])

    def meanwhile() -> None:
        if (n := next(others, None)) is not None:
            shop.job.checkpoint(n, [order(n, day="mon")])

    shop.exchange(shop.write_joined(), Hurried(shop.opened(), meanwhile))
    assert shop.ids() == sorted([*IDS, 6, 7])
    assert len(shop.files()) == 4


def test_who_is_always_refused_leaves_all_as_it_is(shop: Shop) -> None:
    def refuse() -> None:
        raise CommitFailedException("somebody else was faster")

    with pytest.raises(CommitFailedException):
        shop.exchange(shop.write_joined(), Hurried(shop.opened(), refuse))
    assert shop.ids() == IDS
    assert len(shop.files()) == 10


def test_files_of_others_are_left_alone(shop: Shop) -> None:
    rows = pa.table({"id": [77], "day": ["mon"], "cents": [7]}, schema=ORDERS)
    for _ in range(2):
        shop.table().append(rows)
    shop.join()
    assert len(shop.files()) == 4
    assert shop.ids() == [*IDS, 77, 77]


# --- Starts and going back ----------------------------------------------------------------------------------


def test_the_next_attempt_takes_no_joined_file_for_one_of_a_dead_attempt(shop: Shop) -> None:
    shop.join()
    shop.job.promise(6, [order(6)])  # never durable
    again = TableJob(shop.sink, ORDERS, 2, 5)
    assert again.committer.last_committed() == 5
    again.checkpoint(6, [order(6)])
    assert shop.ids() == sorted([*IDS, 6])


@pytest.mark.parametrize("to", [3, 5])
def test_a_job_goes_back_over_it(to: int, shop: Shop) -> None:
    """It goes to a checkpoint before it, and to the one that it is of."""
    shop.join()
    shop.job.checkpoint(6, [order(6)])
    again = TableJob(shop.sink, ORDERS, 2, 7)
    assert again.committer.last_committed() == 6
    again.committer.take_back(7, WentBack(to, 6), [])  # type: ignore[attr-defined]
    assert shop.ids() == sorted([*range(1, to + 1), *range(11, to + 11)])
    assert len(shop.files()) == {3: 6, 5: 2}[to]
