"""DuckDB as the judge of joins in SQL: rows of two tables that come out of order, and what both say."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import duckdb
import pyarrow as pa
from hypothesis import strategies as st

from onceflow import Job, WatermarkStrategy
from onceflow.testing import run

DELAY_MS = 5
"""How far behind the latest row of its stream a row comes at most."""


@dataclass(frozen=True)
class Order:
    id: int
    user: str | None
    part: int | None
    n: int | None
    ts: int


@dataclass(frozen=True)
class Payment:
    ref: int
    user: str | None
    part: int | None
    m: int | None
    ts: int


_ORDERS = pa.schema(
    [("id", pa.int64()), ("user", pa.string()), ("part", pa.int64()), ("n", pa.int64()), ("ts", pa.int64())]
)
_PAYMENTS = pa.schema(
    [("ref", pa.int64()), ("user", pa.string()), ("part", pa.int64()), ("m", pa.int64()), ("ts", pa.int64())]
)


@dataclass(frozen=True)
class Tables:
    """The rows of both, in the order in which they come."""

    orders: Sequence[Order]
    payments: Sequence[Payment]

    def duckdb(self, query: str) -> list[tuple[Any, ...]]:
        """What DuckDB says of the query."""
        with duckdb.connect() as connection:
            connection.register("o", pa.Table.from_pylist([vars(row) for row in self.orders], _ORDERS))
            connection.register("p", pa.Table.from_pylist([vars(row) for row in self.payments], _PAYMENTS))
            return connection.execute(query).fetchall()

    def onceflow(self, query: str, parts: int = 1) -> list[tuple[Any, ...]]:
        """What a job says of it. Rows of both tables come in so many parts, with a restart between two."""
        job = Job("judged")
        times = WatermarkStrategy.bounded_out_of_orderness(DELAY_MS, event_time="ts")
        orders = job.from_elements(Order(0, None, None, None, 0), watermarks=times, uid="orders")
        payments = job.from_elements(Payment(0, None, None, None, 0), watermarks=times, uid="payments")
        job.sql(query, o=orders, p=payments).collect(uid="result")
        with run(job, orders=[], payments=[]) as test:
            sizes = [max(1, math.ceil(len(rows) / parts)) for rows in (self.orders, self.payments)]
            for part in range(parts):
                test.push(
                    orders=list(self.orders[part * sizes[0] : (part + 1) * sizes[0]]),
                    payments=list(self.payments[part * sizes[1] : (part + 1) * sizes[1]]),
                )
                if parts > 1:
                    test.restart(parallelism=1 + part % 3)
            test.finish()
            return [tuple(row.values()) for row in test.rows("result")]


def _in_time(rows: list[Any]) -> list[Any]:
    """The rows in an order in which none is late: the given one, as far as the delay allows."""
    numbered = sorted(enumerate(rows), key=lambda each: each[1].ts + (each[0] * 7919) % (DELAY_MS + 1))
    return [row for _, row in numbered]


_TIMES = st.integers(-20, 40) | st.sampled_from([0, 1, 10])
_USERS = st.none() | st.sampled_from(["ann", "ANN", ""])
_SMALL = st.none() | st.integers(-1, 2)
TABLES = st.builds(
    lambda orders, payments: Tables(_in_time(orders), _in_time(payments)),
    st.lists(st.builds(Order, st.integers(0, 9), _USERS, _SMALL, _SMALL, _TIMES), max_size=15),
    st.lists(st.builds(Payment, st.integers(0, 9), _USERS, _SMALL, _SMALL, _TIMES), max_size=15),
)
STOCK = Tables(
    [
        Order(1, "ann", 1, 2, 0),
        Order(2, "ann", None, 0, 10),
        Order(3, None, 1, 1, 5),
        Order(4, "ANN", 2, None, 12),
        Order(5, "ann", 1, 1, 30),
    ],
    [
        Payment(1, "ann", 1, 1, 3),
        Payment(2, None, 1, 1, 5),
        Payment(3, "ann", 2, 0, 0),
        Payment(4, "ann", 1, 5, 10),
        Payment(5, "ANN", 2, 1, 40),
    ],
)
