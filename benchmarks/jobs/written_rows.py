"""Made-up rows into files or a table (benchmarks/flink_sinks.py).

onceflow run written_rows.py ... -- KIND RECORDS PLACE

KIND is `jsonl` or `avro`, and PLACE a folder; or `append` or `upsert`, and PLACE the URL of a PostgreSQL with
a table `rows`.
"""

from __future__ import annotations

from dataclasses import dataclass

import polars as pl

from onceflow import Job, col
from onceflow.sinks.files import FileSink
from onceflow.sinks.postgres import PostgresSink

KEYS, PRICE, PRICES, USERS = 100_000, 7_919, 100_000, 1_000


@dataclass(frozen=True)
class Row:
    n: int


def build(arguments: list[str]) -> Job:
    kind, records, place = arguments[0], int(arguments[1]), arguments[2]
    job, n = Job("written-rows"), col("n")
    made = job.data_generator(Row, count=records, fields={"n": "number"}, uid="made")
    user = pl.concat_str(pl.lit("user "), (n % USERS).cast(pl.String))
    rows = made.select("n", id=n % KEYS, user=user, cents=n * PRICE % PRICES)
    if kind in ("append", "upsert"):
        rows.sink_to(PostgresSink(place, "rows", key="id" if kind == "upsert" else ()), uid="rows")
    else:
        rows.sink_to(FileSink(place, kind, compression="none"), uid="rows")
    return job
