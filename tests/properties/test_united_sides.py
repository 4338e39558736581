"""Joins and co-groups in sessions, cumulative windows and own ones, against nested loops over what
each window holds: any rows, watermarks, and restores at another parallelism."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import polars as pl
import pyarrow as pa
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from onceflow.runtime.operators.aggregation.aggregates import collect_list
from onceflow.runtime.operators.assigners.cumulative import Cumulative
from onceflow.runtime.operators.assigners.own_windows import WindowAssigner
from onceflow.runtime.operators.assigners.session import Session
from onceflow.runtime.operators.joins import united_sides, window_pairs
from onceflow.runtime.operators.joins.joined_columns import LEFT, RIGHT, JoinedColumns
from onceflow.runtime.operators.joins.united_sides import ROWS, UnitedJoin, UnitedSides
from onceflow.runtime.operators.joins.window_groups import CoGroup, GroupConfig, GroupWindow
from onceflow.runtime.operators.joins.window_sides import EndedWindows
from onceflow.runtime.operators.windows.window import WindowAggregate
from onceflow.runtime.records import Int64s, Records
from onceflow.runtime.state.overflow import UNLIMITED, StateBackend
from onceflow.runtime.testing.harness import LONE_SUBTASK, Collected, OperatorHarness
from onceflow.runtime.testing.mutation import Mutant, mutated
from onceflow.runtime.testing.tight_state import INCREMENTAL, tight_rocksdb
from onceflow.runtime.types.columns_of_records import RecordWriter
from onceflow.runtime.types.record_types import describe_record
from onceflow.runtime.types.records_of_columns import RecordReader
from tests.properties import test_window_join as join

SCHEMAS = (join.LEFT, join.RIGHT)
SIDES = UnitedSides(join.KEYS, SCHEMAS)
Moves = list[tuple[str, Any]]
Found = Counter[tuple[Any, ...]]


class Row(NamedTuple):
    id: str | None
    after: int
    """How far behind the watermark, so that none is late: what is late is the windows' own matter."""
    n: int | None


@dataclass(frozen=True)
class Both:
    id: str | None
    left: list[str]
    right: list[str]
    start: int
    end: int


class Texts(CoGroup[join.LeftRow, join.RightRow, Both]):
    def group(
        self, left: list[join.LeftRow], right: list[join.RightRow], window: GroupWindow
    ) -> Iterator[Both]:
        sides = [sorted(str(row.n) for row in side) for side in (left, right)]
        yield Both(window.key, *sides, window.start, window.end)


class EvenAndOdd(WindowAssigner):
    """Rows of the left side with an even number are in a window that those without are not in."""

    def assign(self, batch: pa.RecordBatch, event_time: Int64s) -> tuple[Int64s, Int64s]:
        starts = event_time // 10 * 10
        left = batch.column("left")
        numbers = left.field("n").fill_null(1).to_numpy(zero_copy_only=False)
        is_long = np.asarray(left.is_valid()) & (numbers % 2 == 0)
        return starts, starts + np.where(is_long, 20, 10)


OWN = EvenAndOdd()


class Case(NamedTuple):
    how: str
    window: Session | Cumulative | EvenAndOdd
    has_condition: bool

    def config(self) -> UnitedJoin:
        columns = JoinedColumns("j", join.KEYS, "full" if self.how == "group" else self.how)
        if self.how == "group":
            readers = (RecordReader(join.LeftRow), RecordReader(join.RightRow))
            group = GroupConfig("j", Texts(), readers, RecordWriter.of(describe_record(Both)))
            return UnitedJoin(SIDES, columns, {}, None, group)
        condition = pl.col("n") <= pl.col("n_right") if self.has_condition else None
        return UnitedJoin(SIDES, columns, columns.passes(*SCHEMAS), condition)

    def meet(self, left: Row, right: Row) -> bool:
        is_true = not self.has_condition or (left.n is not None and right.n is not None and left.n <= right.n)
        return left.id is not None and is_true


