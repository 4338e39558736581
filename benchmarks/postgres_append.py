"""Rows appended to a table of PostgreSQL by Spark: our sink beside Spark's own JDBC sink, in turns.

    python -m benchmarks.postgres_append --rows 1000000 --rounds 3

One Spark (`local[2]`), one server, the same rows: `df.write` to an empty table, after a warm-up of each.
`jdbc` is Spark's sink as it comes, `jdbc tuned` with what its users find out: `reWriteBatchedInserts` and
batches of 10,000. CPU is that of Spark's and our processes, with Python's; the server's is beside it. Ours
commits all rows in one transaction with its ledger, exactly once; JDBC one for each partition, at least once.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import psutil

import onceflow
from benchmarks.environments import Environment, install
from tests.postgres_server import PostgresServer

DRIVER = Environment("postgresql-jdbc", jars_alone=("org.postgresql:postgresql:42.7.8",))
WARM_UP_ROWS = 100_000
OURS, JDBC, TUNED = "onceflow", "jdbc", "jdbc tuned"
WAYS = (OURS, JDBC, TUNED)


def start_spark(jars: list[Path]) -> Any:
    from pyspark.sql import SparkSession

    os.environ["PYSPARK_PYTHON"] = sys.executable
    settings = {
        "spark.jars": ",".join(map(str, jars)),
        "spark.ui.enabled": "false",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.driver.host": "127.0.0.1",
        "spark.driver.memory": "2g",
        "spark.python.daemon.module": "onceflow.structured_streaming.daemon",
        "spark.sql.session.timeZone": "UTC",
        "spark.log.level": "ERROR",
    }
    builder = SparkSession.builder.master("local[2]").appName("postgres-append")
    for name, value in settings.items():
        builder = builder.config(name, value)
    spark = builder.getOrCreate()
    onceflow.register(spark)
    return spark


def rows(spark: Any, count: int, partitions: int) -> Any:
    """Orders: a number, a text, an amount, a flag and a time."""
    return spark.range(0, count, 1, partitions).selectExpr(
        "id",
        "concat('customer ', id % 1000) as customer",
        "id * 0.5D as amount",
        "id % 2 = 0 as is_paid",
        "timestamp_millis(1700000000000 + id) as at",
    )


def write(way: str, frame: Any, server: PostgresServer, staging: str) -> None:
    if way == OURS:
        options = {"url": server.url, "table": "orders", "staging": staging}
        frame.write.format("onceflow-postgres").options(**options).mode("append").save()
        return
    url = f"jdbc:postgresql://127.0.0.1:{server.port}/postgres"
    options = {"user": "onceflow", "dbtable": "orders", "driver": "org.postgresql.Driver"}
    if way == TUNED:
        url += "?reWriteBatchedInserts=true"
        options["batchsize"] = "10000"
    frame.write.format("jdbc").options(url=url, **options).mode("append").save()


def cpu_s(server: PostgresServer) -> tuple[dict[int, float], dict[int, float]]:
    """CPU seconds so far, by process: of this program and all that it has started, and of the server apart
    from them."""
    postmaster = psutil.Process(server.pid)
    apart = {postmaster.pid, *(child.pid for child in postmaster.children(recursive=True))}
    ours: dict[int, float] = {}
    theirs: dict[int, float] = {}
    for process in (psutil.Process(), *psutil.Process().children(recursive=True)):
        with contextlib.suppress(psutil.Error):
            times = process.cpu_times()
            if process.pid in apart:  # its backends end with their connection, and then count with it
                theirs[process.pid] = sum(times[:4])
            else:
                ours[process.pid] = times.user + times.system
    return ours, theirs


def used_s(before: Mapping[int, float], after: Mapping[int, float]) -> float:
    """What the processes that are there after it have used meanwhile. Idle workers of Python end by
    themselves, and take along what they had used before."""
    return sum(used - before.get(pid, 0.0) for pid, used in after.items())


def measure(way: str, frame: Any, count: int, server: PostgresServer, staging: str) -> dict[str, float]:
    server.execute("TRUNCATE orders")
    before, begin = cpu_s(server), time.perf_counter()
    write(way, frame, server, staging)
    wall, after = time.perf_counter() - begin, cpu_s(server)
    found = server.rows("SELECT count(*), count(DISTINCT id) FROM orders")
    assert found == [(count, count)], f"{way}: {found}"
    ours, servers = used_s(before[0], after[0]), used_s(before[1], after[1])
    return {
        "k_rows_per_cpu_s": count / ours / 1000,
        "k_rows_per_cpu_s_with_server": count / (ours + servers) / 1000,
        "k_rows_per_s": count / wall / 1000,
        "server_cpu_s": servers,
    }


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--partitions", type=int, default=2)
    options = parser.parse_args()
    jars = install(DRIVER, print).jars()
    found: dict[str, list[Mapping[str, float]]] = {way: [] for way in WAYS}
    with PostgresServer() as server, tempfile.TemporaryDirectory() as staging:
        server.execute(
            "CREATE TABLE orders (id bigint, customer text, amount float8, is_paid bool, at timestamptz)"
        )
        spark = start_spark(jars)
        for way in WAYS:
            measure(way, rows(spark, WARM_UP_ROWS, options.partitions), WARM_UP_ROWS, server, staging)
        for number in range(options.rounds):
            for way in (*WAYS[number % 3 :], *WAYS[: number % 3]):
                frame = rows(spark, options.rows, options.partitions)
                found[way].append(measure(way, frame, options.rows, server, staging))
                print(
                    way,
                    json.dumps({name: round(value, 1) for name, value in found[way][-1].items()}),
                    flush=True,
                )
        spark.stop()
    for way in (JDBC, TUNED):
        ratios = {
            name: statistics.median(each[name] for each in found[OURS])
            / statistics.median(each[name] for each in found[way])
            for name in ("k_rows_per_cpu_s", "k_rows_per_cpu_s_with_server", "k_rows_per_s")
        }
        print(f"onceflow / {way}:", {name: round(ratio, 2) for name, ratio in ratios.items()})


if __name__ == "__main__":
    main()
