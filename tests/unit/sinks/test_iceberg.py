"""IcebergSink on real tables of a catalog in SQLite, read by DuckDB and by pyiceberg."""

from __future__ import annotations

import datetime as dt
import sqlite3
from collections.abc import Callable
from contextlib import closing
from dataclasses import replace
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyiceberg.catalog import Catalog, load_catalog
from pyiceberg.table import Table

from onceflow.connectors.iceberg import settings
from onceflow.runtime.driver.committers import commit_once
from onceflow.runtime.errors import (
    DataLossError,
    Fatal,
    GraphError,
    Indeterminate,
    OptionError,
    Retryable,
    Unavailable,
)
from onceflow.runtime.records import RowKind
from onceflow.runtime.testing.mutation import Mutant, mutated
from onceflow.sinks.iceberg import IcebergSink
from tests.read_tables import read_iceberg
from tests.table_sinks import ORDERS, TableJob, order

NAME = "shop.orders"


class Shop:
    """A catalog, and its one table."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        uri = f"sqlite:///{folder}/catalog.db"
        self.catalog = {"type": "sql", "uri": uri, "warehouse": f"file://{folder}/warehouse"}

    def sink(self, **options: Any) -> IcebergSink:
        return IcebergSink(self.catalog, NAME, **options)

    def table(self) -> Table:
        return load_catalog(None, **self.catalog).load_table(NAME)

    def rows(self) -> list[tuple[Any, ...]]:
        """The rows, on which two readers have to agree."""
        found = read_iceberg(self.table().metadata_location)
        rows = sorted((tuple(row.values()) for row in found), key=repr)
        scanned = self.table().scan().to_arrow().to_pylist()
        assert sorted((tuple(row.values()) for row in scanned), key=repr) == rows
        return rows

    def files(self) -> set[Path]:
        return set(self.folder.rglob("*.parquet"))


@pytest.fixture
def shop(tmp_path: Path) -> Shop:
    return Shop(tmp_path)


# --- What is written --------------------------------------------------------------------------------


def test_values_arrive_as_they_are(shop: Shop) -> None:
    row = {
        "Order Id": 7,
        "at": dt.datetime(1969, 12, 31, 23, 59, 59, 999_999, dt.UTC),
        "local": dt.datetime(2024, 2, 29, 1, 2, 3, 456_789),
        "day": dt.date(1960, 1, 2),
        "clock": dt.time(23, 59, 59, 1),
        "price": Decimal("-12.345"),
        "ok": True,
        "small": 255,
        "text": "é`\"'x",
        "raw": b"\x00\xff",
        "ratio": float("inf"),
        "list": [1, None],
        "record": {"a": None, "B c": "x"},
    }
    types = [
        pa.int16(),
        pa.timestamp("us", "Europe/Paris"),
        pa.timestamp("us"),
        pa.date32(),
        pa.time64("us"),
        pa.decimal128(20, 3),
        pa.bool_(),
        pa.uint8(),
        pa.large_string(),
        pa.large_binary(),
        pa.float32(),
        pa.list_(pa.int64()),
        pa.struct([("a", pa.int64()), ("B c", pa.string())]),
    ]
    schema = pa.schema(list(zip(row, types, strict=True)))
    nothing = dict.fromkeys(row) | {"Order Id": 8}
    TableJob(shop.sink(create_table=True), schema).checkpoint(1, [row, nothing])
    assert shop.rows() == [tuple(row.values()), tuple(nothing.values())]


@pytest.mark.parametrize(
    "by",
    [
        *("day", "at", "text", "number", "price", "flag", "raw", "day(at)", "hour(local)", "month(day)"),
        *("year(at)", "bucket(4, text)", "truncate(2, text)", "bucket(4, number)"),
    ],
)
def test_partitions_are_read_back(shop: Shop, by: str) -> None:
    row = {
        "day": dt.date(1960, 1, 2),
        "at": dt.datetime(2024, 1, 1, 1, 2, 3, 456_789, dt.UTC),
        "local": dt.datetime(1969, 1, 1, 0, 0, 0, 1),
        "text": "a b/c=%é",
        "number": -7,
        "price": Decimal("-1.50"),
        "flag": False,
        "raw": b"\xff\x00",
    }
    types = [
        *(pa.date32(), pa.timestamp("us", "UTC"), pa.timestamp("us"), pa.string(), pa.int64()),
        *(pa.decimal128(5, 2), pa.bool_(), pa.binary()),
    ]
    schema = pa.schema([*zip(row, types, strict=True), ("n", pa.int64())])
    column = by.rpartition("(")[2].rpartition(", ")[2].rstrip(")")
    rows = [{**row, "n": 1}, {**row, column: None, "n": 2}, {**row, "n": 3}]
    TableJob(shop.sink(partition_by=by, create_table=True), schema).checkpoint(1, rows)
    assert sorted(shop.rows(), key=lambda found: found[-1]) == [tuple(each.values()) for each in rows]
    assert len(shop.files()) == 2, "a file for each partition"
    filtered = shop.table().scan(row_filter=f"{column} IS NULL").to_arrow()
    assert filtered.column("n").to_pylist() == [2], "readers skip by the partition"


def test_readers_skip_files_by_what_manifests_say_of_them(shop: Shop) -> None:
    job = TableJob(shop.sink(create_table=True), ORDERS)
    for n in (1, 2, 3):
        job.checkpoint(n, [order(n), order(n + 10, day=None)])
    table = shop.table()
    assert len(list(table.scan(row_filter="id = 2").plan_files())) == 2
    assert len(list(table.scan(row_filter="id < 2").plan_files())) == 1
    assert len(list(table.scan(row_filter="day = 'tue'").plan_files())) == 0
    assert table.scan(row_filter="id = 12").to_arrow().to_pylist() == [order(12, day=None)]


# --- By key -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("by", [(), "day", "bucket(3, id)"])
def test_the_last_row_of_a_key_counts_and_deletes_delete(shop: Shop, by: Any) -> None:
    insert, before, after, delete = RowKind
    job = TableJob(shop.sink(key="id", create_table=True, partition_by=by), ORDERS)
    job.checkpoint(1, [order(1, 10), order(2, 20), order(1, 11), order(3, 30)])
    assert shop.rows() == [(1, "mon", 11), (2, "mon", 20), (3, "mon", 30)]
    job.checkpoint(
        2,
        [order(1, 11), order(1, 12, "tue"), order(2), order(3), order(3, 33), order(9)],
        [before, after, delete, delete, insert, delete],
    )
    assert shop.rows() == [(1, "tue", 12), (3, "mon", 33)]
    job.checkpoint(3, [order(3), order(4, 40)], [before, after])
    assert shop.rows() == [(1, "tue", 12), (4, "mon", 40)], "an update to another key takes the old away"
    job.checkpoint(4, [order(9)], [delete])
    assert job.committer.last_committed() == 4, "a checkpoint that changes nothing is in the ledger"
    job.checkpoint(5, [order(1), order(4)], [delete, delete])
    assert shop.rows() == []


def test_many_keys_of_several_columns(shop: Shop) -> None:
    job = TableJob(shop.sink(key=["id", "day"], create_table=True), ORDERS)
    job.checkpoint(1, [order(n, 1, day) for n in range(500) for day in ("mon", "tue")])
    untouched = {file.file.file_path for file in shop.table().scan().plan_files()}
    job.checkpoint(2, [order(n, 2, "mon") for n in range(1_000, 1_400)])
    assert untouched < {file.file.file_path for file in shop.table().scan().plan_files()}
    job.checkpoint(3, [order(n, 3, "mon") for n in range(250, 1_250)])
    assert [sum(row[2] == cents for row in shop.rows()) for cents in (1, 2, 3)] == [750, 150, 1_000]


def test_with_a_key_a_row_is_a_whole_row(shop: Shop) -> None:
    TableJob(shop.sink(create_table=True), ORDERS)
    with pytest.raises(Fatal, match="column 'day' of the table is not in the rows, and with key= a row"):
        TableJob(shop.sink(key="id"), pa.schema([("id", pa.int64()), ("cents", pa.int32())]))


def test_a_null_is_no_key(shop: Shop) -> None:
    job = TableJob(shop.sink(key=["id", "day"], create_table=True), ORDERS)
    with pytest.raises(Fatal, match="key column 'day' is null in a row"):
        job.promise(1, [order(1, day=None)])


# --- Commits of others, lost answers, and what a killed attempt leaves ----------------------------------


@pytest.mark.parametrize("key", [None, "id"])
def test_what_others_do_between_the_question_and_the_commit_neither_loses_nor_doubles(
    shop: Shop, key: str | None
) -> None:
    job = TableJob(shop.sink(key=key, create_table=True), ORDERS)
    job.checkpoint(1, [order(1, 10)])
    job.checkpoint(2, [order(2, 20)])
    everything = pa.schema([field.with_type(field.type) for field in ORDERS])

    def append() -> None:
        shop.table().append(pa.Table.from_pylist([order(100, 1)], everything))

    def rewrite() -> None:
        """What a compaction does: all files are replaced."""
        shop.table().overwrite(shop.table().scan().to_arrow())

    def set_property() -> None:
        with shop.table().transaction() as transaction:
            transaction.set_properties({"other": "1"})

    others: list[Callable[[], Any]] = [append, rewrite, set_property]
    for n, other in enumerate(others, 3):
        promised = job.promise(n, [order(1, n), order(n)] if key else [order(n)])
        job.committer.last_committed()
        other()
        try:
            job.committer.commit(n, promised)
        except Indeterminate:
            commit_once(job.committer, "out", n, promised)
        commit_once(job.committer, "out", n, promised)
        job.writer.commit(n)
    first = 5 if key else 10
    expected = [(1, first), (2, 20), (3, 1), (4, 1), (5, 1), (100, 1)]
    assert sorted(shop.rows()) == [(n, "mon", cents) for n, cents in expected]
    assert shop.table().properties["other"] == "1"


@pytest.mark.parametrize("key", [None, "id"])
def test_a_driver_that_stood_still_is_refused(shop: Shop, key: str | None) -> None:
    """It has asked, and a newer one has committed the same."""
    sink = shop.sink(key=key, create_table=True)
    frozen = TableJob(sink, ORDERS)
    frozen.checkpoint(1, [order(1)])
    promised = frozen.promise(2, [order(2)])
    frozen.committer.last_committed()
    TableJob(sink, ORDERS, 2, 2, frozen.store, promised=promised)
    with pytest.raises(Indeterminate):
        frozen.committer.commit(2, promised)
    assert shop.rows() == [(1, "mon", 1), (2, "mon", 1)]


def test_the_ledger_outlives_the_expiry_of_its_snapshot(shop: Shop) -> None:
    job = TableJob(shop.sink(create_table=True), ORDERS)
    job.checkpoint(1, [order(1)])
    shop.table().overwrite(shop.table().scan().to_arrow())
    table = shop.table()
    current = table.current_snapshot()
    assert current is not None
    old = [each.snapshot_id for each in table.snapshots() if each.snapshot_id != current.snapshot_id]
    table.maintenance.expire_snapshots().by_ids(old).commit()
    assert TableJob(shop.sink(), ORDERS, 2, 1).committer.last_committed() == 1


def test_manifests_of_many_commits_become_one(shop: Shop) -> None:
    job = TableJob(shop.sink(create_table=True), ORDERS)
    with shop.table().transaction() as transaction:  # 100 commits take seconds
        transaction.set_properties({"commit.manifest.min-count-to-merge": "3"})
    for n in range(1, 8):
        job.checkpoint(n, [order(n)])
    assert shop.table().inspect.manifests().num_rows <= 3
    assert len(shop.rows()) == 7


def test_old_snapshots_are_taken_out_when_asked(shop: Shop) -> None:
    sink = shop.sink(create_table=True, expire="1 h")
    job = TableJob(sink, ORDERS)
    # An hour can't pass in a test: the same with no patience.
    job.committer._upkeep._settings = replace(job.committer._settings, expire_ms=0)
    for n in range(1, 21):
        job.checkpoint(n, [order(n)])
    job.close()
    assert len(shop.table().snapshots()) == 1
    assert len(shop.rows()) == 20
    assert TableJob(sink, ORDERS, 2, 20).committer.last_committed() == 20


def test_files_that_no_checkpoint_names_are_deleted_and_no_others(shop: Shop) -> None:
    sink = shop.sink(create_table=True, partition_by="day")
    first = TableJob(sink, ORDERS)
    first.checkpoint(1, [order(1)])
    promised = first.promise(2, [order(2)])  # durable, and the driver dies before the commit
    first.promise(3, [order(3)])  # never durable
    TableJob(sink, ORDERS, lineage="cafe").promise(1, [order(9)])
    files = shop.files()
    assert len(files) == 4
    TableJob(sink, ORDERS, 2, 2, first.store, promised=promised)
    assert len(files - shop.files()) == 1, "the one of checkpoint 3"
    assert shop.rows() == [(1, "mon", 1), (2, "mon", 1)]


def test_a_promised_file_that_is_gone_ends_the_job(shop: Shop) -> None:
    job = TableJob(shop.sink(create_table=True), ORDERS)
    promised = job.promise(1, [order(1)])
    (path,) = shop.files()
    path.unlink()
    with pytest.raises(DataLossError, match="is not there as a slot wrote it for checkpoint 1"):
        commit_once(job.committer, "out", 1, promised)


# --- Tables that are there ------------------------------------------------------------------------------


def test_columns_are_added_when_asked(shop: Shop) -> None:
    TableJob(shop.sink(create_table=True), ORDERS).checkpoint(1, [order(1)])
    more = ORDERS.append(pa.field("note", pa.string()))
    with pytest.raises(Fatal, match=r"column 'note' \(string\) is not in the table.*schema_evolution"):
        TableJob(shop.sink(), more, lineage="cafe")
    appends = TableJob(shop.sink(schema_evolution="add"), more, lineage="cafe")
    appends.checkpoint(1, [{**order(2), "note": "new"}])
    even_more = more.append(pa.field("weight", pa.float32()))
    merges = TableJob(shop.sink(key="id", schema_evolution="add"), even_more, lineage="dead")
    merges.checkpoint(1, [{**order(2), "note": "two", "weight": 0.5}])
    appends.checkpoint(2, [{**order(3), "note": "as before"}])
    assert shop.rows() == [
        (1, "mon", 1, None, None),
        (2, "mon", 1, "two", 0.5),
        (3, "mon", 1, "as before", None),
    ]


def test_partitions_that_change_while_files_wait_are_refused(shop: Shop) -> None:
    job = TableJob(shop.sink(create_table=True), ORDERS)
    promised = job.promise(1, [order(1)])
    with shop.table().update_spec() as update:
        update.add_identity("day")
    with pytest.raises(Fatal, match="its partitions were changed since files of checkpoint 1 were written"):
        commit_once(job.committer, "out", 1, promised)
    with shop.table().update_spec() as update:
        update.remove_field("day")
    commit_once(job.committer, "out", 1, promised)
    assert shop.rows() == [(1, "mon", 1)]


@pytest.mark.parametrize(
    ("columns", "says"),
    [
        ({"cents": pa.int64()}, "column 'cents' is int64 in the rows and int32 in the table"),
        ({"id": pa.string()}, "column 'id' is string in the rows and int64 in the table"),
        ({"Day": pa.string()}, "column 'Day' of the rows is 'day' in the table"),
    ],
)
def test_what_does_not_fit_is_refused(shop: Shop, columns: dict[str, pa.DataType], says: str) -> None:
    TableJob(shop.sink(create_table=True), ORDERS)
    with pytest.raises(Fatal, match=says):
        TableJob(shop.sink(), pa.schema(list(columns.items())))


@pytest.mark.parametrize(
    ("by", "says"),
    [
        ("dya", "partition column 'dya' is not in the rows .did you mean 'day'"),
        ("day(day)", "a column of type string has no day"),
        ("week(day)", r"partition column 'week\(day\)' is not in the rows"),
    ],
)
def test_partitions_that_can_not_be_made(shop: Shop, by: str, says: str) -> None:
    with pytest.raises(Fatal, match=says):
        TableJob(shop.sink(create_table=True, partition_by=by), ORDERS)


def test_a_table_or_a_catalog_that_is_not_there(shop: Shop) -> None:
    with pytest.raises(Unavailable, match=r"Iceberg table shop\.orders can't be read: OperationalError"):
        TableJob(IcebergSink({"type": "sql", "uri": "sqlite:////nowhere/x.db"}, NAME), ORDERS)
    with pytest.raises(Fatal, match="there is no table: create it before, or say create_table=True"):
        TableJob(shop.sink(), ORDERS)


def test_a_catalog_that_another_process_has_is_busy_and_not_away(shop: Shop) -> None:
    """The job tries again, as it has to after a kill, and does not take it for a wrong setting."""
    TableJob(shop.sink(create_table=True), ORDERS)
    impatient = {**shop.catalog, "uri": shop.catalog["uri"] + "?timeout=0.1"}
    with closing(sqlite3.connect(shop.folder / "catalog.db", isolation_level=None)) as other:
        other.execute("BEGIN EXCLUSIVE")
        with pytest.raises(Retryable, match="database is locked") as busy:
            TableJob(IcebergSink(impatient, NAME), ORDERS)
    assert not isinstance(busy.value, Unavailable)
    TableJob(IcebergSink(impatient, NAME), ORDERS)


@pytest.mark.parametrize("key", [None, "id"])
def test_a_commit_that_sqlite_refused_is_not_taken_for_done(shop: Shop, key: str | None) -> None:
    """SQLAlchemy 2.1 puts a connection back whose COMMIT was refused, with its transaction open. Whoever gets
    it next reads what nobody else will ever see, and holds off all others."""
    refused_by_a_reader(shop, key)
    assert shop.rows() == [(1, "mon", 1), (2, "mon", 1)]


def refused_by_a_reader(shop: Shop, key: str | None) -> None:
    TableJob(shop.sink(key=key, create_table=True), ORDERS)
    impatient = {**shop.catalog, "uri": shop.catalog["uri"] + "?timeout=0.1"}
    job = TableJob(IcebergSink(impatient, NAME, key=key), ORDERS)
    job.checkpoint(1, [order(1)])
    promised = job.promise(2, [order(2)])
    with closing(sqlite3.connect(shop.folder / "catalog.db", isolation_level=None)) as other:
        other.execute("BEGIN")
        other.execute(
            "SELECT * FROM iceberg_tables"
        ).fetchall()  # who reads lets others write, but not commit
        job.committer.last_committed()
        with pytest.raises(Indeterminate, match="database is locked"):
            job.committer.commit(2, promised)
        assert job.committer.last_committed() == 1
        assert shop.rows() == [(1, "mon", 1)], "others can read"
        other.execute("COMMIT")
    commit_once(job.committer, "out", 2, promised)


def test_without_the_rollback_it_is_taken_for_done(shop: Shop) -> None:
    def left_open(catalog: Catalog) -> Catalog:
        return catalog

    mutant = Mutant("nothing is rolled back", [(settings, "rolled_back_at_once", left_open)])
    with mutated(mutant), pytest.raises(AssertionError):
        refused_by_a_reader(shop, None)


# --- Options --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"catalog": ""}, "catalog must be properties"),
        ({"table": "orders"}, "table 'orders' must have a namespace"),
        ({"schema_evolution": "all"}, "schema_evolution='all'"),
        ({"compact_every": 1}, "compact_every=1 must be 2 commits or more"),
        ({"expire": "1 min"}, "expire='1 min' is less than an hour"),
    ],
)
def test_options_that_are_refused(options: dict[str, Any], says: str) -> None:
    with pytest.raises(OptionError, match=says):
        IcebergSink(**{"catalog": "shop", "table": NAME, **options})


def test_what_no_iceberg_table_can_have_is_refused_when_the_job_is_built() -> None:
    with pytest.raises(GraphError, match="Iceberg has no type for column 'at', which is duration"):
        IcebergSink("shop", NAME).check(pa.schema([("at", pa.duration("us"))]), "out")
    with pytest.raises(GraphError, match="key column 'idd' is not in the rows"):
        IcebergSink("shop", NAME, key="idd").check(ORDERS, "out")
