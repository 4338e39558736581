"""Joins and sessions of rows whose keys are even or skewed (benchmarks/skewed_keys.py).

onceflow run skewed_keys.py ... -- KIND even|skewed KEYS RECORDS

Row n has event time n ms. Skewed: four rows in ten have one key, and the others are spread as by Zipf's law.
The right side of a join is even in both cases, so that both make about as many rows.
"""

from __future__ import annotations

from typing import Any

import polars as pl

from benchmarks.jobs.windows_and_joins import PRIME, Row, key_of
from onceflow import Job, WatermarkStrategy, col, count, session, sum_, tumbling

HOT = 0.4
"""The share of rows of the one key."""


def build(arguments: list[str]) -> Job:
    kind, spread, keys, records = arguments[0], arguments[1], int(arguments[2]), int(arguments[3])
    job, times = Job("skewed-keys"), WatermarkStrategy.monotonous("n")

    def rows(uid: str, share: int, key: pl.Expr) -> Any:
        made = job.data_generator(
            Row, count=records // share, fields={"n": "number"}, watermarks=times, uid=uid
        )
        return made.select("n", key=key, value=col("n") % 1_000).key_by("key")

    key = key_of(col("n"), 48_271, keys) if spread == "even" else skewed(col("n"), keys)
    if kind == "session":
        result = rows("rows", 1, key).window(session(2 * keys)).aggregate(total=sum_("value"), uid="windows")
    else:
        left = rows("left", 2, key)
        partner = col("n") % keys if kind == "regular_join" else key_of(col("n"), 69_621, keys)
        right = rows("right", 2, partner)
        result = joined(kind, left, right, keys).select(total=col("value") + col("value_right"))
    result.window_all(tumbling("10000 d")).aggregate(rows=count(), total=sum_("total")).print("found")
    return job


def skewed(n: pl.Expr, keys: int) -> pl.Expr:
    drawn = key_of(n, 48_271, PRIME).cast(pl.Float64) / PRIME
    rest = (drawn - HOT) / (1 - HOT)
    return pl.when(drawn < HOT).then(0).otherwise(pl.lit(float(keys)).pow(rest).floor()).cast(pl.Int64)


def joined(kind: str, left: Any, right: Any, keys: int) -> Any:
    match kind:
        case "interval_join":
            return left.interval_join(right, -(keys // 2), keys // 2, uid="join")
        case "window_join":
            return left.window_join(right, tumbling(keys), uid="join")
        case _:
            return left.join(right, ttl=2 * keys, uid="join")
