"""State with a TTL against dictionaries with times: disorder, batches, pieces of firing, restores."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from hypothesis import example, given, settings
from hypothesis import strategies as st

from onceflow.runtime.clock import ManualClock
from onceflow.runtime.operators.processing.keyed_process import Ctx, KeyedProcess
from onceflow.runtime.operators.processing.process import ProcessConfig, ProcessOperator
from onceflow.runtime.records import WATERMARK_MIN_MS
from onceflow.runtime.state.declared_state import State
from onceflow.runtime.state.handles import ListState, MapState, ValueState
from onceflow.runtime.state.overflow import UNLIMITED, StateBackend
from onceflow.runtime.state.timers import Timer
from onceflow.runtime.testing.harness import OperatorHarness
from onceflow.runtime.testing.tight_state import tight_rocksdb
from onceflow.runtime.types.columns_of_records import RecordWriter, batch_from_records
from onceflow.runtime.types.record_types import arrow_schema
from onceflow.runtime.types.records_of_columns import RecordReader

TTL_MS = 20


class Op(NamedTuple):
    user: str
    kind: str
    state: str
    argument: int
    ts: int


@dataclass(frozen=True, slots=True)
class Seen:
    user: str
    at: int
    values: list[str]


class Remember(KeyedProcess[str, Op, Seen]):
    value = ValueState("value", int, ttl=TTL_MS)
    value_read = ValueState("value_read", int, ttl=TTL_MS, ttl_refresh="read")
    value_clock = ValueState("value_clock", int, ttl=TTL_MS, ttl_time="processing")
    entries = MapState("entries", int, int, ttl=TTL_MS)
    entries_read = MapState("entries_read", int, int, ttl=TTL_MS, ttl_refresh="read")
    items = ListState("items", int, ttl=TTL_MS)
    items_read = ListState("items_read", int, ttl=TTL_MS, ttl_refresh="read")
    lasting = ValueState("lasting", int)

    def process(self, op: Op, ctx: Ctx) -> Iterator[Seen]:
        if op.kind == "timer":
            ctx.timers.event_time(max(op.ts, ctx.watermark) + 1 + op.argument)
        elif op.kind == "show":
            yield self.seen(ctx)
        else:
            act(getattr(self, op.state), op)

    def on_timer(self, fired: Timer, ctx: Ctx) -> Iterator[Seen]:
        yield self.seen(ctx)
        self.items.add(fired.time)

    def seen(self, ctx: Ctx) -> Seen:
        assert ctx.event_time is not None
        return Seen(ctx.key, ctx.event_time, [f"{name}={shown(getattr(self, name))}" for name in STATES])


STATES = [name for name, state in vars(Remember).items() if isinstance(state, State)]


def act(state: Any, op: Op) -> None:
    n, of = op.argument, op.argument % 3
    match op.kind, state:
        case "write", ValueState():
            state.set(n)
        case "write", MapState():
            state.put(of, n)
        case "write", ListState():
            state.add(n)
        case "read", MapState():
            state.get(of)
        case "read", _:
            state.get()
        case "forget", MapState() if n:
            state.remove(of)
        case "forget", ListState() if n:
            state.update([n, n + 1])
        case "forget", _:
            state.clear()


def shown(state: Any) -> Any:
    """What a state holds; which is a read of all of it."""
    if isinstance(state, MapState):
        assert len(state) == len(state.keys())
        assert state.is_empty() == (not state.values())
        return sorted(state.items())
    return state.get()


# --- The model ----------------------------------------------------------------------------------------


@dataclass
class Cell:
    """What one state of one key holds: (name, value, when it expires), the last in the order of its lists."""

    is_read: bool
    lasts: bool
    held: list[tuple[int, int, float]] = field(default_factory=list)

    def alive(self, now: int) -> list[tuple[int, int, float]]:
        return [held for held in self.held if now < held[2]]

    def until(self, now: int) -> float:
        return float("inf") if self.lasts else now + TTL_MS

    def put(self, name: int, value: int, now: int) -> None:
        """One of the name is replaced, and never expires earlier than it did."""
        before = [until for n, _, until in self.held if n == name]
        self.held = [held for held in self.held if held[0] != name]
        self.held.append((name, value, max([self.until(now), *before])))

    def read(self, now: int, name: int | None = None) -> list[tuple[int, int, float]]:
        found = [held for held in self.alive(now) if name in (None, held[0])]
        if self.is_read:
            self.held = [
                (n, v, max(until, self.until(now)) if (n, v, until) in found else until)
                for n, v, until in self.held
            ]
        return found


class Model:
    def __init__(self) -> None:
        self.cells: dict[tuple[str, str], Cell] = {}
        self.timers: dict[str, set[int]] = defaultdict(set)
        self.watermark = WATERMARK_MIN_MS
        self.clock = 0
        self.seen: dict[str, list[Seen]] = defaultdict(list)
        self.added = 0

    def process(self, op: Op) -> None:
        now = max(op.ts, self.watermark)
        if op.kind == "timer":
            self.timers[op.user].add(now + 1 + op.argument)
        elif op.kind == "show":
            self.seen[op.user].append(self.show(op.user, op.ts, now))
        else:
            self.act(op, self.clock if op.state == "value_clock" else now)

    def act(self, op: Op, now: int) -> None:
        cell, kind, n = self.cell(op.user, op.state), op.state.split("_")[0], op.argument
        if op.kind == "write":
            self.write(cell, kind, n, now)
        elif op.kind == "read":
            cell.read(now, n % 3 if kind == "entries" else None)
        elif kind == "entries" and n:
            cell.held = [held for held in cell.held if held[0] != n % 3]
        else:
            cell.held = []
            if kind == "items" and n:
                self.write(cell, kind, n, now)
                self.write(cell, kind, n + 1, now)

    def write(self, cell: Cell, kind: str, n: int, now: int) -> None:
        self.added += 1
        name = {"entries": n % 3, "items": self.added}.get(kind, 0)
        cell.put(name, n, now)

    def advance(self, time_ms: int) -> None:
        fired, self.watermark = self.watermark, max(self.watermark, time_ms)
        while due := [(t, k) for k, times in self.timers.items() for t in times if t <= time_ms]:
            time, user = min(due)
            self.timers[user].remove(time)
            self.seen[user].append(self.show(user, time, max(time, fired)))
            self.write(self.cell(user, "items"), "items", time, max(time, fired))

    def show(self, user: str, at: int, now: int) -> Seen:
        found = []
        for state in STATES:
            held = self.cell(user, state).read(self.clock if state == "value_clock" else now)
            if state.startswith("entries"):
                of_state: Any = sorted((name, value) for name, value, _ in held)
            elif state.startswith("items"):
                of_state = [value for _, value, _ in held]
            else:
                of_state = held[0][1] if held else None
            found.append(f"{state}={of_state}")
        return Seen(user, at, found)

    def cell(self, user: str, state: str) -> Cell:
        return self.cells.setdefault((user, state), Cell(state.endswith("read"), state == "lasting"))


# --- The test -----------------------------------------------------------------------------------------

ops = st.builds(
    Op,
    user=st.sampled_from(["a", "b", "ü"]),
    kind=st.sampled_from(["write", "write", "read", "forget", "timer", "show"]),
    state=st.sampled_from(STATES),
    argument=st.integers(0, 12),
    ts=st.integers(0, 90),
)
batches = st.lists(ops, min_size=1, max_size=10)
moves = st.one_of(
    batches,
    batches,
    st.integers(0, 100),
    st.tuples(st.just("tick"), st.integers(1, 15)),
    st.tuples(st.just("restore"), st.integers(1, 4)),
    st.tuples(st.just("slowly"), st.integers(0, 100), batches),
    st.tuples(st.just("interrupted"), st.integers(0, 100), batches),
)


def create() -> ProcessOperator:
    return ProcessOperator(
        ProcessConfig(
            "remember",
            Remember(),
            ("user",),
            arrow_schema(Op),
            RecordWriter(arrow_schema(Seen)),
            RecordReader(Op),
            has_event_time=True,
        )
    )


class Played:
    """The operator and the model, side by side."""

    def __init__(self, state: StateBackend = UNLIMITED) -> None:
        self.model = Model()
        self.clock = ManualClock()
        self.state = state
        self.harness = OperatorHarness(create, ["user"], max_parallelism=8, clock=self.clock, state=state)
        self.seen: dict[str, list[Seen]] = defaultdict(list)

    def play(self, move: Any) -> None:
        match move:
            case int():
                if move >= self.model.watermark:  # watermarks never go back
                    self.harness.advance(move)
                    self.model.advance(move)
            case list():
                self.push(move)
                for op in move:
                    self.model.process(op)
            case "tick", milliseconds:
                self.clock.advance(milliseconds)
                self.model.clock += milliseconds
            case "restore", parallelism:
                self.restore(parallelism)
            case how, time_ms, batch if time_ms >= self.model.watermark:
                self.model.advance(time_ms)
                self.harness.begin(time_ms)
                self.harness.fire(1)
                if how == "interrupted":
                    self.restore(2)
                self.play(batch)
                while self.harness.fire(1):
                    pass
        self.take()

    def push(self, batch: list[Op]) -> None:
        self.harness.push(batch_from_records(batch, arrow_schema(Op)), [op.ts for op in batch])

    def restore(self, parallelism: int) -> None:
        self.take()
        states = self.harness.snapshot()
        self.harness.close()
        self.harness = OperatorHarness(
            create,
            ["user"],
            parallelism,
            max_parallelism=8,
            states=states,
            clock=self.clock,
            state=self.state,
        )

    def take(self) -> None:
        for row in self.harness.rows():
            self.seen[row["user"]].append(Seen(**row))
        self.harness.out.emitted.clear()


def op(kind: str, state: str, ts: int, argument: int = 1) -> Op:
    return Op("a", kind, state, argument, ts)


WRITTEN = [op("write", state, 10) for state in STATES]
FORGOTTEN_BEFORE_IT_IS_WRITTEN = [
    [
        *[Op("a", "write", "value", 0, 0)] * 7,
        Op("a", "timer", "value", 0, 0),
        Op("b", "timer", "value", 0, 0),
        Op("ü", "write", "value", 0, 0),
    ],
    [Op("a", "write", "value", 0, 0), Op("b", "write", "value", 0, 0), Op("ü", "write", "value_clock", 0, 0)],
    [Op("a", "write", "value", 0, 0), Op("b", "write", "value", 0, 0)],
]
"""Keys go to disk with changes that no snapshot has, come back when they expire, and are forgotten."""
SHOWN_LATER = [op("show", "", 29), op("show", "", 30), op("show", "", 11)]


@settings(max_examples=60, deadline=None)
@given(st.lists(moves, max_size=12))
@example([WRITTEN, 15, ("restore", 3), SHOWN_LATER])
@example([WRITTEN, SHOWN_LATER, 29, SHOWN_LATER, 30, SHOWN_LATER, ("tick", 20), SHOWN_LATER])
@example([WRITTEN, 50, ("restore", 2), [op("show", "", 51)]])
@example([[*WRITTEN, op("timer", "", 20)], ("tick", 20), 100])
def test_ttl_agrees_with_dictionaries_with_times(program: list[Any]) -> None:
    check(Played(), program)


@settings(max_examples=12, deadline=None)
@given(st.lists(moves, max_size=12))
@example([WRITTEN, 50, ("restore", 2), [op("show", "", 51)]])
@example([[*WRITTEN, op("timer", "", 20)], ("tick", 20), 100])
@example(FORGOTTEN_BEFORE_IT_IS_WRITTEN)
def test_so_does_state_in_rocksdb(program: list[Any]) -> None:
    with tight_rocksdb(rows_in_memory=1) as state:
        check(Played(state), program)


def check(played: Played, program: list[Any]) -> None:
    for move in [*program, 200]:
        played.play(move)
    played.harness.close()
    assert dict(played.seen) == {k: v for k, v in played.model.seen.items() if v}
