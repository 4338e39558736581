"""Temporal joins against a list of versions: disorder, late versions, deletes, firing in pieces, and restores
at another parallelism and in the other backend."""

from __future__ import annotations

from collections import Counter
from typing import Any, NamedTuple

import numpy as np
import polars as pl
import pyarrow as pa
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from onceflow.runtime.errors import Retryable
from onceflow.runtime.operators.joins import frozen_sides, temporal_join
from onceflow.runtime.operators.joins.joined_columns import LATE_SIDES, Gatherer, JoinedColumns
from onceflow.runtime.operators.joins.rows_in_time import RowsInTime
from onceflow.runtime.operators.joins.temporal_join import TemporalJoin, TemporalJoinOperator
from onceflow.runtime.operators.joins.versions import Versions
from onceflow.runtime.records import WATERMARK_MAX_MS, WATERMARK_MIN_MS
from onceflow.runtime.state.increments import Increments
from onceflow.runtime.state.overflow import UNLIMITED, StateBackend
from onceflow.runtime.state.rocks import row_codec
from onceflow.runtime.state.rocks.rocks_groups import RocksGroups
from onceflow.runtime.testing.harness import OperatorHarness
from onceflow.runtime.testing.mutation import Mutant, mutated
from onceflow.runtime.testing.tight_state import INCREMENTAL, tight_rocksdb

LEFT = pa.schema([("id", pa.string()), ("n", pa.int64())])
RIGHT = pa.schema([("price", pa.int64()), ("ref", pa.string())])
KEYS = (("id",), ("ref",))
DELETES_KEPT_MS = 9


class Row(NamedTuple):
    id: str | None
    ts: int
    n: int | None


def config(how: str) -> TemporalJoin:
    """`how`: inner or left, with "where" behind it: for a condition on both sides."""
    kind, _, where = how.partition(" ")
    columns = JoinedColumns("j", KEYS, kind)
    passes = columns.passes(LEFT, RIGHT)
    condition = pl.col("n") > pl.col("price") if where else None
    deleted = pl.col("price").is_null()
    return TemporalJoin(columns, (LEFT, RIGHT), passes, deleted, True, condition, DELETES_KEPT_MS)


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
                if is_late:
                    self.forget(row.id, watermark)
                self.versions.append(row)
            elif not is_late:
                self.waiting.append(row)

    def forget(self, key: str | None, watermark: int) -> None:
        """A delete that is long ago, and all before it, counts no more for a late version."""
        before = [(v.ts, n) for n, v in enumerate(self.versions) if v.id == key and v.ts <= watermark]
        last, number = max(before, default=(watermark, -1))
        if number >= 0 and self.versions[number].n is None and last <= watermark - DELETES_KEPT_MS:
            self.versions = [v for v in self.versions if v.id != key or v.ts > watermark]

    def advance(self, watermark: int) -> None:
        for row in [row for row in self.waiting if row.ts <= watermark]:
            before = [v for v in self.versions if v.id == row.id and v.ts <= row.ts and row.id is not None]
            version = max(enumerate(before), key=lambda v: (v[1].ts, v[0]), default=(0, None))[1]
            price = None if version is None else version.n
            if self.how.endswith("where") and (price is None or row.n is None or row.n <= price):
                price = None
            if price is not None or self.how.startswith("left"):
                self.out[row.id, row.n, price, row.ts] += 1
        self.waiting = [row for row in self.waiting if row.ts > watermark]


def batch_of(side: int, rows: list[Row]) -> pa.RecordBatch:
    if side == 0:
        return pa.RecordBatch.from_pylist([{"id": r.id, "n": r.n} for r in rows], LEFT)
    return pa.RecordBatch.from_pylist([{"price": r.n, "ref": r.id} for r in rows], RIGHT)


class Play:
    def __init__(self, how: str, state: StateBackend) -> None:
        self.how, self.state = how, state
        self.naive = Naive(how)
        self.harness = self.make(2)
        self.watermark = self.passed_on = WATERMARK_MIN_MS
        self.out: Counter[tuple[Any, ...]] = Counter()
        self.late = [0, 0]

    def make(self, parallelism: int, states: Any = None) -> OperatorHarness:
        create = config(self.how).create
        state = UNLIMITED if parallelism == 3 else self.state  # a savepoint may go to the other backend
        return OperatorHarness(create, ["id"], parallelism, 8, states, right_keys=["ref"], state=state)

    def push(self, side: int, rows: list[Row]) -> None:
        self.naive.push(side, rows, self.watermark)
        push = self.harness.push if side == 0 else self.harness.push_right
        push(batch_of(side, rows), [row.ts for row in rows])
        self.collect()

    def begin(self, time_ms: int, rows_max: int) -> None:
        """A piece of what a watermark makes due."""
        self.go_on()
        self.watermark = max(self.watermark, time_ms)
        self.naive.advance(self.watermark)
        self.harness.begin(self.watermark)
        self.harness.fire(rows_max)
        self.collect()

    def go_on(self) -> None:
        while self.harness.fire(2):
            pass
        self.collect()
        self.passed_on = self.watermark

    def restore(self, parallelism: int) -> None:
        self.harness = self.make(parallelism, self.harness.snapshot())
        self.harness.begin(self.watermark)

    def collect(self) -> None:
        for tag, records in self.harness.out.emitted:
            assert records.event_time is not None
            if tag in LATE_SIDES:
                self.late[LATE_SIDES.index(tag)] += len(records)
                continue
            assert min(records.event_time.tolist()) > self.passed_on, "it is late for who comes behind"
            for row, time in zip(records.batch.to_pylist(), records.event_time.tolist(), strict=True):
                self.out[*row.values(), time] += 1
        self.harness.out.emitted.clear()


