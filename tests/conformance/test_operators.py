"""The product's keyed operators go on exactly after a restore at any parallelism, on every backend."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext

import pyarrow as pa
import pytest

from onceflow.runtime.operators.aggregation.aggregates import count, max_, mean, min_, sum_
from onceflow.runtime.operators.assigners.firings import ONCE, Firings, Results
from onceflow.runtime.operators.assigners.session import session
from onceflow.runtime.operators.assigners.sliding import sliding
from onceflow.runtime.operators.assigners.tumbling import tumbling
from onceflow.runtime.operators.triggers.built_in import at_watermark, every_rows
from onceflow.runtime.operators.windows.new_spans import Window
from onceflow.runtime.operators.windows.window import WindowAggregate
from onceflow.runtime.state.overflow import UNLIMITED, StateBackend
from onceflow.runtime.testing.conformance import OPERATOR_CHECKS, OperatorUnderTest
from onceflow.runtime.testing.tight_state import INCREMENTAL, tight_rocksdb

SCHEMA = pa.schema([("user", pa.string()), ("amount", pa.int64())])
BACKENDS: dict[str, Callable[[], AbstractContextManager[StateBackend]]] = {
    "heap": lambda: nullcontext(UNLIMITED),
    "increments": lambda: nullcontext(INCREMENTAL),
    "rocksdb": tight_rocksdb,
}
STEPS = [
    ([("a", 1, 100), ("b", 2, 150), ("c", 3, 9_000)], 90),
    ([("a", 4, 9_999), ("d", 5, 10_000)], 9_998),
    ([("a", 6, 12_000)], 9_999),
    ([("b", None, 25_000), ("e", 8, 10_001)], 15_000),
]


def batch(rows: list[tuple[str, int | None, int]]) -> pa.RecordBatch:
    return pa.RecordBatch.from_pylist([{"user": user, "amount": n} for user, n, _ in rows], schema=SCHEMA)


@pytest.mark.parametrize("check", OPERATOR_CHECKS, ids=lambda check: check.__name__)
@pytest.mark.parametrize(
    ("window", "firings"),
    [
        (tumbling("10 s"), ONCE),
        (sliding("10 s", "4 s"), ONCE),
        (session("3 s"), ONCE),
        (tumbling("10 s"), Firings(20_000, Results.RETRACTING)),
        (tumbling("10 s"), Firings(0, Results.ACCUMULATING, at_watermark(early=every_rows(2)))),
    ],
    ids=["tumbling", "sliding", "session", "lateness", "trigger"],
)
@pytest.mark.parametrize("state", ["heap", "increments", "rocksdb"])
def test_windows(
    check: Callable[[OperatorUnderTest], None], window: Window, firings: Firings, state: str
) -> None:
    aggregates = {
        "n": count(),
        "total": sum_("amount"),
        "low": min_("amount"),
        "high": max_("amount"),
        "mean": mean("amount"),
    }
    windows = WindowAggregate("w", ("user",), window, aggregates, SCHEMA, firings=firings)
    steps = [(batch(rows), [row[2] for row in rows], watermark_ms) for rows, watermark_ms in STEPS]
    with BACKENDS[state]() as backend:
        check(OperatorUnderTest(windows.create, ["user"], steps, state=backend))
