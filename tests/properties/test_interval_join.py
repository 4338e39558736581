"""Interval joins against two nested loops: any rows, batches, watermarks, firing in pieces, and restores at
another parallelism and in the other backend."""

from __future__ import annotations

from collections import Counter, defaultdict
from itertools import product
from typing import Any, NamedTuple

import numpy as np
import polars as pl
import pyarrow as pa
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from onceflow.runtime.errors import Retryable
from onceflow.runtime.operators.joins import frozen_sides, interval_join, runs
from onceflow.runtime.operators.joins.asked import Asked
from onceflow.runtime.operators.joins.interval_join import IntervalJoin, IntervalJoinOperator
from onceflow.runtime.operators.joins.joined_columns import LATE_SIDES, JoinedColumns
from onceflow.runtime.operators.joins.joined_rows import JoinedRows
from onceflow.runtime.operators.joins.rows_in_time import RowsInTime
from onceflow.runtime.operators.joins.runs import Places, Run
from onceflow.runtime.records import WATERMARK_MAX_MS, WATERMARK_MIN_MS, Records
from onceflow.runtime.state.increments import Increments
from onceflow.runtime.state.overflow import UNLIMITED, StateBackend
from onceflow.runtime.state.rocks import row_codec
from onceflow.runtime.state.rocks.rocks_groups import RocksGroups
from onceflow.runtime.testing.harness import OperatorHarness
from onceflow.runtime.testing.mutation import Mutant, mutated
from onceflow.runtime.testing.tight_state import INCREMENTAL, tight_rocksdb

LEFT = pa.schema([("id", pa.string()), ("part", pa.int64()), ("note", pa.string()), ("n", pa.int64())])
RIGHT = pa.schema([("n", pa.int64()), ("ref", pa.string()), ("piece", pa.int64())])
KEYS = (("id", "part"), ("ref", "piece"))
CONDITION = pl.col("n") <= pl.col("n_right")


class Row(NamedTuple):
    id: str | None
    part: int
    ts: int
    n: int | None


class Case(NamedTuple):
    how: str
    lower: int
    upper: int
    has_condition: bool

    def config(self) -> IntervalJoin:
        columns = JoinedColumns("j", KEYS, self.how)
        condition = CONDITION if self.has_condition else None
        passes = columns.passes(LEFT, RIGHT)
        return IntervalJoin(columns, (LEFT, RIGHT), passes, self.lower, self.upper, condition, (True, True))

    def join(self, left: Row, right: Row) -> bool:
        """The whole of what a pair is."""
        return (
            left.id is not None
            and (left.id, left.part) == (right.id, right.part)
            and self.lower <= right.ts - left.ts <= self.upper
            and (not self.has_condition or (left.n is not None and right.n is not None and left.n <= right.n))
        )


def out_row(left: Row | None, right: Row | None) -> tuple[Any, ...]:
    """id, part, note, n, n_right, event time."""
    some = left or right
    assert some is not None
    note, n = (None, None) if left is None else (f"l{left.ts}", left.n)
    times = [row.ts for row in (left, right) if row is not None]
    return some.id, some.part, note, n, None if right is None else right.n, max(times)


def expected(case: Case, left: list[Row], right: list[Row]) -> Counter[tuple[Any, ...]]:
    found = [(a, b) for a, b in product(left, right) if case.join(a, b)]
    rows = [out_row(a, b) for a, b in found]
    if case.how in ("left", "full"):
        rows += [out_row(a, None) for a in left if not any(case.join(a, b) for b in right)]
    if case.how in ("right", "full"):
        rows += [out_row(None, b) for b in right if not any(case.join(a, b) for a in left)]
    return Counter(rows)


def batch_of(side: int, rows: list[Row]) -> pa.RecordBatch:
    if side == 0:
        made = [{"id": r.id, "part": r.part, "note": f"l{r.ts}", "n": r.n} for r in rows]
    else:
        made = [{"n": r.n, "ref": r.id, "piece": r.part} for r in rows]
    return pa.RecordBatch.from_pylist(made, (LEFT, RIGHT)[side])


