"""DuckDB as the judge of SQL over streams: the same rows, the same query, and what both say."""

from __future__ import annotations

import datetime as dt
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import duckdb
import pyarrow as pa
from hypothesis import strategies as st

from onceflow import Job, WatermarkStrategy
from onceflow.testing import run

TEXTS = st.sampled_from(
    ["", "a", "ab", "A_b%c", "été", "日本語", "жук", " x ", "12", "-7", "a-b-c", "🙂b", "it's"]
)
NUMBERS = st.sampled_from([0, 1, -1, 2, 3, -7, 10, 1000, -999, 2**31, -(2**40)])
FLOATS = st.sampled_from([0.0, -0.5, 1.5, 2.5, -2.5, 1e9, -3.25])


@dataclass(frozen=True)
class Visit:
    id: int
    user: str | None
    page: str | None
    a: int | None
    b: int | None
    f: float | None
    flag: bool | None
    seen: dt.datetime | None
    ts: int


class Both(NamedTuple):
    """One expression in both languages."""

    ours: str
    duck: str

    @staticmethod
    def same(text: str) -> Both:
        return Both(text, text)


def put(template: str, *parts: Both, duck: str | None = None) -> Both:
    """An expression of expressions; `duck`: where DuckDB says it otherwise."""
    ours = template.format(*(part.ours for part in parts))
    return Both(ours, (duck or template).format(*(part.duck for part in parts)))


def columns_of(visits: Sequence[Visit]) -> pa.Table:
    """The rows for DuckDB, whose times are in UTC by having no zone."""
    rows = [{**vars(v), "seen": v.seen and v.seen.replace(tzinfo=None)} for v in visits]
    schema = pa.schema(
        [
            ("id", pa.int64()),
            ("user", pa.string()),
            ("page", pa.string()),
            ("a", pa.int64()),
            ("b", pa.int64()),
            ("f", pa.float64()),
            ("flag", pa.bool_()),
            ("seen", pa.timestamp("ms")),
            ("ts", pa.int64()),
        ]
    )
    return pa.Table.from_pylist(rows, schema)


def rows_of_duckdb(query: str, visits: Sequence[Visit]) -> list[tuple[Any, ...]]:
    """What DuckDB says of the query over the table `visits`."""
    with duckdb.connect() as connection:
        connection.register("visits", columns_of(visits))
        return connection.execute(query).fetchall()


def rows_of_onceflow(query: str, visits: Sequence[Visit], parts: int = 1) -> list[tuple[Any, ...]]:
    """What a job says of it. The rows come in so many parts, with a checkpoint and a crash between two."""
    job = Job("judged")
    times = WatermarkStrategy.bounded_out_of_orderness("365 d", event_time="ts")
    stream = job.from_elements(_ANY, watermarks=times, uid="visits")
    job.sql(query, visits=stream).collect(uid="result")
    with run(job, visits=[]) as test:
        size = max(1, math.ceil(len(visits) / parts))
        for start in range(0, len(visits), size):
            test.push(visits=list(visits[start : start + size]))
            if parts > 1:
                test.restart(parallelism=1 + start % 3)
        test.finish()
        return [tuple(_plain(value) for value in row.values()) for row in test.rows("result")]


_ANY = Visit(0, None, None, None, None, None, None, None, 0)


def _plain(value: Any) -> Any:
    return value.replace(tzinfo=None) if isinstance(value, dt.datetime) else value


def agree(ours: list[tuple[Any, ...]], theirs: list[tuple[Any, ...]]) -> None:
    """The same rows, in any order; doubles up to rounding."""
    left, right = (sorted(rows, key=lambda row: repr([_rounded(v) for v in row])) for rows in (ours, theirs))
    assert [[_rounded(v) for v in row] for row in left] == [[_rounded(v) for v in row] for row in right]


def _rounded(value: Any) -> Any:
    if isinstance(value, bool) or not isinstance(value, float):
        return value
    if math.isnan(value):
        return "NaN"
    rounded = float(f"{value:.9g}")
    return int(rounded) if rounded.is_integer() and abs(rounded) < 1e15 else rounded