def play(how: str, moves: list[tuple[str, Any]], state: StateBackend = UNLIMITED) -> Play:
    run = Play(how, state)
    for kind, value in moves:
        if kind == "restore":
            run.restore(value)
        elif kind == "watermark":
            run.begin(*value)
            if value[1] > 3:
                run.go_on()
        else:
            run.push(0 if kind == "left" else 1, value)
    run.begin(WATERMARK_MAX_MS, 1)
    run.go_on()
    return run


def check(run: Play) -> None:
    assert run.out == run.naive.out
    assert run.late == run.naive.late
    for operator in run.harness.subtasks:
        assert isinstance(operator, TemporalJoinOperator)
        assert len(operator._left) == 0, "nothing waits for ever"


ROW = st.builds(
    Row, st.sampled_from(["a", "b", "ü", "", None]), st.integers(-20, 50), st.none() | st.integers(0, 3)
)
MOVE = st.one_of(
    st.tuples(st.just("left"), st.lists(ROW, min_size=1, max_size=9)),
    st.tuples(st.just("right"), st.lists(ROW, min_size=1, max_size=9)),
    st.tuples(st.just("watermark"), st.tuples(st.integers(-30, 60), st.integers(1, 6))),
    st.tuples(st.just("restore"), st.integers(1, 4)),
)


BUSY: list[tuple[str, Any]] = [
    ("right", [Row("a", 0, 1), Row("a", 10, 2), Row("c", 1, 1), Row("c", 2, None)]),
    ("left", [Row("a", 12, 0), Row("a", 25, 0), Row("e", 3, 7), Row("e", 30, 7)]),
    ("right", [Row("a", 20, 3), Row("b", 5, 1), Row("e", 2, 8), Row("e", 25, 9)]),
    ("watermark", (22, 2)),
    ("restore", 3),
    ("right", [Row("a", 24, 4)]),
    ("right", [Row("a", 1, 3), Row("c", 1, 3), Row("b", 6, None), Row("b", 4, 2), Row("b", 20, 2)]),
    ("left", [Row("b", 24, 5), Row("c", 29, 5)]),
    ("watermark", (26, 1)),
    ("restore", 1),
    ("right", [Row("d", n, n) for n in range(20, 40)]),
    ("right", [Row("a", 27, 2), Row("a", 27, 1), Row("b", 27, None)]),
    ("left", [Row("d", n, 1) for n in range(27, 50, 4)] + [Row("b", 35, 5), Row("c", 36, 5)]),
    ("watermark", (28, 9)),
    ("right", [Row("b", 26, 3)]),
    ("restore", 2),
    ("watermark", (34, 1)),
    ("right", [Row("c", 20, None), Row("c", 19, 3)]),
    ("left", [Row("a", 40, 5), Row("c", 41, 5), Row("b", 42, 5)]),
    ("restore", 4),
    ("watermark", (38, 9)),
    ("right", [Row("b", 26, 4)]),
]
ONE_OF_MANY: list[tuple[str, Any]] = [
    ("right", [Row(f"k{n}", 1, n) for n in range(100)]),
    ("left", [Row("k5", 2, 0), *(Row(f"k{n}", 50, 0) for n in range(100))]),
    ("watermark", (10, 9)),
    ("restore", 1),
    ("right", [Row("k7", 20, None)]),
    ("watermark", (60, 9)),
    ("restore", 1),
    ("right", [Row("k7", 19, 3)]),
    ("left", [Row("k7", 70, 0)]),
]
"""There are so many keys that one which has changed is written without the others."""
HOW = st.sampled_from(["inner", "left", "inner where", "left where"])


@settings(max_examples=80, deadline=None)
@given(HOW, st.lists(MOVE, max_size=16))
@example("left", BUSY)
@example("left where", BUSY)
@example("inner where", BUSY)
def test_a_row_meets_the_version_of_its_time(how: str, moves: list[tuple[str, Any]]) -> None:
    check(play(how, moves))