Seen = tuple[int, Row, int]
"""A side, a row and its time."""


def windows_of(case: Case, rows: Sequence[Seen]) -> Iterator[tuple[int, int, list[Seen]]]:
    """What the windows of one key hold, by definition."""
    if isinstance(case.window, Session):
        rows, start = sorted(rows, key=lambda seen: seen[2]), 0
        for n in range(1, len(rows) + 1):
            if n == len(rows) or rows[n][2] - rows[n - 1][2] > case.window.gap_ms:
                yield rows[start][2], rows[n - 1][2] + case.window.gap_ms, list(rows[start:n])
                start = n
        return
    by_bounds: dict[tuple[int, int], list[Seen]] = {}
    for seen in rows:
        side, row, time = seen
        if isinstance(case.window, Cumulative):
            size, step = case.window.size_ms, case.window.step_ms
            begin = time // size * size
            bounds = [(begin, end) for end in range(begin + step, begin + size + 1, step) if time < end]
        else:
            is_long = side == LEFT and row.n is not None and row.n % 2 == 0
            bounds = [(time // 10 * 10, time // 10 * 10 + (20 if is_long else 10))]
        for each in bounds:
            by_bounds.setdefault(each, []).append(seen)
    for (start, end), its in by_bounds.items():
        yield start, end, its


def expected(case: Case, rows: Sequence[Seen]) -> Found:
    made: Found = Counter()
    for key in {row.id for _, row, _ in rows}:
        for start, end, its in windows_of(case, [seen for seen in rows if seen[1].id == key]):
            left, right = ([row for side, row, _ in its if side == of] for of in (LEFT, RIGHT))
            if case.how == "group":
                texts = [tuple(sorted(str(row.n) for row in side)) for side in (left, right)]
                made[key, *texts, start, end] += 1
                continue
            made.update((a.id, a.n, b.n, start, end) for a in left for b in right if case.meet(a, b))
            if case.how in ("left", "full"):
                alone = [a for a in left if not any(case.meet(a, b) for b in right)]
                made.update((a.id, a.n, None, start, end) for a in alone)
            if case.how in ("right", "full"):
                alone = [b for b in right if not any(case.meet(a, b) for a in left)]
                made.update((b.id, None, b.n, start, end) for b in alone)
    return made


class Run:
    """Both inputs, the windows of both and the join behind them."""

    def __init__(self, case: Case, state: StateBackend) -> None:
        aggregates = {ROWS: collect_list()}
        config = WindowAggregate("w", ("id",), case.window, aggregates, SIDES.schema, late=False)
        self._case, self._config, self._state = case, config, state
        self._windows = self._opened(2, None)
        self._join, self._out = case.config().create(), Collected()
        self._join.open(LONE_SUBTASK, self._out)
        self._watermark = 0
        self.rows: list[Seen] = []

    def _opened(self, parallelism: int, states: Any) -> OperatorHarness:
        return OperatorHarness(self._config.create, ["id"], parallelism, 8, states, state=self._state)

    def push(self, side: int, rows: list[Row]) -> None:
        times = [self._watermark + 2 + row.after for row in rows]
        self.rows += [(side, row, time) for row, time in zip(rows, times, strict=True)]
        its = [{("id", "ref")[side]: row.id, "n": row.n} for row in rows]
        batch = pa.RecordBatch.from_pylist(its, SCHEMAS[side])
        both = SIDES.together(side, Records(batch, np.array(times, np.int64)))
        self._windows.push(both.batch, times)

    def advance(self, by: int) -> None:
        self._watermark += by
        self._windows.advance(self._watermark)
        self._pass_on()

    def restore(self, parallelism: int) -> None:
        states = self._windows.snapshot()
        self._windows.close()
        self._windows = self._opened(parallelism, states)

    def end(self) -> Found:
        self._windows.finish()
        self._pass_on()
        self._windows.close()
        found: Found = Counter()
        for _, records in self._out.emitted:
            times = records.event_time
            assert times is not None
            for row, time in zip(records.batch.to_pylist(), times.tolist(), strict=True):
                values = [tuple(v) if isinstance(v, list) else v for v in row.values()]
                assert time == values[-1] - 1
                found[tuple(values)] += 1
        return found

    def _pass_on(self) -> None:
        for _, records in self._windows.out.emitted:
            self._join.on_records(records)
        self._windows.out.emitted.clear()


def check(case: Case, moves: Moves, state: StateBackend) -> None:
    run = Run(case, state)
    for kind, value in moves:
        if kind == "rows":
            run.push(*value)
        elif kind == "watermark":
            run.advance(value)
        else:
            run.restore(value)
    assert run.end() == expected(case, run.rows)


ROW = st.builds(Row, st.sampled_from(["a", "b", None]), st.integers(0, 30), st.none() | st.integers(0, 3))
MOVES = st.lists(
    st.tuples(
        st.just("rows"), st.tuples(st.sampled_from([LEFT, RIGHT]), st.lists(ROW, min_size=1, max_size=5))
    )
    | st.tuples(st.just("watermark"), st.integers(0, 40))
    | st.tuples(st.just("restore"), st.integers(1, 3)),
    max_size=10,
)
CASES = st.builds(
    Case,
    st.sampled_from(["inner", "left", "right", "full", "group"]),
    st.sampled_from([Session(5), Cumulative(20, 5, 0), OWN]),
    st.booleans(),
)
SOME: Moves = [
    ("rows", (LEFT, [Row("a", 0, 0), Row(None, 0, 1), Row("b", 20, 2)])),
    ("restore", 1),
    ("rows", (RIGHT, [Row("a", 4, 1), Row(None, 0, 3), Row("b", 0, 3)])),
    ("watermark", 12),
    ("restore", 3),
    ("rows", (RIGHT, [Row("b", 10, 3), Row("a", 7, 0)])),
]
SESSIONS = Case("full", Session(5), False)


@settings(max_examples=60, deadline=None)
@given(CASES, MOVES)
@example(SESSIONS, SOME)
@example(Case("group", OWN, False), SOME)
def test_it_joins_what_is_in_the_same_window(case: Case, moves: Moves) -> None:
    check(case, moves, UNLIMITED)


@settings(max_examples=20, deadline=None)
@given(CASES, MOVES)
@example(SESSIONS, SOME)
def test_with_increments(case: Case, moves: Moves) -> None:
    check(case, moves, INCREMENTAL)


@settings(max_examples=15, deadline=None)
@given(CASES, MOVES)
@example(SESSIONS, SOME)
def test_in_rocksdb(case: Case, moves: Moves) -> None:
    with tight_rocksdb() as state:
        check(case, moves, state)


_ENDED = UnitedSides.ended


def all_in_one(self: UnitedSides, windows: pa.RecordBatch) -> EndedWindows:
    ended = _ENDED(self, windows)
    places = (ended.rows[LEFT], np.zeros_like(ended.rows[RIGHT]))
    return EndedWindows(ended.batches, places, places)


def none_is_null(batch: pa.RecordBatch, keys: Sequence[str]) -> None:
    return None


def on_the_left(side: pa.StructArray) -> Any:
    return np.ones(len(side), np.bool_) if "id" in {field.name for field in side.type} else _THERE(side)


_THERE = united_sides._is_there


@pytest.mark.parametrize(
    "mutant",
    [
        Mutant("right rows are all in the first window", [(UnitedSides, "ended", all_in_one)]),
        Mutant("null is equal to null", [(window_pairs, "null_keys", none_is_null)]),
        Mutant("right rows are on the left, too", [(united_sides, "_is_there", on_the_left)]),
    ],
    ids=lambda mutant: mutant.title,
)
def test_what_is_joined_wrongly_is_found(mutant: Mutant) -> None:
    with mutated(mutant), pytest.raises(AssertionError):
        check(SESSIONS, SOME, UNLIMITED)
