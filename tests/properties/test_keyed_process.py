"""A KeyedProcess with every kind of state and timers against dictionaries, restored at any parallelism."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from onceflow.runtime.operators.declared import SideOutput
from onceflow.runtime.operators.processing.keyed_process import Ctx, KeyedProcess
from onceflow.runtime.operators.processing.process import ProcessConfig, ProcessOperator
from onceflow.runtime.records import WATERMARK_MIN_MS, Indices
from onceflow.runtime.state.handles import ListState, MapState, ValueState
from onceflow.runtime.state.overflow import UNLIMITED, StateBackend
from onceflow.runtime.state.row_values import RowValues
from onceflow.runtime.state.timers import KeyTimers, Timer
from onceflow.runtime.testing.harness import OperatorHarness
from onceflow.runtime.testing.mutation import Mutant, mutated
from onceflow.runtime.testing.tight_state import INCREMENTAL, tight_rocksdb
from onceflow.runtime.types.columns_of_records import RecordWriter, batch_from_records
from onceflow.runtime.types.record_types import arrow_schema
from onceflow.runtime.types.records_of_columns import RecordReader


class Op(NamedTuple):
    user: str
    shard: int
    kind: str
    argument: int
    ts: int


@dataclass(frozen=True, slots=True)
class Seen:
    user: str
    shard: int
    at: int
    what: str
    value: int | None
    entries: list[str]
    items: list[str]
    late: bool


class Remember(KeyedProcess[object, Op, Seen]):
    value = ValueState("value", int)
    entries = MapState("entries", str, int)
    items = ListState("items", str)
    big = SideOutput("big", Seen)

    def process(self, op: Op, ctx: Ctx) -> Iterator[Seen]:
        n = op.argument
        match op.kind:
            case "add":
                self.value.set((self.value.get() or 0) + n)
            case "forget":
                self.value.clear()
                self.entries.clear()
                self.items.clear()
            case "put":
                self.entries.put(f"k{n % 3}", n)
            case "remove":
                self.entries.remove(f"k{n % 3}")
            case "append":
                self.items.add(f"i{n}")
            case "timer":
                ctx.timers.event_time(op.ts + n)
            case "untimer":
                ctx.timers.delete_event_time(op.ts + n)
        if n > 15:
            ctx.emit(self.big, self.seen("big", ctx))
        if op.kind == "show":
            yield self.seen("show", ctx)
            yield self.seen("again", ctx)

    def on_timer(self, fired: Timer, ctx: Ctx) -> Iterator[Seen]:
        self.value.set((self.value.get() or 0) + 1)
        if fired.time % 7 == 0:
            ctx.timers.event_time(fired.time + 3)
        yield self.seen("timer", ctx)

    def seen(self, what: str, ctx: Ctx) -> Seen:
        assert ctx.event_time is not None
        entries = [f"{k}={v}" for k, v in sorted(self.entries.items())]
        return Seen(*ctx.key, ctx.event_time, what, self.value.get(), entries, self.items.get(), ctx.is_late)


@dataclass
class OfKey:
    value: int | None = None
    entries: dict[str, int] = field(default_factory=dict)
    items: list[str] = field(default_factory=list)
    timers: set[int] = field(default_factory=set)


class Model:
    """The same in dictionaries."""

    def __init__(self) -> None:
        self.keys: dict[tuple[str, int], OfKey] = defaultdict(OfKey)
        self.watermark = WATERMARK_MIN_MS
        self.seen: dict[tuple[str, int], list[Seen]] = defaultdict(list)
        self.big: dict[tuple[str, int], list[Seen]] = defaultdict(list)
        self.late_rows = 0

    def process(self, op: Op) -> None:
        key, n = (op.user, op.shard), op.argument
        of_key = self.keys[key]
        self.late_rows += op.ts <= self.watermark
        if op.kind == "add":
            of_key.value = (of_key.value or 0) + n
        elif op.kind == "forget":
            of_key.value, of_key.entries, of_key.items = None, {}, []
        elif op.kind == "put":
            of_key.entries[f"k{n % 3}"] = n
        elif op.kind == "remove":
            of_key.entries.pop(f"k{n % 3}", None)
        elif op.kind == "append":
            of_key.items.append(f"i{n}")
        elif op.kind == "timer":
            of_key.timers.add(op.ts + n)
        elif op.kind == "untimer":
            of_key.timers.discard(op.ts + n)
        if n > 15:
            self.big[key].append(self._seen("big", key, op.ts))
        if op.kind == "show":
            self.seen[key] += [self._seen("show", key, op.ts), self._seen("again", key, op.ts)]

    def advance(self, time_ms: int) -> None:
        self.watermark = max(self.watermark, time_ms)
        while due := [(t, k) for k, of_key in self.keys.items() for t in of_key.timers if t <= time_ms]:
            time, key = min(due)
            of_key = self.keys[key]
            of_key.timers.remove(time)
            of_key.value = (of_key.value or 0) + 1
            if time % 7 == 0:
                of_key.timers.add(time + 3)
            self.seen[key].append(self._seen("timer", key, time))

    def _seen(self, what: str, key: tuple[str, int], at: int) -> Seen:
        k = self.keys[key]
        entries = [f"{name}={v}" for name, v in sorted(k.entries.items())]
        return Seen(*key, at, what, k.value, entries, list(k.items), at <= self.watermark)


Program = list[list[Op] | int | tuple[str, int]]
KINDS = ["add", "forget", "put", "remove", "append", "timer", "untimer", "show"]
ops = st.builds(
    Op,
    user=st.sampled_from(["a", "b", "c", "ü", ""]),
    shard=st.integers(0, 1),
    kind=st.sampled_from(KINDS),
    argument=st.integers(0, 20),
    ts=st.integers(0, 60),
)
moves = st.one_of(
    st.lists(ops, min_size=1, max_size=12),
    st.integers(0, 70),
    st.tuples(st.just("restore"), st.integers(1, 5)),
)


def create() -> ProcessOperator:
    return ProcessOperator(
        ProcessConfig(
            "remember",
            Remember(),
            ("user", "shard"),
            arrow_schema(Op),
            RecordWriter(arrow_schema(Seen)),
            RecordReader(Op),
            has_event_time=True,
        )
    )


@settings(max_examples=150, deadline=None)
@given(st.lists(moves, max_size=14))
def test_process_agrees_with_dictionaries(program: Program) -> None:
    check_against_dictionaries(program, UNLIMITED)


@settings(max_examples=40, deadline=None)
@given(st.lists(moves, max_size=14))
def test_process_with_snapshots_that_build_on_each_other_agrees_with_dictionaries(program: Program) -> None:
    check_against_dictionaries(program, INCREMENTAL)


def not_noted(self: ProcessOperator, rows: Indices) -> list[Any]:
    """The next snapshot does not know that a timer has fired, and what it did."""
    return self._keys(self._memory.table.keys(rows))


def test_a_timer_that_is_not_noted_is_found() -> None:
    mutant = Mutant("timers are not noted", [(ProcessOperator, "_keys_to_fire", not_noted)])
    program: Any = [[Op("a", 0, "timer", 50, 10)], 100, ("restore", 1)]
    check_against_dictionaries(program, INCREMENTAL)
    with mutated(mutant), pytest.raises(AssertionError):
        check_against_dictionaries(program, INCREMENTAL)


@settings(max_examples=12, deadline=None)
@given(st.lists(moves, max_size=14))
def test_process_with_its_state_in_rocksdb_agrees_with_dictionaries(program: Program) -> None:
    with tight_rocksdb() as state:
        check_against_dictionaries(program, state)


def check_against_dictionaries(program: Program, state: StateBackend) -> None:
    model = Model()
    harness = OperatorHarness(create, ["user", "shard"], max_parallelism=8, state=state)
    seen: list[Seen] = []
    big: list[Seen] = []
    late_rows = 0
    for move in [*program, 200]:
        if isinstance(move, int):
            if move < model.watermark:  # watermarks never go back
                continue
            harness.advance(move)
            model.advance(move)
        elif isinstance(move, list):
            batch = batch_from_records(move, arrow_schema(Op))
            harness.push(batch, [op.ts for op in move])
            for op in move:
                model.process(op)
        else:
            states = harness.snapshot()
            harness.close()
            late_rows += harness.late_rows
            harness = OperatorHarness(
                create, ["user", "shard"], move[1], max_parallelism=8, states=states, state=state
            )
            continue
        seen += [Seen(**row) for row in harness.rows()]
        big += [Seen(**row) for row in harness.rows("big")]
        check_event_times(harness)
        harness.out.emitted.clear()
    harness.close()
    assert by_key(seen) == {k: v for k, v in model.seen.items() if v}
    assert by_key(big) == {k: v for k, v in model.big.items() if v}
    assert late_rows + harness.late_rows == model.late_rows


def check_event_times(harness: OperatorHarness) -> None:
    for _, records in harness.out.emitted:
        assert records.event_time is not None
        assert records.event_time.tolist() == records.batch.column("at").to_pylist()


def by_key(seen: list[Seen]) -> dict[tuple[str, int], list[Seen]]:
    found: dict[tuple[str, int], list[Seen]] = defaultdict(list)
    for one in seen:
        found[one.user, one.shard].append(one)
    return dict(found)


def test_a_snapshot_is_not_changed_by_what_comes_after() -> None:
    harness = OperatorHarness(create, ["user", "shard"])
    push = [Op("a", 0, kind, 1, 10) for kind in ("add", "put", "append")] + [Op("a", 0, "timer", 50, 10)]
    harness.push(batch_from_records(push, arrow_schema(Op)), [10] * 4)
    frozen = harness.subtasks[0].snapshot()  # its tables are not made yet
    assert frozen is not None
    later = [Op("a", 0, kind, 2, 10) for kind in ("add", "put", "append", "timer")]
    harness.push(batch_from_records(later, arrow_schema(Op)), [10] * 4)
    row = frozen.tables["keys"].piece(0, 1).to_pylist()[0]
    assert row["key"] == {"user": "a", "shard": 0}
    assert row["state"] == {"value": 1, "entries": [{"key": "k1", "value": 1}], "items": ["i1"]}
    assert row["timers"] == [60]


def _shared_value(self: RowValues, row: int) -> Any:
    return self.values[row]


def _shared_times(self: KeyTimers, row: int) -> set[int]:
    times = self._times[row] = self._times[row] or set()
    return times


@pytest.mark.parametrize(
    "mutant",
    [
        Mutant("lists and maps are changed in the snapshot, too", [(RowValues, "own", _shared_value)]),
        Mutant("timers are changed in the snapshot, too", [(KeyTimers, "_own", _shared_times)]),
    ],
    ids=lambda mutant: mutant.title,
)
def test_a_snapshot_that_shares_what_changes_is_found(mutant: Mutant) -> None:
    with mutated(mutant), pytest.raises(AssertionError):
        test_a_snapshot_is_not_changed_by_what_comes_after()


def test_a_barrier_looks_only_at_keys_that_have_changed() -> None:
    harness = OperatorHarness(create, ["user", "shard"])
    many = [Op(f"u{n}", 0, "add", 1, 10) for n in range(3_000)]
    harness.push(batch_from_records(many, arrow_schema(Op)), [10] * len(many))
    harness.push(batch_from_records([Op("u7", 0, "timer", 5, 10)], arrow_schema(Op)), [10])
    harness.snapshot()
    [operator] = harness.subtasks
    assert isinstance(operator, ProcessOperator)
    assert operator._memory.table.take_changed().tolist() == []
    harness.push(batch_from_records(many[20:22], arrow_schema(Op)), [10] * 2)
    harness.advance(15)
    assert operator._memory.table.take_changed().tolist() == [7, 20, 21], "two records and a timer"


def test_keys_that_remember_nothing_are_let_go() -> None:
    harness = OperatorHarness(create, ["user", "shard"])
    many = [Op(f"u{n}", 0, "add", 1, 10) for n in range(3_000)]
    harness.push(batch_from_records(many, arrow_schema(Op)), [10] * len(many))
    harness.push(batch_from_records([Op("stays", 0, "timer", 5, 10)], arrow_schema(Op)), [10])
    gone = [op._replace(kind="forget") for op in many[10:]]
    harness.push(batch_from_records(gone, arrow_schema(Op)), [10] * len(gone))
    (state,) = harness.snapshot()
    assert sum(piece.num_rows for piece in state.batches("keys")) == 11
    shown = [Op("u5", 0, "show", 0, 11), Op("u2000", 0, "show", 0, 11), Op("stays", 0, "show", 0, 11)]
    harness.push(batch_from_records(shown, arrow_schema(Op)), [11] * 3)
    harness.advance(15)
    found = [(row["user"], row["what"], row["value"]) for row in harness.rows() if row["what"] != "again"]
    assert found == [
        ("u5", "show", 1),
        ("u2000", "show", None),
        ("stays", "show", None),
        ("stays", "timer", 1),
    ]


def test_timers_fire_in_order_of_time_whoever_registers_them() -> None:
    harness = OperatorHarness(create, ["user", "shard"])
    registered = [Op("a", 0, "timer", t, 0) for t in (7, 9, 11, 12)]  # the one at 7 registers one at 10
    harness.push(batch_from_records(registered, arrow_schema(Op)), [0] * 4)
    harness.advance(12)
    assert [row["at"] for row in harness.rows()] == [7, 9, 10, 11, 12]


def test_lateness_is_known_across_a_restore() -> None:
    harness = OperatorHarness(create, ["user", "shard"])
    harness.advance(100)
    harness = OperatorHarness(create, ["user", "shard"], parallelism=2, states=harness.snapshot())
    harness.advance(20)  # the sources begin again behind
    harness.push(batch_from_records([Op("a", 0, "show", 0, 50)], arrow_schema(Op)), [50])
    assert [row["late"] for row in harness.rows()] == [True, True]
    assert harness.late_rows == 1


def test_the_snapshot_is_readable_without_the_code() -> None:
    harness = OperatorHarness(create, ["user", "shard"])
    harness.push(batch_from_records([Op("a", 0, "add", 4, 10)], arrow_schema(Op)), [10])
    (state,) = harness.snapshot()
    [table] = state.batches("keys")
    assert table.schema.names == ["key_group", "key", "state", "timers"]
    assert table.schema.field("key_group").type == pa.uint16()
    assert table.schema.field("state").type.field("value").type == pa.int64()