class Play:
    """The operator, the rows that were on time, and what a reader downstream may hold it to."""

    def __init__(self, case: Case, state: StateBackend = UNLIMITED) -> None:
        self.case, self.state = case, state
        self.harness = self.make(2)
        self.watermark = self.passed_on = WATERMARK_MIN_MS
        self.on_time: tuple[list[Row], list[Row]] = ([], [])
        self.late: tuple[list[Row], list[Row]] = ([], [])
        self.out: list[tuple[Any, ...]] = []
        self.late_out = [0, 0]

    def make(self, parallelism: int, states: Any = None) -> OperatorHarness:
        create = self.case.config().create
        state = UNLIMITED if parallelism == 3 else self.state  # a savepoint may go to the other backend
        return OperatorHarness(create, KEYS[0], parallelism, 8, states, right_keys=KEYS[1], state=state)

    def push(self, side: int, rows: list[Row]) -> None:
        for row in rows:
            (self.on_time if row.ts > self.watermark else self.late)[side].append(row)
        to = self.harness.push if side == 0 else self.harness.push_right
        to(batch_of(side, rows), [row.ts for row in rows])
        self.collect()

    def begin(self, time_ms: int, rows_max: int) -> None:
        """A piece of what a watermark makes due; the rest comes with the next one."""
        self.go_on()
        self.watermark = max(self.watermark, time_ms)
        self.harness.begin(self.watermark)
        self.harness.fire(rows_max)
        self.collect()

    def advance(self, time_ms: int) -> None:
        """All that a watermark makes due, without a snapshot between two pieces."""
        self.go_on()
        self.watermark = max(self.watermark, time_ms)
        self.harness.advance(self.watermark)
        self.go_on()

    def go_on(self) -> None:
        while self.harness.fire(3):
            pass
        self.collect()
        self.passed_on = self.watermark

    def restore(self, parallelism: int) -> None:
        self.harness = self.make(parallelism, self.harness.snapshot())
        self.harness.begin(self.watermark)

    def collect(self) -> None:
        delay_ms = self.case.config().delay_ms
        for tag, records in self.harness.out.emitted:
            assert records.event_time is not None
            if tag in LATE_SIDES:
                self.late_out[LATE_SIDES.index(tag)] += len(records)
                continue
            times = records.event_time.tolist()
            assert min(times) > self.passed_on - delay_ms, "it is late for who comes behind"
            rows = [tuple(row.values()) for row in records.batch.to_pylist()]
            self.out += [(*row, time) for row, time in zip(rows, times, strict=True)]
        self.harness.out.emitted.clear()


def play(case: Case, moves: list[tuple[str, Any]], state: StateBackend = UNLIMITED) -> Play:
    run = Play(case, state)
    for kind, value in moves:
        if kind == "restore":
            run.restore(value)
        elif kind == "advance":
            run.advance(value)
        elif kind == "watermark":
            run.begin(*value)
            if value[1] > 3:
                run.go_on()
        else:
            run.push(0 if kind == "left" else 1, value)
    run.begin(WATERMARK_MAX_MS, 2)
    run.go_on()
    return run


ROW = st.builds(
    Row,
    st.sampled_from(["a", "b", "ü", "", None]),
    st.integers(0, 1),
    st.integers(-30, 60),
    st.none() | st.integers(0, 3),
)
MOVE = st.one_of(
    st.tuples(st.just("left"), st.lists(ROW, min_size=1, max_size=9)),
    st.tuples(st.just("right"), st.lists(ROW, min_size=1, max_size=9)),
    st.tuples(st.just("watermark"), st.tuples(st.integers(-40, 70), st.integers(1, 6))),
    st.tuples(st.just("advance"), st.integers(-40, 70)),
    st.tuples(st.just("restore"), st.integers(1, 4)),
)
CASE = st.builds(
    lambda how, lower, length, condition: Case(how, lower, lower + length, condition),
    st.sampled_from(["inner", "left", "right", "full"]),
    st.integers(-20, 20),
    st.integers(0, 20),
    st.booleans(),
)


