"""Timers of a KeyedProcess: in pieces, by the watermark and by the clock, across restores.

Method for pieces: what a key sees, its records and its timers in their order, is put out row by row. It is
the same whether timers fire at once, or in pieces with records and a restore between them.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import pyarrow as pa
import pytest

from onceflow.runtime.clock import ManualClock
from onceflow.runtime.operators.operator import FrozenState, RestoredState
from onceflow.runtime.operators.processing.keyed_process import Ctx, KeyedProcess
from onceflow.runtime.operators.processing.process import ProcessConfig, ProcessOperator
from onceflow.runtime.operators.processing.timer_firing import PIECE_MS, TimerFiring
from onceflow.runtime.records import WATERMARK_MAX_MS
from onceflow.runtime.state.handles import ValueState
from onceflow.runtime.state.timers import Timer
from onceflow.runtime.testing.harness import OperatorHarness
from onceflow.runtime.testing.mutation import Mutant, mutated
from onceflow.runtime.types.columns_of_records import RecordWriter
from onceflow.runtime.types.record_types import arrow_schema
from onceflow.runtime.types.records_of_columns import RecordReader


@dataclass(frozen=True)
class Order:
    key: int
    at: int
    """When to call on_timer, or 0."""


@dataclass(frozen=True)
class Seen:
    key: int
    what: str
    event_time: int | None


class Diary(KeyedProcess[int, Order, Seen]):
    """Puts out all that a key sees. A timer at a multiple of 10 registers one a millisecond later."""

    count = ValueState("count", int)

    def __init__(self, by_clock: bool = False, act: Callable[[Timer], None] = lambda fired: None) -> None:
        self._by_clock = by_clock
        self._act = act

    def process(self, record: Order, ctx: Ctx) -> Iterator[Seen]:
        self.count.set((self.count.get() or 0) + 1)
        if record.at:
            self._register(ctx, record.at)
        late = ", late" if ctx.is_late else ""
        yield Seen(ctx.key, f"record {self.count.get()}{late}", ctx.event_time)

    def on_timer(self, fired: Timer, ctx: Ctx) -> Iterator[Seen]:
        self._act(fired)
        if fired.time % 10 == 0:
            self._register(ctx, fired.time + 1)
        kind = "clock" if fired.is_processing_time else "timer"
        end = ", end" if ctx.is_end_of_input else ""
        yield Seen(ctx.key, f"{kind} {fired.time} after {self.count.get()}{end}", ctx.event_time)

    def _register(self, ctx: Ctx, time_ms: int) -> None:
        if self._by_clock:
            ctx.timers.processing_time(time_ms)
        else:
            ctx.timers.event_time(time_ms)


def harness(
    process: KeyedProcess[int, Order, Seen] | None = None,
    states: Sequence[RestoredState] | None = None,
    clock: ManualClock | None = None,
    has_event_time: bool = True,
) -> OperatorHarness:
    schema = arrow_schema(Order)
    config = ProcessConfig(
        "p",
        process or Diary(),
        ("key",),
        schema,
        RecordWriter(arrow_schema(Seen)),
        RecordReader(Order),
        has_event_time,
    )
    return OperatorHarness(config.create, ["key"], states=states, clock=clock)


def push(diary: OperatorHarness, *rows: tuple[int, int, int]) -> None:
    """(key, timer, event time) of each record."""
    keys, timers, times = zip(*rows, strict=True)
    diary.push(pa.record_batch([keys, timers], schema=arrow_schema(Order)), times)


def by_key(*runs: OperatorHarness) -> dict[int, list[tuple[str, int]]]:
    seen = defaultdict(list)
    for run in runs:
        for row in run.rows():
            seen[row["key"]].append((row["what"], row["event_time"]))
    return dict(seen)


BEFORE = [(key, at, key) for at in (10, 20, 30, 95) for key in range(6)]
BEHIND = [(4, 25, 41), (1, 0, 60), (4, 0, 42), (7, 50, 39), (5, 70, 61), (0, 0, 43), (3, 12, 44), (2, 0, 62)]
LATER = [(key, 0, 80) for key in range(8)]


def at_once() -> dict[int, list[tuple[str, int]]]:
    diary = harness()
    push(diary, *BEFORE)
    diary.advance(40)
    push(diary, *BEHIND)
    diary.advance(45)
    push(diary, *LATER)
    diary.finish()
    return by_key(diary)


def check_cut(pieces: int, rows_max: int) -> bool:
    """Send records, restore a snapshot and send more after so many pieces. False: there are fewer."""
    first = harness()
    push(first, *BEFORE)
    first.begin(40)
    for _ in range(pieces):
        if not first.fire(rows_max):
            return False
    push(first, *BEHIND[:4])
    second = harness(states=first.snapshot())
    push(second, *BEHIND[4:])
    second.begin(20)
    second.fire(rows_max)
    second.advance(45)
    push(second, *LATER)
    second.finish()
    assert by_key(first, second) == at_once(), f"cut after {pieces} pieces of {rows_max}"
    return True


def check_every_cut() -> None:
    for rows_max in (1, 2, 5):
        pieces = 0
        while check_cut(pieces, rows_max):
            pieces += 1
        assert pieces > 4


def test_in_pieces_with_records_and_a_restore_between_them_a_key_sees_the_same() -> None:
    check_every_cut()


def _records_first(self: TimerFiring, timers: object, slots: object) -> None:
    pass


_snapshot = ProcessOperator.snapshot


def _watermark_as_fired(self: ProcessOperator) -> FrozenState:
    state = _snapshot(self)
    return FrozenState(state.key_groups, state.tables, {"watermark": state.meta["watermark"]})


def _forget_what_is_due(self: ProcessOperator, time_ms: int) -> None:
    _on_watermark(self, time_ms)
    for time, slot in self._timers.pop_due(time_ms, 1_000)[3:]:
        self._timers.delete(slot, time)


_on_watermark = ProcessOperator.on_watermark

MUTANTS = [
    Mutant("records overtake due timers of their key", [(TimerFiring, "fire_of", _records_first)]),
    Mutant("the watermark is not recorded", [(ProcessOperator, "snapshot", _watermark_as_fired)]),
    Mutant("timers that are due are dropped", [(ProcessOperator, "on_watermark", _forget_what_is_due)]),
]


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.title)
def test_mutants_of_firing_in_pieces_are_killed(mutant: Mutant) -> None:
    with mutated(mutant), pytest.raises(AssertionError):
        check_every_cut()


def test_a_snapshot_says_up_to_where_timers_have_fired_and_where_the_watermark_is() -> None:
    diary = harness()
    push(diary, (1, 10, 0), (2, 10, 0))
    diary.advance(4)
    diary.begin(20)
    assert diary.fire(1) == 1
    [between] = diary.snapshot()
    assert between.meta == {"watermark": 4, "reached": 20}
    while diary.fire(1):
        pass
    [after] = diary.snapshot()
    assert after.meta == {"watermark": 20}


@pytest.mark.parametrize("is_by_clock", [False, True])
def test_a_piece_ends_when_calls_take_long(is_by_clock: bool) -> None:
    clock = ManualClock(1_000)
    slow = Diary(is_by_clock, act=lambda fired: clock.advance(PIECE_MS / 2 + 1))
    diary = harness(slow, clock=clock)
    push(diary, *((key, 15, 0) for key in range(5)))
    [operator] = diary.subtasks
    assert isinstance(operator, ProcessOperator)
    diary.begin(20)
    pieces = [operator.on_clock(1_000, 100) if is_by_clock else operator.fire(100) for _ in range(4)]
    assert pieces == [2, 2, 1, 0]


class LateClock(ManualClock):
    """Long goes by whenever it is looked at, as on a machine that is busy with other things."""

    def monotonic_ms(self) -> float:
        self.advance(2 * PIECE_MS)
        return super().monotonic_ms()


def test_a_piece_has_a_timer_at_least_however_late_it_is_when_it_begins() -> None:
    diary = harness(clock=LateClock())
    push(diary, *((key, 15, 0) for key in range(3)))
    diary.begin(20)
    assert [diary.fire(100) for _ in range(4)] == [1, 1, 1, 0]


# --- By the clock


def test_a_processing_time_timer_fires_when_the_clock_has_come_there() -> None:
    clock = ManualClock(1_000)
    diary = harness(Diary(by_clock=True), clock=clock)
    push(diary, (1, 1_005, 7), (2, 1_010, 7), (1, 0, 8))
    [operator] = diary.subtasks
    assert isinstance(operator, ProcessOperator)
    assert operator.wake_at_ms == 1_005
    diary.tick(4)
    diary.advance(2_000)
    assert by_key(diary) == {1: [("record 1", 7), ("record 2", 8)], 2: [("record 1", 7)]}
    diary.tick(1)
    assert operator.wake_at_ms == 1_010
    diary.tick(5)
    diary.tick(1)
    assert by_key(diary)[1][2:] == [("clock 1005 after 2", 2_001)], "the first time that is not late"
    assert by_key(diary)[2][1:] == [("clock 1010 after 1", 2_001), ("clock 1011 after 1", 2_001)]
    assert operator.wake_at_ms is None


def test_before_a_watermark_there_is_the_timer_s_own_time_and_without_event_time_none() -> None:
    diary = harness(Diary(by_clock=True))
    push(diary, (1, 5, 7))
    diary.tick(5)
    assert by_key(diary)[1][1:] == [("clock 5 after 1", 5)]
    timeless = harness(Diary(by_clock=True), has_event_time=False)
    push(timeless, (1, 5, 0))
    timeless.tick(5)
    assert timeless.rows()[-1] == {"key": 1, "what": "clock 5 after 1", "event_time": None}
    assert timeless.out.emitted[-1][1].event_time is None


def test_processing_time_timers_are_restored_and_fire_at_once_if_they_are_due() -> None:
    first = harness(Diary(by_clock=True), clock=ManualClock(1_000))
    push(first, (1, 1_505, 7), (2, 9_000, 7), (3, 0, 7))
    second = harness(Diary(by_clock=True), states=first.snapshot(), clock=ManualClock(5_000))
    second.tick()
    assert by_key(second) == {1: [("clock 1505 after 1", 1_505)]}
    second.tick(4_000)
    assert by_key(second)[2][0] == ("clock 9000 after 1", 9_000)
    second.tick(1)
    [state] = second.snapshot()
    [keys] = state.batches("keys")
    assert "processing_timers" not in keys.schema.names, "nobody has one any more"


def test_between_two_pieces_by_the_clock_a_snapshot_has_what_has_not_fired() -> None:
    first = harness(Diary(by_clock=True), clock=ManualClock(100))
    push(first, *((key, 5 + key, 0) for key in range(4)))
    [operator] = first.subtasks
    assert isinstance(operator, ProcessOperator)
    assert operator.on_clock(100, 2) == 2
    second = harness(Diary(by_clock=True), states=first.snapshot(), clock=ManualClock(100))
    second.tick()
    fired = [
        row["what"].split()[1] for run in (first, second) for row in run.rows() if "clock" in row["what"]
    ]
    assert fired == ["5", "6", "7", "8"]


def test_at_the_end_of_the_input_what_waits_for_the_clock_fires_once_and_for_the_last_time() -> None:
    diary = harness(Diary(by_clock=True), clock=ManualClock(0))
    push(diary, (1, 70, 7), (2, 30, 7))
    diary.advance(20)
    diary.begin(WATERMARK_MAX_MS)
    assert [diary.fire(1) for _ in range(3)] == [1, 1, 0], "the timer at 30 registers one that goes nowhere"
    assert by_key(diary) == {
        1: [("record 1", 7), ("clock 70 after 1, end", 21)],
        2: [("record 1", 7), ("clock 30 after 1, end", 21)],
    }
    [operator] = diary.subtasks
    assert isinstance(operator, ProcessOperator)
    assert operator.wake_at_ms is None


class Deletes(KeyedProcess[int, Order, Seen]):
    """A timer for each record; a record without a time takes the last one back."""

    last = ValueState("last", int)

    def process(self, record: Order, ctx: Ctx) -> None:
        if record.at:
            self.last.set(ctx.processing_time + record.at)
            ctx.timers.processing_time(ctx.processing_time + record.at)
        else:
            ctx.timers.delete_processing_time(self.last.get() or 0)
            self.last.clear()

    def on_timer(self, fired: Timer, ctx: Ctx) -> Iterator[Seen]:
        yield Seen(ctx.key, "fired", fired.time)


def test_a_processing_time_timer_can_be_taken_back() -> None:
    diary = harness(Deletes(), clock=ManualClock(1_000))
    push(diary, (1, 5, 0), (2, 5, 0), (1, 0, 0))
    diary.tick(10)
    assert by_key(diary) == {2: [("fired", 1_005)]}


def test_keys_that_only_wait_for_the_clock_are_not_forgotten() -> None:
    diary = harness(Deletes(), clock=ManualClock(0))
    push(diary, *((key, 5, 0) for key in range(3_000)))
    push(diary, *((key, 0, 0) for key in range(2_990)))
    diary.snapshot()
    diary.tick(5)
    assert sorted(by_key(diary)) == list(range(2_990, 3_000))
