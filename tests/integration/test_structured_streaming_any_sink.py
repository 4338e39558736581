"""Sinks of the runtime as formats, on real Spark: PostgreSQL and files. What is written once, and what is
refused."""

from __future__ import annotations

import datetime as dt
import gzip
import json
import shutil
import uuid
from collections.abc import Iterator
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from pyiceberg.catalog import load_catalog

from tests.integration.streaming_query import Query
from tests.integration.test_structured_streaming_sink import forget_last_commit
from tests.mysql_server import WHY_NOT, MySqlServer
from tests.postgres_server import PostgresServer
from tests.read_tables import read_delta, read_iceberg
from tests.redis_server import RedisServer
from tests.scripted_http import ScriptedHttp, Told

pytestmark = [pytest.mark.postgres, pytest.mark.spark, pytest.mark.timeout(600)]


@pytest.fixture(scope="module")
def server() -> Iterator[PostgresServer]:
    with PostgresServer() as server:
        yield server


@pytest.fixture
def table() -> str:
    return f"t{uuid.uuid4().hex[:10]}"


@pytest.fixture
def query(spark: Any, server: PostgresServer, table: str, tmp_path: Path) -> Query:
    server.execute(f"CREATE TABLE {table} (id bigint, name text)")
    return Query(spark, tmp_path, "onceflow-postgres", url=server.url, table=table)


@pytest.fixture
def files(spark: Any, tmp_path: Path) -> Query:
    return Query(spark, tmp_path, "onceflow-files", path=str(tmp_path / "out"))


def in_files(folder: Path) -> list[dict[str, Any]]:
    return [row for path in sorted(folder.glob("*.parquet")) for row in pq.read_table(path).to_pylist()]


# --- Redis ----------------------------------------------------------------------------------------------


@pytest.mark.redis
def test_the_last_row_of_each_key_is_in_redis_over_several_runs(spark: Any, tmp_path: Path) -> None:
    with RedisServer() as redis:
        query = Query(spark, tmp_path, "onceflow-redis", url=redis.url, prefix="rows", key="id", form="json")
        for batch in range(2):
            query.add(*({"id": n, "name": f"n{batch}"} for n in range(batch, 4)))
            query.run()
            forget_last_commit(query.checkpoint)
            query.run(lambda rows: rows.selectExpr("id + 100 as id", "name"))
        with redis.client() as client:
            names = {key: json.loads(str(client.get(f"rows:{key}")))["name"] for key in redis.keys("rows")}
    assert names == {"0": "n0", "1": "n1", "2": "n1", "3": "n1"}


# --- MySQL ----------------------------------------------------------------------------------------------


@pytest.mark.mysql
@pytest.mark.skipif(bool(WHY_NOT), reason=WHY_NOT)
def test_a_batch_that_is_run_again_is_in_mysql_once(spark: Any, tmp_path: Path) -> None:
    with MySqlServer() as mysql:
        query = Query(spark, tmp_path, "onceflow-mysql", url=mysql.url, table="t", create_table="true")
        for batch in range(2):
            query.add(*({"id": 10 * batch + n, "name": f"n{batch}"} for n in range(3)))
            query.run()
            forget_last_commit(query.checkpoint)
            query.run(lambda rows: rows.selectExpr("id + 100 as id", "name"))
        found = mysql.rows("SELECT id, name FROM t ORDER BY id")
    assert found == [(0, "n0"), (1, "n0"), (2, "n0"), (10, "n1"), (11, "n1"), (12, "n1")]


# --- A receiver of requests -----------------------------------------------------------------------------


def test_a_batch_that_is_run_again_is_posted_under_the_same_keys_or_not_at_all(
    spark: Any, tmp_path: Path
) -> None:
    with ScriptedHttp(lambda _: Told()).running() as server:
        query = Query(spark, tmp_path, "onceflow-http", url=f"{server.url}/rows", batch_rows="2")
        for batch in range(2):
            query.add(*({"id": 10 * batch + n, "name": "a"} for n in range(3)))
            query.run()
            forget_last_commit(query.checkpoint)
            query.run(lambda rows: rows.selectExpr("id + 100 as id", "name"))
    first = {asked.headers["Idempotency-Key"]: json.loads(asked.body) for asked in reversed(server.asked)}
    assert sorted(row["id"] for rows in first.values() for row in rows) == [0, 1, 2, 10, 11, 12]