FULL = Case("full", -3, 5, False)
BUSY = [
    ("left", [Row("a", 0, n, 0) for n in range(20)]),
    ("right", [Row("a", 0, n, n % 4) for n in range(10, 30, 3)]),
    *(("left", [Row("b", 0, n, 1)]) for n in range(9)),
    ("watermark", (14, 2)),
    ("restore", 3),
    ("left", [Row("c", 0, 20, 1)]),
    ("watermark", (22, 9)),
    ("restore", 2),
    ("right", [Row("c", 0, 24, 1)]),
    ("right", [Row("b", 0, n, 3) for n in range(12, 40)]),
    ("watermark", (27, 1)),
    ("restore", 1),
    ("left", [Row("b", 0, n, 0) for n in range(18, 40)]),
    ("left", [Row("d", 0, n, 0) for n in range(33, 36)]),
    ("restore", 4),
]
ONE_OF_MANY: list[tuple[str, Any]] = [
    ("left", [Row("e", 0, 1, 0), *(Row(f"k{n}", 0, 50, 0) for n in range(100))]),
    ("advance", 10),
    ("restore", 1),
]
"""There are so many keys that one which has changed is written without the others."""


def check(run: Play) -> None:
    assert Counter(run.out) == expected(run.case, *run.on_time)
    assert run.late_out == [len(rows) for rows in run.late]
    for operator in run.harness.subtasks:
        assert isinstance(operator, IntervalJoinOperator)
        assert [len(side) for side in operator._sides] == [0, 0], "nothing is kept for ever"


@settings(max_examples=80, deadline=None)
@given(CASE, st.lists(MOVE, max_size=16))
@example(FULL, BUSY)
def test_a_join_agrees_with_nested_loops(case: Case, moves: list[tuple[str, Any]]) -> None:
    check(play(case, moves))


@settings(max_examples=40, deadline=None)
@given(CASE, st.lists(MOVE, max_size=16))
@example(FULL, BUSY)
def test_so_does_one_whose_snapshots_build_on_each_other(case: Case, moves: list[tuple[str, Any]]) -> None:
    check(play(case, moves, INCREMENTAL))


@settings(max_examples=20, deadline=None)
@given(CASE, st.lists(MOVE, max_size=16))
@example(FULL, BUSY)
@example(FULL._replace(how="inner"), BUSY)
def test_so_does_one_in_rocksdb(case: Case, moves: list[tuple[str, Any]]) -> None:
    with tight_rocksdb(rows_in_memory=1) as state:
        check(play(case, moves, state))


def many(case: Case, rows: int, keys: int, state: StateBackend = UNLIMITED) -> Play:
    """Both sides in batches of 50, the watermark close behind."""
    run = Play(case, state)
    for first in range(0, rows, 50):
        for side in (0, 1):
            its = [Row(f"k{n * 7 % keys}", 0, n + side, n % 3) for n in range(first, first + 50)]
            run.push(side, its)
        run.begin(first, 1_000)
        run.go_on()
    return run


@pytest.mark.parametrize("how", ["inner", "full"])
def test_state_is_bounded_by_the_watermark_and_so_are_its_keys(how: str) -> None:
    case = Case(how, -10, 10, False)
    run = many(case, 6_000, 6_000)
    for operator in run.harness.subtasks:
        assert isinstance(operator, IntervalJoinOperator)
        assert max(len(side) for side in operator._sides) < 500
        assert operator._rows.table.key_count < 2_500
    run.begin(WATERMARK_MAX_MS, 10_000)
    run.go_on()
    assert Counter(run.out) == expected_by_key(case, *run.on_time)


def rows_on_disk(run: Play) -> int:
    """What RocksDB itself has, whatever is known of it."""
    overflows = [op._rows._overflow for op in run.harness.subtasks if isinstance(op, IntervalJoinOperator)]
    return sum(len(list(each._database.freeze())) for each in overflows if isinstance(each, RocksGroups))


