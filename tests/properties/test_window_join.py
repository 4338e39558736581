"""Window joins and co-groups against nested loops: any rows, watermarks, firing in pieces, and restores at
another parallelism and in the other backend."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import polars as pl
import pyarrow as pa
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from onceflow.runtime.errors import Retryable
from onceflow.runtime.operators.assigners.sliding import Sliding
from onceflow.runtime.operators.assigners.tumbling import Tumbling
from onceflow.runtime.operators.joins.joined_columns import LATE_SIDES, JoinedColumns
from onceflow.runtime.operators.joins.joined_rows import JoinedRows
from onceflow.runtime.operators.joins.rows_in_time import RowsInTime
from onceflow.runtime.operators.joins.window_groups import CoGroup, GroupConfig, GroupWindow
from onceflow.runtime.operators.joins.window_join import WindowJoin, WindowJoinOperator
from onceflow.runtime.operators.joins.window_sides import WindowSides
from onceflow.runtime.records import WATERMARK_MAX_MS, WATERMARK_MIN_MS, Records
from onceflow.runtime.state.increments import Increments
from onceflow.runtime.state.overflow import UNLIMITED, StateBackend
from onceflow.runtime.state.rocks import row_codec
from onceflow.runtime.state.rocks.rocks_groups import RocksGroups
from onceflow.runtime.testing.harness import OperatorHarness
from onceflow.runtime.testing.mutation import Mutant, mutated
from onceflow.runtime.testing.tight_state import INCREMENTAL, tight_rocksdb
from onceflow.runtime.types.columns_of_records import RecordWriter
from onceflow.runtime.types.record_types import describe_record
from onceflow.runtime.types.records_of_columns import RecordReader

LEFT = pa.schema([("id", pa.string()), ("n", pa.int64())])
RIGHT = pa.schema([("n", pa.int64()), ("ref", pa.string())])
KEYS = (("id",), ("ref",))
Moves = list[tuple[str, Any]]


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


Harnessed = tuple[Counter[tuple[Any, ...]], list[int], "Naive", OperatorHarness]


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


def play(case: Case, moves: Moves, backend: StateBackend) -> Harnessed:
    def make(parallelism: int, states: Any = None) -> OperatorHarness:
        create = case.config().create
        state = UNLIMITED if parallelism == 3 else backend  # a savepoint may go to the other backend
        return OperatorHarness(create, ["id"], parallelism, 8, states, right_keys=["ref"], state=state)

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
            if value[1] > 3:
                while harness.fire(2):
                    pass
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
    return out, late, naive, harness


def check(case: Case, moves: Moves, state: StateBackend) -> None:
    case = case._replace(has_condition=case.has_condition and case.how != "group")
    out, late, naive, _ = play(case, moves, state)
    assert out == naive.expected()
    assert late == naive.late


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
    st.tuples(st.just("watermark"), st.tuples(st.integers(-30, 60), st.integers(1, 6) | st.just(1_000))),
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


BUSY: Moves = [
    ("left", [Row("a", n, n % 3) for n in range(0, 30, 4)]),
    ("right", [Row("a", n, n % 3) for n in range(0, 30, 5)]),
    ("watermark", (12, 1)),
    ("restore", 3),
    ("left", [Row("b", n, 1) for n in range(0, 40, 3)]),
    ("right", [Row("b", 33, 1)]),
    ("watermark", (19, 9)),
    ("restore", 1),
    ("left", [Row("c", n, n % 2) for n in range(25, 60, 3)] + [Row("b", 31, 2)]),
    *(("right", [Row("c", n, 2), Row("d", n, 0)]) for n in range(26, 40)),
    ("watermark", (29, 1)),
    ("restore", 2),
    ("right", [Row("e", 55, 1)]),
    ("watermark", (39, 1)),
    ("restore", 1),
    ("restore", 4),
    ("right", [Row("b", 45, 1), Row("a", 50, 1)]),
]
TOGETHER: Moves = [
    (side, [Row("a", n * 7 % 50, n % 3) for n in range(50)] + [Row(side, n, 1) for n in (40, 30, 31, 3)])
    for side in ("left", "right")
] + [("watermark", (35, 1_000)), ("left", [Row("a", 44, 1)])]
"""Several windows end at once, and rows come in the order of none."""
ONE_OF_MANY: Moves = [
    ("left", [Row("e", 1, 0), *(Row(f"k{n}", 50, 0) for n in range(100))]),
    ("watermark", (12, 9)),
    ("restore", 1),
]
"""There are so many keys that one which has changed is written without the others."""
FULL, GROUPS = Case("full", Tumbling(10), False), Case("group", Sliding(20, 10), False)


@settings(max_examples=60, deadline=None)
@given(CASE, st.lists(MOVE, max_size=12))
@example(FULL, BUSY)
@example(FULL, TOGETHER)
@example(GROUPS, TOGETHER)
def test_a_window_join_agrees_with_nested_loops(case: Case, moves: Moves) -> None:
    check(case, moves, UNLIMITED)


@settings(max_examples=40, deadline=None)
@given(CASE, st.lists(MOVE, max_size=12))
@example(FULL, BUSY)
def test_so_does_one_whose_snapshots_build_on_each_other(case: Case, moves: Moves) -> None:
    check(case, moves, INCREMENTAL)


@settings(max_examples=20, deadline=None)
@given(CASE, st.lists(MOVE, max_size=12))
@example(FULL, BUSY)
@example(GROUPS, BUSY)
def test_so_does_one_in_rocksdb(case: Case, moves: Moves) -> None:
    with tight_rocksdb(rows_in_memory=1) as state:
        check(case, moves, state)


def test_windows_that_have_ended_are_removed_from_disk() -> None:
    moves: Moves = [("left", [Row("late", 599, 1)])]
    for first in range(0, 600, 20):
        moves += [
            (side, [Row(f"k{n}", n, 1) for n in range(first, first + 20)]) for side in ("left", "right")
        ]
        moves.append(("watermark", (first, 1_000)))
    moves.append(("watermark", (590, 1_000)))
    with tight_rocksdb(rows_in_memory=20) as state:
        out, _, naive, harness = play(FULL, moves, state)
        assert out == naive.expected()
        overflows = [
            op._sides._rows._overflow for op in harness.subtasks if isinstance(op, WindowJoinOperator)
        ]
        assert sum(len(list(each._database.freeze())) for each in overflows) < 100, "of 600 keys"


@pytest.mark.parametrize(("rows", "is_one_batch"), [(20, True), (1_000, False)])
def test_windows_that_end_together_come_one_after_the_other(rows: int, is_one_batch: bool) -> None:
    """In one batch if there are few pairs; by themselves if there are so many that they come in pieces."""
    harness = OperatorHarness(FULL.config().create, ["id"], 1, 8, right_keys=["ref"])
    for side, push in enumerate((harness.push, harness.push_right)):
        sent = [Row("a", n % 20, n) for n in range(rows)] + [Row(f"of {side}", ts, 0) for ts in (0, 10)]
        push(batch_of(side, sent), [row.ts for row in sent])
    harness.begin(100)
    harness.fire(10_000)
    ends = [records.event_time for _, records in harness.out.emitted if records.event_time is not None]
    assert (len(ends) == 1) == is_one_batch
    assert (np.diff(np.concatenate(ends)) >= 0).all()
    assert sum(map(len, ends)) == 2 * (rows // 2) ** 2 + 4


def test_a_row_far_ahead_keeps_no_others_in_memory() -> None:
    sides = WindowSides(Tumbling(10), (LEFT, RIGHT), KEYS)
    times = np.array([0] * 1_000 + [99])
    batch = batch_of(0, [Row("a", ts, 1) for ts in times.tolist()])
    sides.add(0, Records(batch, times, np.zeros(len(times), np.uint64)), 0)
    assert sides.next_ends(50, 1) is not None
    [(left, _)] = sides._open.values()
    assert left[0].batch.get_total_buffer_size() < 100


# --- What a wrong join would do ---


def _takes_all(self: WindowSides, side: int, records: Any, watermark_ms: int) -> Any:
    return _add(self, side, records, WATERMARK_MIN_MS)


def _first_key_only(self: WindowJoinOperator, window: Any) -> None:
    if window.windows[0] % 20:
        _send(self, window)


_add, _send = WindowSides.add, WindowJoinOperator._send


def is_right(state: StateBackend) -> bool:
    try:
        check(FULL, BUSY, state)
        check(GROUPS, BUSY, state)
        check(FULL, ONE_OF_MANY, state)
    except (AssertionError, Retryable):
        return False
    return True


@pytest.mark.parametrize(
    "mutant",
    [
        Mutant("late rows begin their window again", [(WindowSides, "add", _takes_all)]),
        Mutant("a window is not sent", [(WindowJoinOperator, "_send", _first_key_only)]),
    ],
    ids=lambda mutant: mutant.title,
)
def test_a_wrong_window_join_is_found(mutant: Mutant) -> None:
    assert is_right(UNLIMITED)
    with mutated(mutant):
        assert not is_right(UNLIMITED)


def _no_note(self: Any, *keys: Any) -> None:
    pass


def test_an_increment_without_what_has_changed_is_found() -> None:
    assert is_right(INCREMENTAL)
    for mutant in (
        Mutant("rows that came are in no increment", [(Increments, "note", _no_note)]),
        Mutant("what was sent is sent again", [(RowsInTime, "note_changed", _no_note)]),
        Mutant("who has no rows any more is not told of", [(JoinedRows, "_note_gone", _no_note)]),
    ):
        with mutated(mutant):
            assert not is_right(INCREMENTAL), mutant.title


def _one_row_of_a_key(content: bytes) -> Any:
    return _split(content)[:1]


def _asleep(self: RowsInTime, watermark_ms: int) -> bool:
    return False


def _groups_of_nobody(hashes: Any, max_parallelism: int) -> Any:
    return _key_groups_of(~hashes, max_parallelism)


_split, _key_groups_of = RocksGroups.split, row_codec.key_groups_of


@pytest.mark.parametrize(
    "mutant",
    [
        Mutant("of a key one row comes back", [(RocksGroups, "split", staticmethod(_one_row_of_a_key))]),
        Mutant("nothing wakes", [(RowsInTime, "wake", _asleep)]),
        Mutant("rows on disk get wrong key groups", [(row_codec, "key_groups_of", _groups_of_nobody)]),
    ],
    ids=lambda mutant: mutant.title,
)
def test_a_wrong_window_join_in_rocksdb_is_found(mutant: Mutant) -> None:
    with tight_rocksdb(rows_in_memory=1) as state:
        assert is_right(state)
        with mutated(mutant):
            assert not is_right(state)
