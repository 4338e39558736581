"""Rows a second of onceflow-state in Spark: a savepoint of ROWS values is written from a DataFrame and read.

python benchmarks/state_tables.py [ROWS]
"""

from __future__ import annotations

import sys
import tempfile
import time
from collections.abc import Callable
from typing import Any

from pyspark.sql import SparkSession

import onceflow

ROWS = 1_000_000
REPEATS = 3


def main(rows: int) -> None:
    spark = SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false").getOrCreate()
    spark.sparkContext.setLogLevel("ERROR")
    onceflow.register(spark)
    frame = spark.range(rows).selectExpr("cast(id as string) AS user", "id * 7 AS value")
    with tempfile.TemporaryDirectory() as folder:
        paths = iter(f"{folder}/{n}" for n in range(REPEATS))
        last = f"{folder}/0"
        options = {"operator": "op", "state": "n"}

        def write() -> None:
            to = frame.write.format("onceflow-state").options(key_columns="user", **options)
            to.mode("append").save(next(paths))

        def read() -> None:
            table = spark.read.format("onceflow-state").options(**options).load(last)
            assert table.agg({"value": "sum"}).first()[0] == 7 * rows * (rows - 1) // 2

        def read_one() -> None:
            table = spark.read.format("onceflow-state").options(**options).load(last)
            assert table.where("user = '77'").count() == 1

        def read_in_python() -> None:
            with onceflow.read_state(last) as state:
                assert state.table("op", "n").read().num_rows == rows

        for name, call in {"write": write, "read": read, "read in Python": read_in_python}.items():
            seconds = best(call)
            print(f"{name}: {seconds:.2f} s, {rows / seconds:,.0f} rows/s")
        print(f"one key by a filter: {best(read_one):.2f} s")


def best(call: Callable[[], Any]) -> float:
    """The shortest of some runs, in s."""
    took = []
    for _ in range(REPEATS):
        began = time.perf_counter()
        call()
        took.append(time.perf_counter() - began)
    return min(took)


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else ROWS)
