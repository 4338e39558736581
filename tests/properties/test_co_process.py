"""A KeyedCoProcess against dictionaries: both sides of a key see one state, at any parallelism."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from typing import Any, NamedTuple

import pyarrow as pa
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from onceflow.runtime.operators.processing.keyed_process import Ctx, KeyedCoProcess
from onceflow.runtime.operators.processing.process import ProcessConfig, ProcessOperator
from onceflow.runtime.operators.two_keys import RightInput
from onceflow.runtime.records import WATERMARK_MIN_MS
from onceflow.runtime.state.handles import ListState
from onceflow.runtime.state.increments import Increments
from onceflow.runtime.state.overflow import UNLIMITED, StateBackend
from onceflow.runtime.state.timers import Timer
from onceflow.runtime.testing.harness import OperatorHarness
from onceflow.runtime.testing.mutation import Mutant, mutated
from onceflow.runtime.testing.tight_state import INCREMENTAL, tight_rocksdb
from onceflow.runtime.types.columns_of_records import RecordWriter, batch_from_records
from onceflow.runtime.types.record_types import arrow_schema
from onceflow.runtime.types.records_of_columns import RecordReader


class Left(NamedTuple):
    user: str
    ts: int


class Right(NamedTuple):
    account: str
    wait: int
    ts: int


class Seen(NamedTuple):
    user: str
    what: str
    at: int
    kept: list[str]


class Both(KeyedCoProcess[str, Left, Right, Seen]):
    """The left side remembers, the right one sets timers and forgets."""

    kept = ListState("kept", str)

    def process_left(self, record: Left, ctx: Ctx) -> Iterator[Seen]:
        self.kept.add(f"l{record.ts}")
        yield Seen(ctx.key, "left", record.ts, self.kept.get())

    def process_right(self, record: Right, ctx: Ctx) -> Iterator[Seen]:
        if record.wait == 0:
            self.kept.clear()
        else:
            self.kept.add(f"r{record.ts}")
            ctx.timers.event_time(record.ts + record.wait)
        yield Seen(ctx.key, "right", record.ts, self.kept.get())

    def on_timer(self, fired: Timer, ctx: Ctx) -> Iterator[Seen]:
        yield Seen(ctx.key, "timer", fired.time, self.kept.get())


USERS = st.sampled_from(["a", "b", "c", "ü", ""])
LEFT = st.builds(Left, USERS, st.integers(0, 60))
RIGHT = st.builds(Right, USERS, st.integers(0, 20), st.integers(0, 60))
MOVES = st.one_of(
    st.lists(LEFT, min_size=1, max_size=8),
    st.lists(RIGHT, min_size=1, max_size=8),
    st.integers(0, 70),
    st.tuples(st.just("restore"), st.integers(1, 4)),
)


def create() -> ProcessOperator:
    return ProcessConfig(
        "both",
        Both(),
        ("user",),
        arrow_schema(Left),
        RecordWriter(arrow_schema(Seen)),
        RecordReader(Left),
        has_event_time=True,
        right=RightInput(("account",), arrow_schema(Right), RecordReader(Right)),
    ).create()


class Model:
    def __init__(self) -> None:
        self.kept: dict[str, list[str]] = defaultdict(list)
        self.timers: dict[str, set[int]] = defaultdict(set)
        self.seen: dict[str, list[Seen]] = defaultdict(list)

    def left(self, row: Left) -> None:
        self.kept[row.user].append(f"l{row.ts}")
        self.note(row.user, "left", row.ts)

    def right(self, row: Right) -> None:
        if row.wait == 0:
            self.kept[row.account].clear()
        else:
            self.kept[row.account].append(f"r{row.ts}")
            self.timers[row.account].add(row.ts + row.wait)
        self.note(row.account, "right", row.ts)

    def advance(self, time_ms: int) -> None:
        for user, times in self.timers.items():
            for time in sorted(time for time in times if time <= time_ms):
                times.remove(time)
                self.note(user, "timer", time)

    def note(self, user: str, what: str, at: int) -> None:
        self.seen[user].append(Seen(user, what, at, list(self.kept[user])))


def check(program: list[Any], state: StateBackend) -> None:
    model = Model()
    seen: dict[str, list[Seen]] = defaultdict(list)
    harness = OperatorHarness(create, ["user"], right_keys=["account"], max_parallelism=8, state=state)
    watermark = WATERMARK_MIN_MS
    for move in [*program, 100]:
        if isinstance(move, int):
            watermark = max(watermark, move)
            harness.advance(watermark)
            model.advance(watermark)
        elif isinstance(move, tuple):
            states = harness.snapshot()
            its = UNLIMITED if move[1] == 3 else state  # a savepoint may go to the other backend
            harness = OperatorHarness(create, ["user"], move[1], 8, states, right_keys=["account"], state=its)
            harness.advance(watermark)
            model.advance(watermark)
        else:
            times = [row.ts for row in move]
            if isinstance(move[0], Left):
                harness.push(batch_from_records(move, arrow_schema(Left)), times)
            else:
                harness.push_right(batch_from_records(move, arrow_schema(Right)), times)
            for row in move:
                model.left(row) if isinstance(row, Left) else model.right(row)
        for row in harness.rows():
            seen[row["user"]].append(Seen(**row))
        harness.out.emitted.clear()
    assert dict(seen) == dict(model.seen)


OFTEN: list[Any] = [
    [Left("a", 1), Left("b", 2), Left("c", 3), Left("ü", 4)],
    ("restore", 2),
    [Right("a", 20, 5), Right("b", 9, 6)],
    ("restore", 1),
    [Left("c", 7)],
    ("restore", 4),
    [Right("c", 0, 8)],
    20,
    ("restore", 2),
]


@settings(max_examples=60, deadline=None)
@given(st.lists(MOVES, max_size=14))
def test_both_sides_of_a_key_see_one_state(program: list[Any]) -> None:
    check(program, UNLIMITED)


@settings(max_examples=30, deadline=None)
@example(OFTEN)
@given(st.lists(MOVES, max_size=14))
def test_so_do_those_whose_snapshots_build_on_each_other(program: list[Any]) -> None:
    check(program, INCREMENTAL)


@settings(max_examples=30, deadline=None)
@example(OFTEN)
@given(st.lists(MOVES, max_size=14))
def test_so_do_those_of_keys_in_rocksdb(program: list[Any]) -> None:
    with tight_rocksdb(rows_in_memory=1) as state:
        check(program, state)


def no_note(self: Increments, *_: Any) -> None:
    """What has changed since the last snapshot is in no increment."""


def test_an_increment_without_what_has_changed_is_found() -> None:
    with mutated(Mutant("nothing is noted", [(Increments, "note", no_note)])), pytest.raises(AssertionError):
        check(OFTEN, INCREMENTAL)


def test_the_snapshot_has_the_key_under_the_name_of_the_left_side() -> None:
    harness = OperatorHarness(create, ["user"], right_keys=["account"])
    harness.push_right(batch_from_records([Right("a", 5, 1)], arrow_schema(Right)), [1])
    (state,) = harness.snapshot()
    [table] = state.batches("keys")
    assert table.schema.field("key").type == pa.struct([pa.field("user", pa.string(), nullable=False)])
    assert table.column("key").to_pylist() == [{"user": "a"}]
