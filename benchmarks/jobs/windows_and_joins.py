"""Windows and joins in columns, of made-up rows (benchmarks/windows_and_joins.py).

onceflow run windows_and_joins.py ... -- KIND KEYS RECORDS

Row n has event time n ms and a key that a formula draws from it. All lengths are multiples of the number of
keys, so that a key has as many rows in a window however many keys there are.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import polars as pl

from onceflow import Job, WatermarkStrategy, col, count, session, sliding, sum_, tumbling

PRIME = 2_147_483_647
PANES = 10
"""How many sliding windows a row is in."""


@dataclass(frozen=True)
class Row:
    n: int


def key_of(n: pl.Expr, factor: int, keys: int) -> pl.Expr:
    mixed = n * factor % PRIME
    return mixed * mixed % PRIME * factor % PRIME % keys


def build(arguments: list[str]) -> Job:
    kind, keys, records = arguments[0], int(arguments[1]), int(arguments[2])
    job, times = Job("windows-and-joins"), WatermarkStrategy.monotonous("n")

    def rows(uid: str, factor: int, share: int = 1) -> Any:
        made = job.data_generator(
            Row, count=records // share, fields={"n": "number"}, watermarks=times, uid=uid
        )
        named = made.select("n", key=key_of(col("n"), factor, keys), value=col("n") % 1_000)
        return named.key_by("key")

    result = joined(kind, rows, keys) if kind.endswith("join") else windowed(kind, rows("rows", 48_271), keys)
    result.window_all(tumbling("10000 d")).aggregate(rows=count(), total=sum_("total")).print("found")
    return job


def windowed(kind: str, rows: Any, keys: int) -> Any:
    window = session(2 * keys) if kind == "session" else sliding(PANES * keys, keys)
    return rows.window(window).aggregate(count=count(), total=sum_("value"), uid="windows")


def joined(kind: str, rows: Any, keys: int) -> Any:
    left, right = rows("left", 48_271, 2), rows("right", 69_621, 2)
    if kind == "interval_join":
        pairs = left.interval_join(right, -(keys // 2), keys // 2, uid="join")
    else:
        pairs = left.window_join(right, tumbling(keys), uid="join")
    return pairs.select(total=col("value") + col("value_right"))