# --- PostgreSQL -----------------------------------------------------------------------------------------


def test_rows_are_in_the_table_once_over_several_runs(
    query: Query, server: PostgresServer, table: str
) -> None:
    for start in (0, 10):
        query.add(*({"id": start + n, "name": f"n{n}"} for n in range(10)))
        query.run()
        query.run()
    query.run(lambda rows: rows.repartition(3))
    assert sorted(server.rows(f"SELECT id FROM {table}")) == list(range(20))
    assert query.left() == ["attempt-2000001", "batch-1.json", "done.json", "driver.json", "sink.json"]


def test_a_batch_that_is_run_again_with_other_rows_shows_one_attempt_only(
    query: Query, server: PostgresServer, table: str
) -> None:
    for batch in range(2):
        query.add({"id": batch, "name": "a"})
        query.run(lambda rows: rows.selectExpr("id", "'first' as name"))
        forget_last_commit(query.checkpoint)
        query.run(
            lambda rows: rows.selectExpr(
                "explode(array(id, id + 100)) as id", "'second' as name"
            ).repartition(2)
        )
    assert sorted(server.rows(f"SELECT * FROM {table}")) == [(0, "first"), (1, "first")]


def test_the_last_row_of_a_key_counts_and_complete_results_replace_theirs(
    query: Query, server: PostgresServer, table: str
) -> None:
    server.execute(f"CREATE UNIQUE INDEX ON {table} (name)")

    def counted(rows: Any) -> Any:
        return rows.groupBy("name").count().selectExpr("count as id", "name")

    for _ in range(2):
        query.add({"id": 1, "name": "a"}, {"id": 2, "name": "a"}, {"id": 3, "name": "b"})
        query.run(counted, mode="complete", key="name")
    assert sorted(server.rows(f"SELECT * FROM {table}")) == [(2, "b"), (4, "a")]


def test_an_older_copy_of_the_checkpoint_is_refused(query: Query, server: PostgresServer, table: str) -> None:
    query.add({"id": 0, "name": "a"})
    query.run()
    copy = query.folder / "copy"
    shutil.copytree(query.checkpoint, copy)
    query.add({"id": 1, "name": "a"})
    query.run()
    query.add({"id": 2, "name": "a"})
    for _ in range(2):
        with pytest.raises(
            Exception, match="written up to batch 1, but this query is at batch 1 and does not"
        ):
            query.run(checkpointLocation=str(copy))
    query.run()
    with pytest.raises(Exception, match="a later attempt has begun to write, but this query is at batch 1"):
        query.run(checkpointLocation=str(copy))
    assert sorted(server.rows(f"SELECT id FROM {table}")) == [0, 1, 2]


def test_what_is_wrong_is_said_before_anything_is_written(
    query: Query, server: PostgresServer, table: str
) -> None:
    query.add({"id": 0, "name": "a"})
    for sentence, options in {
        "no option 'tabel' for writeStream .did you mean 'table'": {"tabel": "x"},
        "there is no table nowhere": {"table": "nowhere"},
        "key column 'nme' is not in the rows .did you mean 'name'": {"key": "nme"},
        "has no unique index": {"key": "name"},
        "staging folder .* is not shared": {"staging": "memory://of-one-process"},
    }.items():
        with pytest.raises(Exception, match=sentence):
            query.run(**options)
    query.run()
    query.add({"id": 1, "name": "a"})
    with pytest.raises(Exception, match="was used with format onceflow-postgres and uid 'rows'"):
        query.run(uid="another")
    assert server.rows(f"SELECT id FROM {table}") == [0]
    with pytest.raises(Exception, match="onceflow-postgres is a sink"):
        query.spark.read.format("onceflow-postgres").load()


