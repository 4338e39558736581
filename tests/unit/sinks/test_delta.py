"""DeltaSink on real tables of this disk, read by DuckDB."""

from __future__ import annotations

import datetime as dt
import os
from collections.abc import Callable
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake

from onceflow.runtime.driver.committers import commit_once
from onceflow.runtime.errors import (
    DataLossError,
    Fatal,
    GraphError,
    Indeterminate,
    OptionError,
)
from onceflow.runtime.records import RowKind
from onceflow.sinks.delta import DeltaSink
from tests.read_tables import read_delta
from tests.table_sinks import ORDERS, TableJob, order


@pytest.fixture
def url(tmp_path: Path) -> str:
    return str(tmp_path / "orders of today")


def rows_of(url: str) -> list[tuple[Any, ...]]:
    return sorted(tuple(row.values()) for row in read_delta(url))


# --- What is written --------------------------------------------------------------------------------


def test_values_arrive_as_they_are(url: str) -> None:
    row = {
        "Order Id": 7,
        "at": dt.datetime(1969, 12, 31, 23, 59, 59, 999_999, dt.UTC),
        "local": dt.datetime(2024, 2, 29, 1, 2, 3, 456_789),
        "day": dt.date(1960, 1, 2),
        "price": Decimal("-12.345"),
        "ok": True,
        "small": 255,
        "text": "é`\"'\x00x",
        "raw": b"\x00\xff",
        "ratio": float("inf"),
        "list": [1, None],
        "record": {"a": None, "B c": "x"},
    }
    types = [
        pa.int32(),
        pa.timestamp("us", "Europe/Paris"),
        pa.timestamp("us"),
        pa.date32(),
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
    TableJob(DeltaSink(url, create_table=True), schema).checkpoint(1, [row, nothing])
    assert sorted(read_delta(url), key=lambda r: r["Order Id"]) == [row, nothing]


@pytest.mark.parametrize("by", ["day", "at", "local", "text", "number", "flag"])
def test_partitions_are_read_back(url: str, by: str) -> None:
    row = {
        "day": dt.date(1960, 1, 2),
        "at": dt.datetime(2024, 1, 1, 1, 2, 3, 456_789, dt.UTC),
        "local": dt.datetime(1969, 1, 1, 0, 0, 0, 1),
        "text": "a b/c=%é",
        "number": -7,
        "flag": False,
    }
    types = [
        pa.date32(),
        pa.timestamp("us", "UTC"),
        pa.timestamp("us"),
        pa.string(),
        pa.int64(),
        pa.bool_(),
    ]
    schema = pa.schema([*zip(row, types, strict=True), ("n", pa.int64())])
    rows = [{**row, "n": 1}, {**row, by: None, "n": 2}, {**row, "n": 3}]
    job = TableJob(DeltaSink(url, partition_by=by, create_table=True), schema)
    job.checkpoint(1, rows)
    assert sorted(read_delta(url), key=lambda r: r["n"]) == rows
    assert DeltaTable(url).metadata().partition_columns == [by]
    assert len(DeltaTable(url).file_uris()) == 2, "a file for each partition"


@pytest.mark.parametrize("key", [None, "id"])
def test_the_empty_text_is_no_partition(url: str, key: str | None) -> None:
    job = TableJob(DeltaSink(url, key=key, partition_by="day", create_table=True), ORDERS)
    with pytest.raises(Fatal, match=r"'day' is the empty text in a row, which Delta reads as null"):
        job.promise(1, [order(1, day="")])


def test_readers_skip_files_by_what_the_log_says_of_them(url: str) -> None:
    schema = pa.schema(
        [("n", pa.int64()), ("at", pa.timestamp("us")), ("text", pa.string()), ("x", pa.float64())]
    )
    at = dt.datetime(2024, 1, 1, 0, 0, 0, 1_500)
    long = "x" * 40
    rows = [{"n": 5, "at": at, "text": "b", "x": 1.0}, {"n": None, "at": at, "text": long, "x": None}]
    TableJob(DeltaSink(url, create_table=True), schema).checkpoint(1, rows)
    (said,) = pa.table(DeltaTable(url).get_add_actions(flatten=True)).to_pylist()
    assert said["num_records"] == 2
    assert (said["min.n"], said["max.n"], said["null_count.n"]) == (5, 5, 1)
    assert said["min.at"] <= at <= said["max.at"], "the log has milliseconds"
    assert said.get("min.text") is None, "a text that is long is not cut"
    assert said.get("min.x") is None, "NaN is in no footer"


# --- By key -----------------------------------------------------------------------------------------


def test_the_last_row_of_a_key_counts_and_deletes_delete(url: str) -> None:
    insert, before, after, delete = RowKind
    job = TableJob(DeltaSink(url, key="id", create_table=True, partition_by="day"), ORDERS)
    job.checkpoint(1, [order(1, 10), order(2, 20), order(1, 11), order(3, 30)])
    assert rows_of(url) == [(1, "mon", 11), (2, "mon", 20), (3, "mon", 30)]
    job.checkpoint(
        2,
        [order(1, 11), order(1, 12, "tue"), order(2), order(3), order(3, 33), order(9)],
        [before, after, delete, delete, insert, delete],
    )
    assert rows_of(url) == [(1, "tue", 12), (3, "mon", 33)]
    job.checkpoint(3, [order(3), order(4, 40)], [before, after])
    assert rows_of(url) == [(1, "tue", 12), (4, "mon", 40)], "an update to another key takes the old away"


def test_a_checkpoint_that_changes_nothing_is_in_the_ledger(url: str) -> None:
    job = TableJob(DeltaSink(url, key="id", create_table=True), ORDERS)
    job.checkpoint(1, [order(1)])
    job.checkpoint(2, [order(9)], [RowKind.DELETE])
    assert job.committer.last_committed() == 2


def test_columns_that_the_rows_lack_stay_as_they_are(url: str) -> None:
    TableJob(DeltaSink(url, create_table=True), ORDERS).checkpoint(1, [order(1, 10), order(2, 20)])
    fewer = pa.schema([("id", pa.int64()), ("cents", pa.int32())])
    job = TableJob(DeltaSink(url, key="id"), fewer, lineage="cafe")
    job.checkpoint(1, [{"id": 1, "cents": 11}, {"id": 3, "cents": 30}])
    assert rows_of(url) == [(1, "mon", 11), (2, "mon", 20), (3, None, 30)]


def test_a_null_is_no_key(url: str) -> None:
    job = TableJob(DeltaSink(url, key=["id", "day"], create_table=True), ORDERS)
    with pytest.raises(Fatal, match="key column 'day' is null in a row"):
        job.promise(1, [order(1, day=None)])


# --- Commits of others, lost answers, and what a killed attempt leaves ----------------------------------


@pytest.mark.parametrize("key", [None, "id"])
def test_what_others_do_between_the_question_and_the_commit_neither_loses_nor_doubles(
    url: str, key: str | None
) -> None:
    job = TableJob(DeltaSink(url, key=key, create_table=True), ORDERS)
    job.checkpoint(1, [order(1, 10)])
    job.checkpoint(2, [order(2, 20)])

    def append() -> None:
        write_deltalake(url, pa.Table.from_pylist([order(100, 1)], ORDERS), mode="append")

    def compact() -> None:
        DeltaTable(url).optimize.compact()

    others: list[Callable[[], Any]] = [append, compact]
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
    first = 4 if key else 10
    assert rows_of(url) == [(n, "mon", cents) for n, cents in [(1, first), (2, 20), (3, 1), (4, 1), (100, 1)]]


@pytest.mark.parametrize("key", [None, "id"])
def test_a_driver_that_stood_still_is_refused(url: str, key: str | None) -> None:
    """It has asked, and a newer one has committed the same; its files are not the table's any more."""
    sink = DeltaSink(url, key=key, create_table=True)
    frozen = TableJob(sink, ORDERS)
    frozen.checkpoint(1, [order(1)])
    promised = frozen.promise(2, [order(2)])
    frozen.committer.last_committed()
    TableJob(sink, ORDERS, 2, 2, frozen.store, promised=promised)
    DeltaTable(url).optimize.compact()
    with pytest.raises(Indeterminate):
        frozen.committer.commit(2, promised)
    assert rows_of(url) == [(1, "mon", 1), (2, "mon", 1)]


@pytest.mark.parametrize("key", [None, "id"])
def test_a_commit_that_landed_and_raised_is_found(url: str, key: str | None) -> None:
    """What the library does behind a commit fails: it raises, and the commit is there."""
    job = TableJob(DeltaSink(url, key=key, create_table=True), ORDERS)
    DeltaTable(url).alter.set_table_properties({"delta.checkpointInterval": "1"})
    promised = job.promise(1, [order(1)])
    assert job.committer.last_committed() is None
    in_the_way = Path(url, "_delta_log", "_last_checkpoint")
    in_the_way.unlink(missing_ok=True)
    (in_the_way / "x").mkdir(parents=True)
    with pytest.raises(Indeterminate):
        job.committer.commit(1, promised)
    (in_the_way / "x").rmdir()
    in_the_way.rmdir()
    commit_once(job.committer, "out", 1, promised)
    assert rows_of(url) == [(1, "mon", 1)]


def test_files_that_no_checkpoint_names_are_deleted_and_no_others(url: str) -> None:
    sink = DeltaSink(url, create_table=True, partition_by="day")
    first = TableJob(sink, ORDERS)
    first.checkpoint(1, [order(1)])
    promised = first.promise(2, [order(2)])  # durable, and the driver dies before the commit
    first.promise(3, [order(3)])  # never durable
    other = TableJob(sink, ORDERS, lineage="cafe")
    other.promise(1, [order(9)])
    files = {path for path in Path(url).rglob("*.parquet")}
    assert len(files) == 4
    TableJob(sink, ORDERS, 2, 2, first.store, promised=promised)
    left = {path for path in Path(url).rglob("*.parquet")}
    assert len(files - left) == 1, "the one of checkpoint 3"
    assert rows_of(url) == [(1, "mon", 1), (2, "mon", 1)]


def test_a_promised_file_that_is_gone_ends_the_job(url: str) -> None:
    job = TableJob(DeltaSink(url, create_table=True), ORDERS)
    promised = job.promise(1, [order(1)])
    (path,) = Path(url).rglob("*.parquet")
    path.unlink()
    with pytest.raises(DataLossError, match="is not there as a slot wrote it for checkpoint 1"):
        commit_once(job.committer, "out", 1, promised)


# --- Tables that are there ------------------------------------------------------------------------------


def test_columns_are_added_when_asked(url: str) -> None:
    TableJob(DeltaSink(url, create_table=True), ORDERS).checkpoint(1, [order(1)])
    more = ORDERS.append(pa.field("note", pa.string()))
    with pytest.raises(Fatal, match=r"column 'note' \(string\) is not in the table.*schema_evolution"):
        TableJob(DeltaSink(url), more, lineage="cafe")
    appends = TableJob(DeltaSink(url, schema_evolution="add"), more, lineage="cafe")
    appends.checkpoint(1, [{**order(2), "note": "new"}])
    even_more = more.append(pa.field("weight", pa.float32()))
    merges = TableJob(DeltaSink(url, key="id", schema_evolution="add"), even_more, lineage="dead")
    merges.checkpoint(1, [{**order(2), "note": "two", "weight": 0.5}])
    appends.checkpoint(2, [{**order(3), "note": "as before"}])
    assert rows_of(url) == [
        (1, "mon", 1, None, None),
        (2, "mon", 1, "two", 0.5),
        (3, "mon", 1, "as before", None),
    ]


@pytest.mark.parametrize(
    ("columns", "says"),
    [
        ({"cents": pa.int64()}, "column 'cents' is int64 in the rows and int32 in the table"),
        ({"id": pa.string()}, "column 'id' is string in the rows and int64 in the table"),
        ({"Day": pa.string()}, "column 'Day' of the rows is 'day' in the table"),
        ({"price": pa.int64()}, r"column 'price' \(int64\) is not in the table"),
    ],
)
def test_what_does_not_fit_is_refused(url: str, columns: dict[str, pa.DataType], says: str) -> None:
    TableJob(DeltaSink(url, create_table=True), ORDERS)
    with pytest.raises(Fatal, match=says):
        TableJob(DeltaSink(url), pa.schema(list(columns.items())))


def test_a_column_that_is_never_null_has_to_be_there(url: str) -> None:
    DeltaTable.create(url, pa.schema([pa.field("id", pa.int64(), nullable=False), ("x", pa.int64())]))
    with pytest.raises(Fatal, match=r"column 'id' \(int64\) of the table is never null"):
        TableJob(DeltaSink(url), pa.schema([("x", pa.int64())]))
    job = TableJob(DeltaSink(url), pa.schema([("id", pa.int64())]))
    with pytest.raises(Fatal, match="column 'id' is null in a row, and never is in the table"):
        job.promise(1, [{"id": None}])


@pytest.mark.parametrize(
    ("properties", "key", "says"),
    [
        ({"delta.appendOnly": "true"}, "id", "only takes appends"),
        ({"delta.constraints.positive": "cents > 0"}, None, "the constraint 'positive'"),
    ],
)
def test_tables_that_can_not_be_written_are_refused(
    url: str, properties: dict[str, str], key: str | None, says: str
) -> None:
    if "delta.appendOnly" in properties:
        DeltaTable.create(url, ORDERS, configuration=dict(properties))
    else:
        DeltaTable.create(url, ORDERS)
        DeltaTable(url).alter.add_constraint({"positive": "cents > 0"})
    with pytest.raises(Fatal, match=says):
        TableJob(DeltaSink(url, key=key), ORDERS)


def test_a_table_that_is_not_there_or_is_partitioned_otherwise(url: str) -> None:
    with pytest.raises(Fatal, match="there is no table: create it before, or say create_table=True"):
        TableJob(DeltaSink(url), ORDERS)
    assert not os.path.exists(url)
    DeltaTable.create(url, ORDERS, partition_by=["day"])
    with pytest.raises(Fatal, match="partitioned by day, and partition_by says cents"):
        TableJob(DeltaSink(url, partition_by="cents"), ORDERS)
    with pytest.raises(Fatal, match="partition column 'day' is not in the rows"):
        TableJob(DeltaSink(url), pa.schema([("id", pa.int64())]))


# --- Options --------------------------------------------------------------------------------------------


def test_small_files_are_made_large_and_old_ones_deleted(url: str) -> None:
    job = TableJob(DeltaSink(url, create_table=True, compact_every=4, expire="7 d"), ORDERS)
    for n in range(1, 5):
        job.checkpoint(n, [order(n)])
    job.close()
    assert len(DeltaTable(url).file_uris()) == 1
    assert [row[0] for row in rows_of(url)] == [1, 2, 3, 4]
    assert TableJob(DeltaSink(url), ORDERS, 2, 4).committer.last_committed() == 4


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"url": ""}, "url must be a path or a URL"),
        ({"url": "file:///x"}, "give the path without file://"),
        ({"schema_evolution": "all"}, "schema_evolution='all'"),
        ({"compact_every": 1}, "compact_every=1 must be 2 commits or more"),
        ({"expire": "1 h"}, "expire='1 h' is less than a day"),
        ({"storage_options": {"AWS_S3_ALLOW_UNSAFE_RENAME": "true"}}, "lets one writer replace the commit"),
    ],
)
def test_options_that_are_refused(options: dict[str, Any], says: str) -> None:
    with pytest.raises(OptionError, match=says):
        DeltaSink(**{"url": "t", **options})


def test_what_no_delta_table_can_have_is_refused_when_the_job_is_built() -> None:
    sink = DeltaSink("t", key="id", partition_by="dya")
    with pytest.raises(GraphError, match="Delta has no type for column 'at', which is time64"):
        sink.check(pa.schema([("at", pa.time64("us"))]), "out")
    with pytest.raises(GraphError, match=r"partition column 'dya' is not in the rows .did you mean 'day'"):
        sink.check(ORDERS, "out")
    with pytest.raises(GraphError, match="column 'Id' is there twice"):
        DeltaSink("t").check(pa.schema([("Id", pa.int64()), ("id", pa.int64())]), "out")
