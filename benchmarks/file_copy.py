"""Rows copied from files to files: a job of ours beside Structured Streaming's own file source and sink, in
turns.

    python -m benchmarks.file_copy --rows 1000000 --rounds 3

Both read what is there and write it exactly once: JSON lines into Parquet, and Parquet into JSON lines. The
input is 8 files; Spark is one session (`local[2]`) and reads all files in one micro-batch; our job has two
slots on threads. Neither's start counts: both have copied the same before in the same process. CPU is that of
all processes of either.
"""

from __future__ import annotations

import argparse
import json
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import psutil
import pyarrow as pa
import pyarrow.json as pa_json
import pyarrow.parquet as pq

FILES = 8
SCHEMA = pa.schema([("id", pa.int64()), ("name", pa.string()), ("price", pa.float64()), ("n", pa.int64())])
SPARK_SCHEMA = "id BIGINT, name STRING, price DOUBLE, n BIGINT"
OURS, SPARKS = "onceflow", "spark"
Times = dict[str, float]


def our_copy(source: str, form: str, folder: str) -> None:
    """Run in a process of its own: says the seconds and CPU seconds of the second of two copies."""
    from onceflow import Job

    ending = {"parquet": "jsonl", "jsonl": "parquet"}[form]
    for target in ("warm-up", "out"):
        began, before = time.perf_counter(), time.process_time()
        job = Job("copy")
        rows = job.from_files(f"{source}/*.{ending}", SCHEMA, uid="in")
        rows.to_files(f"{folder}/{target}", format=form, uid="out")
        job.run(f"{folder}/checkpoint-{target}", master="threads[2]", parallelism=2)
        print(json.dumps([time.perf_counter() - began, time.process_time() - before]))


def make_input(folder: Path, count: int) -> None:
    """The same rows as Parquet and as JSON lines."""
    each = count // FILES
    for number in range(FILES):
        ids = range(number * each, (number + 1) * each)
        columns = [ids, [f"name of {n}" for n in ids], [n / 8 for n in ids], [n % 1000 for n in ids]]
        table = pa.table([pa.array(column) for column in columns], schema=SCHEMA)
        pq.write_table(table, folder / f"{number}.parquet")
        with (folder / f"{number}.jsonl").open("w") as file:
            file.writelines(json.dumps(row) + "\n" for row in table.to_pylist())


def spark_session() -> Any:
    from pyspark.sql import SparkSession

    builder = SparkSession.builder.master("local[2]").appName("file-copy")
    settings = {
        "spark.ui.enabled": "false",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.driver.host": "127.0.0.1",
        "spark.driver.memory": "2g",
        "spark.log.level": "ERROR",
    }
    for name, value in settings.items():
        builder = builder.config(name, value)
    return builder.getOrCreate()


def sparks_copy(spark: Any, source: str, form: str, target: str, checkpoint: str) -> None:
    ending, read, write = {
        "parquet": ("jsonl", "json", "parquet"),
        "jsonl": ("parquet", "parquet", "json"),
    }[form]
    rows = spark.readStream.schema(SPARK_SCHEMA).format(read).load(f"{source}/*.{ending}")
    query = rows.writeStream.format(write).option("checkpointLocation", checkpoint)
    query.trigger(availableNow=True).start(target).awaitTermination()


def tree_cpu_s() -> float:
    """CPU seconds of Spark's processes, which live as long as this one."""
    children = psutil.Process().children(recursive=True)
    return sum(sum(each.cpu_times()[:2]) for each in children)


def measure(way: str, spark: Any, source: Path, form: str, count: int) -> Times:
    with tempfile.TemporaryDirectory() as folder:
        target, checkpoint = f"{folder}/out", f"{folder}/checkpoint"
        began, before = time.perf_counter(), tree_cpu_s()
        if way == SPARKS:
            sparks_copy(spark, str(source), form, target, checkpoint)
            seconds, cpu = time.perf_counter() - began, tree_cpu_s() - before
        else:
            command = [sys.executable, "-m", "benchmarks.file_copy", "--copy", str(source), form, folder]
            said = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout
            seconds, cpu = json.loads(said.splitlines()[-1])
        assert rows_in(Path(target), form) == count, way
    return {"k_rows_per_cpu_s": count / cpu / 1000, "k_rows_per_s": count / seconds / 1000}


def rows_in(folder: Path, form: str) -> int:
    if form == "parquet":
        return sum(pq.read_metadata(path).num_rows for path in folder.glob("[!.]*.parquet"))
    return sum(pa_json.read_json(path).num_rows for path in folder.glob("[!.]*.json*") if path.stat().st_size)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rows", type=int, default=2_000_000)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--copy", nargs=3, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.copy:
        our_copy(*options.copy)
        return
    source = Path(tempfile.mkdtemp())
    make_input(source, options.rows)
    spark = spark_session()
    found: dict[tuple[str, str], list[Times]] = {}
    for number in range(-1, options.rounds):  # the first is a warm-up
        for form in ("parquet", "jsonl"):
            for way in (OURS, SPARKS) if number % 2 else (SPARKS, OURS):
                times = measure(way, spark, source, form, options.rows)
                if number >= 0:
                    found.setdefault((form, way), []).append(times)
                    print(f"into {form}", way, {k: round(v, 1) for k, v in times.items()}, flush=True)
    for form in ("parquet", "jsonl"):
        medians = {
            way: {name: statistics.median(each[name] for each in found[form, way]) for name in times}
            for way in (OURS, SPARKS)
        }
        ratios = {name: round(medians[OURS][name] / medians[SPARKS][name], 2) for name in times}
        print(f"into {form}, onceflow / spark:", ratios)
    spark.stop()
    shutil.rmtree(source)


if __name__ == "__main__":
    main()