@pytest.mark.parametrize("how", ["inner", "full"])
def test_what_the_watermark_has_passed_is_removed_from_disk(how: str) -> None:
    with tight_rocksdb(rows_in_memory=50) as state:
        run = many(Case(how, -10, 10, False), 1_000, 1_000, state)
        assert 0 < rows_on_disk(run) < 200
        assert Counter(run.out) <= expected_by_key(run.case, *run.on_time)
        with mutated(Mutant("what is gone stays there", [(RocksGroups, "_renumbered", _never_deleted)])):
            assert rows_on_disk(many(run.case, 1_000, 1_000, state)) > 900


def _never_deleted(self: RocksGroups, identities: Any) -> None:
    if (kept := self._table.kept_keys) is not None:
        self._keep(kept)


def expected_by_key(case: Case, left: list[Row], right: list[Row]) -> Counter[tuple[Any, ...]]:
    by_key: dict[Any, tuple[list[Row], list[Row]]] = defaultdict(lambda: ([], []))
    for side, rows in enumerate((left, right)):
        for row in rows:
            by_key[row.id][side].append(row)
    found: Counter[tuple[Any, ...]] = Counter()
    for sides in by_key.values():
        found.update(expected(case, *sides))
    return found


def test_one_row_that_meets_very_many_sends_them_in_pieces() -> None:
    run = Play(Case("inner", -100, 100, False))
    run.push(0, [Row("a", 0, 5, n % 4) for n in range(3 * runs.PAIRS_MAX // 2)])
    run.harness.push_right(batch_of(1, [Row("a", 0, 6, 1)]), [6])
    sizes = [len(records) for _, records in run.harness.out.emitted]
    assert sizes == [runs.PAIRS_MAX, runs.PAIRS_MAX // 2]


def test_times_that_are_very_far_apart_are_found_too() -> None:
    times = np.array([-(1 << 60), 5, 6, 1 << 60])
    row = np.array([3, 1, 1, 2])
    run = Run(pa.record_batch({"t": times}), row, times, None)
    begin, counts = run.find(np.array([1, 2, 3, 9]), np.array([5, 0, -(1 << 61), 0]), np.array([6, 9, 9, 9]))
    assert counts.tolist() == [2, 0, 1, 0]
    assert run.batch.column("t").to_pylist()[int(begin[2])] == -(1 << 60)


KEY, TIME = st.integers(0, 3), st.integers(-5, 5)


@given(
    st.lists(st.tuples(KEY, TIME, st.integers(0, 3)), min_size=1),
    st.lists(st.lists(st.tuples(KEY, TIME), min_size=1), max_size=4),
)
@example([(1, 3, 0)], [[(1, 3)]])
@example([(1, 3, 0), (1, 0, 1)], [[(1, 3)], [(2, 0), (1, 1)]])
def test_each_run_is_asked_for_all_that_it_has(
    asked: list[tuple[int, int, int]], parts: list[list[tuple[int, int]]]
) -> None:
    row, earliest, width = np.array(asked).T
    made = [
        Run(pa.record_batch({"t": times}), keys, times, None)
        for keys, times in (np.array(p).T for p in parts)
    ]
    found = {
        id(run): (begin, counts) for run, begin, counts in Asked(row, earliest, earliest + width).find(made)
    }
    for run in made:
        begin, counts = found.get(id(run), np.zeros((2, len(row)), np.int64))
        for n in range(len(row)):
            is_hit = (run.row == row[n]) & (run.time >= earliest[n]) & (run.time <= earliest[n] + width[n])
            places = np.flatnonzero(is_hit).tolist()
            assert list(range(begin[n], begin[n] + counts[n])) == places


@given(st.lists(st.tuples(st.integers(0, 5), st.integers(-9, 9)), min_size=1), st.integers(-12, 12))
def test_places_are_in_the_order_of_rows_and_times(pairs: list[tuple[int, int]], time: int) -> None:
    row, times = (np.array(each, np.int64) for each in zip(*sorted(pairs), strict=True))
    for far in (0, 1 << 60):
        stretched = times * max(1, far // 16)
        places = Places(row, stretched)
        numbers = places.of(row, stretched)
        asked = places.of(np.arange(8), np.full(8, time * max(1, far // 16)))
        wanted = [sum(pair < (key, time) for pair in pairs) for key in range(8)]
        assert np.searchsorted(numbers, asked).tolist() == wanted


# --- What a wrong join would do ---

_on_time = IntervalJoinOperator._on_time


def _takes_late(self: IntervalJoinOperator, side: int, records: Records) -> Records:
    _on_time(self, side, records)
    return records


def _tells_at_once(watermark_ms: int, keep_ms: int) -> int:
    return max(-(1 << 61), min(1 << 61, watermark_ms))


def _forgets_matches(self: Run, rows: Any, level: int) -> Run:
    is_matched = None if self.is_matched is None else np.zeros(len(rows), np.bool_)
    return Run(self.batch.take(pa.array(rows)), self.row[rows], self.time[rows], is_matched, level)


def _with_what_was_told(self: Run, limit: int) -> Any:
    return np.arange(len(self))


def _groups_of_nobody(hashes: Any, max_parallelism: int) -> Any:
    return _key_groups_of(~hashes, max_parallelism)


_key_groups_of = frozen_sides.key_groups_of


@pytest.mark.parametrize(
    "mutant",
    [
        Mutant("late rows join what is left", [(IntervalJoinOperator, "_on_time", _takes_late)]),
        Mutant("rows expire at their own time", [(interval_join, "limit_of", _tells_at_once)]),
        Mutant("a merge forgets which rows were matched", [(Run, "take", _forgets_matches)]),
        Mutant("what was told is in the snapshot", [(Run, "live", _with_what_was_told)]),
        Mutant("rows get wrong key groups", [(frozen_sides, "key_groups_of", _groups_of_nobody)]),
    ],
    ids=lambda mutant: mutant.title,
)
def test_a_wrong_join_is_found(mutant: Mutant) -> None:
    assert is_right(UNLIMITED)
    with mutated(mutant):
        assert not is_right(UNLIMITED)


def is_right(state: StateBackend) -> bool:
    try:
        check(play(FULL, BUSY, state))
        check(play(FULL, ONE_OF_MANY, state))
    except (AssertionError, Retryable):
        return False
    return True


def _no_note(self: Any, *keys: Any) -> None:
    pass


def test_an_increment_without_what_has_changed_is_found() -> None:
    assert is_right(INCREMENTAL)
    for mutant in (
        Mutant("rows that came are in no increment", [(Increments, "note", _no_note)]),
        Mutant("what was told is told again", [(RowsInTime, "note_changed", _no_note)]),
        Mutant("who has no rows any more is not told of", [(JoinedRows, "_note_gone", _no_note)]),
    ):
        with mutated(mutant):
            assert not is_right(INCREMENTAL), mutant.title


def _one_row_of_a_key(content: bytes) -> Any:
    return _split(content)[:1]


def _asleep(self: RowsInTime, watermark_ms: int) -> bool:
    return False


_split = RocksGroups.split


@pytest.mark.parametrize(
    "mutant",
    [
        Mutant("of a key one row comes back", [(RocksGroups, "split", staticmethod(_one_row_of_a_key))]),
        Mutant("who is forgotten is not told of", [(JoinedRows, "_note_gone", _no_note)]),
        Mutant("nothing wakes", [(RowsInTime, "wake", _asleep)]),
        Mutant("rows on disk get wrong key groups", [(row_codec, "key_groups_of", _groups_of_nobody)]),
    ],
    ids=lambda mutant: mutant.title,
)
def test_a_wrong_join_in_rocksdb_is_found(mutant: Mutant) -> None:
    with tight_rocksdb(rows_in_memory=1) as state:
        assert is_right(state)
        with mutated(mutant):
            assert not is_right(state)