@settings(max_examples=40, deadline=None)
@given(HOW, st.lists(MOVE, max_size=16))
@example("left", BUSY)
def test_so_does_one_of_a_join_whose_snapshots_build_on_each_other(
    how: str, moves: list[tuple[str, Any]]
) -> None:
    check(play(how, moves, INCREMENTAL))


@settings(max_examples=20, deadline=None)
@given(HOW, st.lists(MOVE, max_size=16))
@example("left", BUSY)
@example("inner", BUSY)
def test_so_does_one_of_a_join_in_rocksdb(how: str, moves: list[tuple[str, Any]]) -> None:
    with tight_rocksdb(rows_in_memory=1) as state:
        check(play(how, moves, state))


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
    operator._right.forget(6_000, is_asked=True)
    assert len(operator._right) == 49


def rows_on_disk(run: Play) -> int:
    """What RocksDB itself has, whatever is known of it."""
    overflows = [op._rows._overflow for op in run.harness.subtasks if isinstance(op, TemporalJoinOperator)]
    return sum(len(list(each._database.freeze())) for each in overflows if isinstance(each, RocksGroups))


def test_of_a_key_that_is_gone_nothing_stays_on_disk() -> None:
    def run(state: StateBackend) -> int:
        play = Play("left", state)
        for first in range(0, 600, 20):
            play.push(1, [Row(f"k{n}", n, n % 3 or None) for n in range(first, first + 20)])
            play.push(1, [Row(f"k{n}", first + 5, None) for n in range(first - 20, first)])
            play.push(0, [Row(f"k{n}", first + 3, 1) for n in range(first - 20, first)])
            play.begin(first, 1_000)
            play.go_on()
        assert play.out == play.naive.out
        return rows_on_disk(play)

    with tight_rocksdb(rows_in_memory=20) as state:
        assert 0 < run(state) < 100
        with mutated(Mutant("nothing wakes", [(RowsInTime, "wake", _asleep)])), pytest.raises(AssertionError):
            run(state)


# --- What a wrong join would do ---


def _first_found(self: Versions, row: Any, time: Any) -> Any:
    runs, self.runs = self.runs, self.runs[:1]
    try:
        return _at(self, row, time)
    finally:
        self.runs = runs


def _at_any_time(self: Versions, row: Any, time: Any) -> Any:
    return _at(self, row, np.full(len(time), 1 << 60))


def _no_turns(row: Any, marks: Any) -> Any:
    return np.zeros(len(row), np.int64)


def _lets_go_at_once(self: Versions, watermark_ms: int, is_asked: bool = False) -> None:
    kept, self._deletes_kept_ms = self._deletes_kept_ms, 0
    _forget(self, watermark_ms, is_asked=True)
    self._deletes_kept_ms = kept


def _keeps_deletes(self: Versions, watermark_ms: int, is_asked: bool = False) -> None:
    pass


def _before_its_time(self: Versions, row: Any, time: Any) -> Any:
    return _at(self, row, time - 1)


_at, _forget = Versions.at, Versions.forget


def _groups_of_nobody(hashes: Any, max_parallelism: int) -> Any:
    return _key_groups_of(~hashes, max_parallelism)


_key_groups_of = frozen_sides.key_groups_of


def _holds_for_all(self: Gatherer, *_: Any) -> None:
    return None


def is_right(state: StateBackend) -> bool:
    try:
        check(play("left", BUSY, state))
        check(play("left where", BUSY, state))
        check(play("left", ONE_OF_MANY, state))
    except (AssertionError, Retryable):
        return False
    return True


@pytest.mark.parametrize(
    "mutant",
    [
        Mutant("only the first run is asked", [(Versions, "at", _first_found)]),
        Mutant("the latest version of all", [(Versions, "at", _at_any_time)]),
        Mutant("the version before its time", [(Versions, "at", _before_its_time)]),
        Mutant("the condition is not asked", [(Gatherer, "holds", _holds_for_all)]),
        Mutant("deletes are let go of at once", [(Versions, "forget", _lets_go_at_once)]),
        Mutant("deletes count for ever", [(Versions, "forget", _keeps_deletes)]),
        Mutant("a delete of a batch counts for it", [(temporal_join, "turns_behind", _no_turns)]),
        Mutant("rows get wrong key groups", [(frozen_sides, "key_groups_of", _groups_of_nobody)]),
    ],
    ids=lambda mutant: mutant.title,
)
def test_a_wrong_temporal_join_is_found(mutant: Mutant) -> None:
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
        Mutant("nothing wakes", [(RowsInTime, "wake", _asleep)]),
        Mutant("rows on disk get wrong key groups", [(row_codec, "key_groups_of", _groups_of_nobody)]),
    ],
    ids=lambda mutant: mutant.title,
)
def test_a_wrong_temporal_join_in_rocksdb_is_found(mutant: Mutant) -> None:
    with tight_rocksdb(rows_in_memory=1) as state:
        assert is_right(state)
        with mutated(mutant):
            assert not is_right(state)