def test_types_of_spark_come_as_they_are(query: Query, server: PostgresServer, table: str) -> None:
    server.execute(
        f"CREATE TABLE {table}_types (n int, d numeric(10,2), at timestamptz, local timestamp, day date, "
        "list int[], bytes bytea, record jsonb)"
    )
    query.add({"id": 1, "name": "a"})
    query.run(
        lambda rows: rows.selectExpr(
            "cast(id as int) as n",
            "cast(1.25 as decimal(10,2)) as d",
            "timestamp_micros(1000000) as at",
            "timestamp_ntz '1970-01-01 00:00:02' as local",
            "date '2026-11-25' as day",
            "array(1, 2) as list",
            "cast('x' as binary) as bytes",
            "struct(id, name) as record",
        ),
        table=f"{table}_types",
    )
    second = dt.datetime(1970, 1, 1, 0, 0, 1, tzinfo=dt.UTC)
    ((n, d, at, local, day, numbers, content, record),) = server.rows(f"SELECT * FROM {table}_types")
    assert (n, d, at, local) == (1, Decimal("1.25"), second, dt.datetime(1970, 1, 1, 0, 0, 2))
    assert (day, numbers, content) == (dt.date(2026, 11, 25), [1, 2], b"x")
    assert record == {"id": 1, "name": "a"}


# --- Files ----------------------------------------------------------------------------------------------


def test_files_are_seen_once_and_of_one_attempt(files: Query) -> None:
    for batch in range(2):
        files.add({"id": batch, "name": "a"})
        files.run(lambda rows: rows.selectExpr("id", "'first' as name"))
        forget_last_commit(files.checkpoint)
        files.run(
            lambda rows: rows.selectExpr(
                "explode(array(id, id + 100)) as id", "'second' as name"
            ).repartition(2)
        )
    assert in_files(files.folder / "out") == [{"id": 0, "name": "first"}, {"id": 1, "name": "first"}]
    files.add({"id": 2, "name": "a"})
    with pytest.raises(Exception, match="format='orcs' is none of"):
        files.run(format="orcs")


# --- A batch --------------------------------------------------------------------------------------------


def write(rows: Any, query: Query, mode: str = "append", **options: str) -> None:
    given = {name: query.options[name] for name in ("url", "table", "path") if name in query.options}
    staging = str(query.folder / "st")
    rows.write.format(query.format).options(staging=staging, **given, **options).mode(mode).save()


def test_a_batch_is_written_whole_or_not_at_all(query: Query, server: PostgresServer, table: str) -> None:
    rows = query.spark.range(0, 1_000, 1, 4)
    with pytest.raises(Exception, match="too big"):
        write(rows.selectExpr("if(id = 999, raise_error('too big'), id) as id"), query)
    assert server.rows(f"SELECT count(*) FROM {table}") == [0]
    write(rows, query)
    assert server.rows(f"SELECT count(DISTINCT id), count(*) FROM {table}") == [(1_000, 1_000)]


def test_a_uid_names_one_write(query: Query, server: PostgresServer, table: str) -> None:
    rows = query.spark.range(10)
    write(rows, query, uid=table)
    with pytest.raises(Exception, match="is there already, or another try"):
        write(rows, query, uid=table)
    with pytest.raises(Exception, match="only adds"):
        write(rows, query, mode="overwrite")
    assert server.rows(f"SELECT count(*) FROM {table}") == [10]
    assert not list((query.folder / "st").rglob("*.arrows"))


def test_a_delta_table_has_each_batch_once_in_one_commit(spark: Any, tmp_path: Path) -> None:
    query = Query(
        spark,
        tmp_path,
        "onceflow-delta",
        path=str(tmp_path / "table"),
        create_table="true",
        compact_every="2",
    )
    for batch in range(2):
        query.add({"id": batch, "name": "a"}, {"id": batch + 10, "name": "b"})
        query.run(lambda rows: rows.repartition(2), partition_by="name")
        forget_last_commit(query.checkpoint)
        query.run(lambda rows: rows.selectExpr("id + 100 as id", "name"), partition_by="name")
    rows = sorted((row["id"], row["name"]) for row in read_delta(str(tmp_path / "table")))
    assert rows == [(0, "a"), (1, "a"), (10, "b"), (11, "b")]


def test_a_delta_table_by_key_has_the_last_row_of_each_whichever_task_brings_it(
    spark: Any, tmp_path: Path
) -> None:
    path = str(tmp_path / "table")
    query = Query(spark, tmp_path, "onceflow-delta", path=path, create_table="true", key="id")
    for batch in range(2):
        query.add(*({"id": n, "name": f"{batch}"} for n in range(batch, 20)))
        query.run(
            lambda rows: rows.selectExpr("id", "name", "explode(shuffle(sequence(0, 9))) as at").repartition(
                4, "at"
            ),
            order_by="at",
        )
        forget_last_commit(query.checkpoint)
        query.run(lambda rows: rows.selectExpr("id", "'again' as name", "1 as at"), order_by="at")
    rows = sorted((row["id"], row["name"], row["at"]) for row in read_delta(path))
    assert rows == [(n, "0" if n == 0 else "1", 9) for n in range(20)]


