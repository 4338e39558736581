"""Window joins and co-groups against nested loops: any rows, watermarks, snapshots and parallelism."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple

import polars as pl
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from onceflow.runtime.operators.assigners.sliding import Sliding
from onceflow.runtime.operators.assigners.tumbling import Tumbling
from onceflow.runtime.operators.joins.joined_columns import LATE_SIDES, JoinedColumns
from onceflow.runtime.operators.joins.window_join import (
    CoGroup,
    GroupConfig,
    GroupWindow,
    WindowJoin,
    WindowJoinOperator,
)
from onceflow.runtime.operators.joins.window_sides import WindowSides
from onceflow.runtime.records import WATERMARK_MAX_MS, WATERMARK_MIN_MS
from onceflow.runtime.testing.harness import OperatorHarness
from onceflow.runtime.testing.mutation import Mutant, mutated
from onceflow.runtime.types.columns_of_records import RecordWriter
from onceflow.runtime.types.record_types import describe_record
from onceflow.runtime.types.records_of_columns import RecordReader

LEFT = pa.schema([("id", pa.string()), ("n", pa.int64())])
RIGHT = pa.schema([("n", pa.int64()), ("ref", pa.string())])
KEYS = (("id",), ("ref",))


class Row(NamedTuple):
    id: str | None
    ts: int
    n: int | None


@dataclass(frozen=True)
class LeftRow:
    id: str | None
    n: int | None


@dataclass(frozen=True)
class RightRow:
    n: int | None
    ref: str | None


@dataclass(frozen=True)
class Both:
    id: str | None
    left: list[str]
    right: list[str]
    start: int


class Texts(CoGroup[LeftRow, RightRow, Both]):
    def group(self, left: list[LeftRow], right: list[RightRow], window: GroupWindow) -> Iterator[Both]:
        yield Both(window.key, sorted(str(r.n) for r in left), sorted(str(r.n) for r in right), window.start)


class Case(NamedTuple):
    how: str
    window: Tumbling | Sliding
    has_condition: bool

    def config(self) -> WindowJoin:
        columns = JoinedColumns("j", KEYS, "full" if self.how == "group" else self.how)
        condition = pl.col("n") <= pl.col("n_right") if self.has_condition else None
        if self.how == "group":
            readers = (RecordReader(LeftRow), RecordReader(RightRow))
            group = GroupConfig("j", Texts(), readers, RecordWriter.of(describe_record(Both)))
            return WindowJoin(columns, (LEFT, RIGHT), self.window, {}, None, True, group)
        return WindowJoin(columns, (LEFT, RIGHT), self.window, columns.passes(LEFT, RIGHT), condition, True)

    def starts(self, row: Row, watermark: int) -> list[int]:
        """The starts of the windows that hold the row and are not over: every time is tried."""
        size, offset = self.window.size_ms, self.window.offset_ms
        slide = self.window.slide_ms
        return [
            start
            for start in range(row.ts - size + 1, row.ts + 1)
            if (start - offset) % slide == 0 and start + size - 1 > watermark
        ]

    def join(self, left: Row, right: Row) -> bool:
        is_condition = not self.has_condition or (
            left.n is not None and right.n is not None and left.n <= right.n
        )
        return left.id is not None and left.id == right.id and is_condition


class Naive:
    def __init__(self, case: Case) -> None:
        self.case = case
        self.windows: dict[int, tuple[list[Row], list[Row]]] = defaultdict(lambda: ([], []))
        self.late = [0, 0]

    def push(self, side: int, rows: list[Row], watermark: int) -> None:
        for row in rows:
            starts = self.case.starts(row, watermark)
            self.late[side] += not starts
            for start in starts:
                self.windows[start][side].append(row)

    def expected(self) -> Counter[tuple[Any, ...]]:
        made: Counter[tuple[Any, ...]] = Counter()
        for start, sides in self.windows.items():
            made.update(self.grouped(start, *sides) if self.case.how == "group" else self.rows(start, *sides))
        return made

    def rows(self, start: int, left: list[Row], right: list[Row]) -> list[tuple[Any, ...]]:
        bounds = (start, start + self.case.window.size_ms)
        found = [(a, b) for a in left for b in right if self.case.join(a, b)]
        made = [(a.id, a.n, b.n, *bounds) for a, b in found]
        if self.case.how in ("left", "full"):
            alone = [a for a in left if not any(self.case.join(a, b) for b in right)]
            made += [(a.id, a.n, None, *bounds) for a in alone]
        if self.case.how in ("right", "full"):
            alone = [b for b in right if not any(self.case.join(a, b) for a in left)]
            made += [(b.id, None, b.n, *bounds) for b in alone]
        return made

    def grouped(self, start: int, left: list[Row], right: list[Row]) -> list[tuple[Any, ...]]:
        texts = [
            [tuple(sorted(str(row.n) for row in side if row.id == key)) for side in (left, right)]
            for key in {row.id for row in (*left, *right)}
        ]
        keys = {row.id for row in (*left, *right)}
        return [(key, *both, start) for key, both in zip(keys, texts, strict=True)]


def batch_of(side: int, rows: list[Row]) -> pa.RecordBatch:
    if side == 0:
        return pa.RecordBatch.from_pylist([{"id": r.id, "n": r.n} for r in rows], LEFT)
    return pa.RecordBatch.from_pylist([{"n": r.n, "ref": r.id} for r in rows], RIGHT)


def play(case: Case, moves: list[tuple[str, Any]]) -> tuple[Counter[tuple[Any, ...]], list[int], Naive]:
    def make(parallelism: int, states: Any = None) -> OperatorHarness:
        create = case.config().create
        return OperatorHarness(create, ["id"], parallelism, 8, states, right_keys=["ref"])

    harness, naive, watermark = make(2), Naive(case), WATERMARK_MIN_MS
    out: Counter[tuple[Any, ...]] = Counter()
    late = [0, 0]
    for kind, value in [*moves, ("watermark", (WATERMARK_MAX_MS, 1))]:
        collect(harness, case, out, late)
        if kind == "restore":
            harness = make(value, harness.snapshot())  # what was emitted before is out
            harness.begin(watermark)
        elif kind == "watermark":
            while harness.fire(2):
                pass
            watermark = max(watermark, value[0])
            harness.begin(watermark)
            harness.fire(value[1])
        else:
            side = 0 if kind == "left" else 1
            naive.push(side, value, watermark)
            push = harness.push if side == 0 else harness.push_right
            push(batch_of(side, value), [row.ts for row in value])
    while harness.fire(2):
        pass
    collect(harness, case, out, late)
    for operator in harness.subtasks:
        assert isinstance(operator, WindowJoinOperator)
        assert len(operator._sides) == 0, "nothing is kept for ever"
    return out, late, naive


def collect(harness: OperatorHarness, case: Case, out: Counter[tuple[Any, ...]], late: list[int]) -> None:
    for tag, records in harness.out.emitted:
        assert records.event_time is not None
        if tag in LATE_SIDES:
            late[LATE_SIDES.index(tag)] += len(records)
            continue
        for row, time in zip(records.batch.to_pylist(), records.event_time.tolist(), strict=True):
            start = row.get("window_start", row.get("start"))
            assert time == start + case.window.size_ms - 1
            out[tuple(tuple(v) if isinstance(v, list) else v for v in row.values())] += 1
    harness.out.emitted.clear()


ROW = st.builds(
    Row, st.sampled_from(["a", "b", "ü", "", None]), st.integers(-20, 50), st.none() | st.integers(0, 3)
)
MOVE = st.one_of(
    st.tuples(st.just("left"), st.lists(ROW, min_size=1, max_size=9)),
    st.tuples(st.just("right"), st.lists(ROW, min_size=1, max_size=9)),
    st.tuples(st.just("watermark"), st.tuples(st.integers(-30, 60), st.integers(1, 6))),
    st.tuples(st.just("restore"), st.integers(1, 4)),
)
WINDOW = st.one_of(
    st.builds(lambda size, offset: Tumbling(size, offset % size), st.integers(1, 20), st.integers(0, 20)),
    st.builds(
        lambda slide, more, offset: Sliding(slide + more, slide, offset % slide),
        st.integers(1, 9),
        st.integers(0, 15),
        st.integers(0, 9),
    ),
)
CASE = st.builds(Case, st.sampled_from(["inner", "left", "right", "full", "group"]), WINDOW, st.booleans())


@settings(max_examples=60, deadline=None)
@given(CASE, st.lists(MOVE, max_size=12))
def test_a_window_join_agrees_with_nested_loops(case: Case, moves: list[tuple[str, Any]]) -> None:
    out, late, naive = play(case._replace(has_condition=case.has_condition and case.how != "group"), moves)
    assert out == naive.expected()
    assert late == naive.late


BUSY: list[tuple[str, Any]] = [
    ("left", [Row("a", n, n % 3) for n in range(0, 30, 4)]),
    ("right", [Row("a", n, n % 3) for n in range(0, 30, 5)]),
    ("watermark", (12, 1)),
    ("restore", 3),
    ("left", [Row("b", n, 1) for n in range(0, 40, 3)]),
    ("right", [Row("b", 33, 1)]),
]


def _takes_all(self: WindowSides, side: int, records: Any, watermark_ms: int) -> Any:
    return _add(self, side, records, WATERMARK_MIN_MS)


def _first_key_only(self: WindowJoinOperator, window: Any) -> None:
    if window.start % 20:
        _send_pairs(self, window)


_add, _send_pairs = WindowSides.add, WindowJoinOperator._send_pairs


@pytest.mark.parametrize(
    "mutant",
    [
        Mutant("late rows begin their window again", [(WindowSides, "add", _takes_all)]),
        Mutant("a window is not sent", [(WindowJoinOperator, "_send_pairs", _first_key_only)]),
    ],
    ids=lambda mutant: mutant.title,
)
def test_a_wrong_window_join_is_found(mutant: Mutant) -> None:
    def is_right() -> bool:
        out, late, naive = play(Case("full", Tumbling(10), False), BUSY)
        return out == naive.expected() and late == naive.late

    assert is_right()
    with mutated(mutant):
        assert not is_right()
