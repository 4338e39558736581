"""Temporal joins against a list of versions: disorder, late versions, deletes, snapshots, parallelism."""

from __future__ import annotations

from collections import Counter
from typing import Any, NamedTuple

import numpy as np
import polars as pl
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from onceflow.runtime.operators.joins.joined_columns import LATE_SIDES, JoinedColumns
from onceflow.runtime.operators.joins.temporal_join import TemporalJoin, TemporalJoinOperator, Versions
from onceflow.runtime.records import WATERMARK_MAX_MS, WATERMARK_MIN_MS
from onceflow.runtime.testing.harness import OperatorHarness
from onceflow.runtime.testing.mutation import Mutant, mutated

LEFT = pa.schema([("id", pa.string()), ("n", pa.int64())])
RIGHT = pa.schema([("price", pa.int64()), ("ref", pa.string())])
KEYS = (("id",), ("ref",))


class Row(NamedTuple):
    id: str | None
    ts: int
    n: int | None


def config(how: str) -> TemporalJoin:
    columns = JoinedColumns("j", KEYS, how)
    passes = columns.passes(LEFT, RIGHT)
    return TemporalJoin(columns, (LEFT, RIGHT), passes, pl.col("price").is_null(), True)


class Naive:
    def __init__(self, how: str) -> None:
        self.how = how
        self.waiting: list[Row] = []
        self.versions: list[Row] = []
        self.out: Counter[tuple[Any, ...]] = Counter()
        self.late = [0, 0]

    def push(self, side: int, rows: list[Row], watermark: int) -> None:
        for row in rows:
            is_late = row.ts <= watermark
            self.late[side] += is_late
            if side == 1:
                self.versions.append(row)
            elif not is_late:
                self.waiting.append(row)

    def advance(self, watermark: int) -> None:
        for row in [row for row in self.waiting if row.ts <= watermark]:
            before = [v for v in self.versions if v.id == row.id and v.ts <= row.ts and row.id is not None]
            version = max(enumerate(before), key=lambda v: (v[1].ts, v[0]), default=(0, None))[1]
            price = None if version is None else version.n
            if price is not None or self.how == "left":
                self.out[row.id, row.n, price, row.ts] += 1
        self.waiting = [row for row in self.waiting if row.ts > watermark]


def batch_of(side: int, rows: list[Row]) -> pa.RecordBatch:
    if side == 0:
        return pa.RecordBatch.from_pylist([{"id": r.id, "n": r.n} for r in rows], LEFT)
    return pa.RecordBatch.from_pylist([{"price": r.n, "ref": r.id} for r in rows], RIGHT)


def play(how: str, moves: list[tuple[str, Any]]) -> tuple[Counter[tuple[Any, ...]], list[int], Naive]:
    def make(parallelism: int, states: Any = None) -> OperatorHarness:
        return OperatorHarness(config(how).create, ["id"], parallelism, 8, states, right_keys=["ref"])

    harness, naive, watermark = make(2), Naive(how), WATERMARK_MIN_MS
    out: Counter[tuple[Any, ...]] = Counter()
    late = [0, 0]

    def collect(passed_on: int) -> None:
        for tag, records in harness.out.emitted:
            assert records.event_time is not None
            if tag in LATE_SIDES:
                late[LATE_SIDES.index(tag)] += len(records)
                continue
            assert min(records.event_time.tolist()) > passed_on, "it is late for who comes behind"
            for row, time in zip(records.batch.to_pylist(), records.event_time.tolist(), strict=True):
                out[*row.values(), time] += 1
        harness.out.emitted.clear()

    for kind, value in [*moves, ("watermark", (WATERMARK_MAX_MS, 1))]:
        if kind == "restore":
            before = watermark
            harness = make(value, harness.snapshot())
            harness.begin(before)
        elif kind == "watermark":
            before, watermark = watermark, max(watermark, value[0])
            harness.begin(watermark)
            harness.fire(value[1])
            states = harness.snapshot() if value[1] == 2 else None
            if states is not None:  # a barrier between two pieces
                collect(before)
                harness = make(3, states)
                harness.begin(watermark)
            while harness.fire(2):
                pass
            collect(before)
            naive.advance(watermark)
        else:
            side = 0 if kind == "left" else 1
            naive.push(side, value, watermark)
            push = harness.push if side == 0 else harness.push_right
            push(batch_of(side, value), [row.ts for row in value])
            collect(watermark)
    return out, late, naive


ROW = st.builds(
    Row, st.sampled_from(["a", "b", "ü", "", None]), st.integers(-20, 50), st.none() | st.integers(0, 3)
)
MOVE = st.one_of(
    st.tuples(st.just("left"), st.lists(ROW, min_size=1, max_size=9)),
    st.tuples(st.just("right"), st.lists(ROW, min_size=1, max_size=9)),
    st.tuples(st.just("watermark"), st.tuples(st.integers(-30, 60), st.integers(1, 6))),
    st.tuples(st.just("restore"), st.integers(1, 4)),
)


@settings(max_examples=80, deadline=None)
@given(st.sampled_from(["inner", "left"]), st.lists(MOVE, max_size=16))
def test_a_row_meets_the_version_of_its_time(how: str, moves: list[tuple[str, Any]]) -> None:
    out, late, naive = play(how, moves)
    assert out == naive.out
    assert late == naive.late


def test_of_each_key_one_version_before_the_watermark_is_kept_and_none_that_is_deleted() -> None:
    harness = OperatorHarness(config("left").create, ["id"], right_keys=["ref"])
    for first in range(0, 6_000, 100):
        rows = [Row(f"k{n % 50}", n, None if n % 50 == 7 else n) for n in range(first, first + 100)]
        harness.push_right(batch_of(1, rows), [row.ts for row in rows])
        harness.push(batch_of(0, [Row("k3", first + 99, 0)]), [first + 99])
        harness.advance(first + 50)
    harness.finish()
    [operator] = harness.subtasks
    assert isinstance(operator, TemporalJoinOperator)
    assert len(operator._right) < 1_200
    assert len(operator._left) == 0
    assert [row["price"] for row in harness.rows()] == [first + 53 for first in range(0, 6_000, 100)]
    operator._right._looked_from = 0
    operator._right.forget(6_000)
    assert len(operator._right) == 49


def _first_found(self: Versions, row: Any, time: Any) -> Any:
    runs, self.runs = self.runs, self.runs[:1]
    try:
        return _at(self, row, time)
    finally:
        self.runs = runs


def _at_any_time(self: Versions, row: Any, time: Any) -> Any:
    return _at(self, row, np.full(len(time), 1 << 60))


_at = Versions.at
BUSY: list[tuple[str, Any]] = [
    ("right", [Row("a", 0, 1), Row("a", 10, 2)]),
    ("left", [Row("a", 12, 0), Row("a", 25, 0)]),
    ("right", [Row("a", 20, 3), Row("b", 5, 1)]),
    ("watermark", (22, 2)),
    ("restore", 3),
    ("right", [Row("a", 24, 4)]),
]


@pytest.mark.parametrize(
    "mutant",
    [
        Mutant("only the first run is asked", [(Versions, "at", _first_found)]),
        Mutant("the latest version of all", [(Versions, "at", _at_any_time)]),
    ],
    ids=lambda mutant: mutant.title,
)
def test_a_wrong_temporal_join_is_found(mutant: Mutant) -> None:
    def is_right() -> bool:
        out, _, naive = play("left", BUSY)
        return out == naive.out

    assert is_right()
    with mutated(mutant):
        assert not is_right()