def test_an_iceberg_table_has_each_batch_once_in_one_snapshot(spark: Any, tmp_path: Path) -> None:
    catalog = {"type": "sql", "uri": f"sqlite:///{tmp_path}/catalog.db", "warehouse": f"file://{tmp_path}/w"}
    options = {"catalog": json.dumps(catalog), "table": "shop.rows", "create_table": "true"}
    query = Query(spark, tmp_path, "onceflow-iceberg", partition_by="name", **options)
    for batch in range(2):
        query.add({"id": batch, "name": "a"}, {"id": batch + 10, "name": "b"})
        query.run(lambda rows: rows.repartition(2))
        forget_last_commit(query.checkpoint)
        query.run(lambda rows: rows.selectExpr("id + 100 as id", "name"))
    table = load_catalog(None, **catalog).load_table("shop.rows")
    rows = sorted((row["id"], row["name"]) for row in read_iceberg(table.metadata_location))
    assert rows == [(0, "a"), (1, "a"), (10, "b"), (11, "b")]
    assert len(table.snapshots()) == 2


def test_an_iceberg_table_by_key_has_the_last_row_of_each(spark: Any, tmp_path: Path) -> None:
    catalog = {"type": "sql", "uri": f"sqlite:///{tmp_path}/catalog.db", "warehouse": f"file://{tmp_path}/w"}
    options = {"catalog": json.dumps(catalog), "table": "shop.rows", "create_table": "true"}
    query = Query(spark, tmp_path, "onceflow-iceberg", key="id", order_by="at", **options)
    for batch in range(2):
        query.add(*({"id": n, "name": f"{batch}"} for n in range(batch, 20)))
        query.run(
            lambda rows: rows.selectExpr("id", "name", "explode(sequence(9, 0)) as at").repartition(4, "at")
        )
    table = load_catalog(None, **catalog).load_table("shop.rows")
    rows = sorted((row["id"], row["name"], row["at"]) for row in read_iceberg(table.metadata_location))
    assert rows == [(n, "0" if n == 0 else "1", 9) for n in range(20)]


def test_a_batch_of_files(files: Query) -> None:
    write(files.spark.range(0, 10, 1, 2), files, format="jsonl")
    found = [line for path in (files.folder / "out").glob("*.jsonl") for line in path.open()]
    assert sorted(json.loads(line)["id"] for line in found) == list(range(10))


def test_files_of_spark_have_folders_and_a_compression(files: Query) -> None:
    options = {"format": "jsonl", "compression": "gzip", "partition_by": "name, daily(at)"}
    at = "timestamp_seconds(86400 * (id div 100)) as at"
    for batch in range(2):
        files.add(*({"id": 100 * batch + n, "name": f"n{n % 2}"} for n in range(100)))
        files.run(lambda rows: rows.selectExpr("id", "name", at), **options)
        forget_last_commit(files.checkpoint)
        files.run(lambda rows: rows.selectExpr("id + 1000 as id", "name", at), **options)
    out = files.folder / "out"
    found = {
        folder.relative_to(out).as_posix(): [
            json.loads(line)["id"]
            for path in folder.glob("*.jsonl.gz")
            for line in gzip.decompress(path.read_bytes()).splitlines()
        ]
        for folder in out.glob("name=*/date=*")
    }
    assert {folder: sorted(ids) for folder, ids in found.items()} == {
        f"name=n{name}/date=1970-01-0{day + 1}": list(range(100 * day + name, 100 * day + 100, 2))
        for name in range(2)
        for day in range(2)
    }


def test_a_file_that_is_full_ends_within_the_batch(files: Query) -> None:
    small = "spark.sql.execution.arrow.maxRecordsPerBatch"
    before = files.spark.conf.get(small)
    files.spark.conf.set(small, "10")  # a file is looked at after each
    files.add(*({"id": n, "name": "a"} for n in range(100)))
    try:
        files.run(format="jsonl", max_file_size="64 B")
    finally:
        files.spark.conf.set(small, before)
    written = list((files.folder / "out").glob("*.jsonl"))
    assert len(written) == 10
    assert sorted(json.loads(line)["id"] for path in written for line in path.open()) == list(range(100))
