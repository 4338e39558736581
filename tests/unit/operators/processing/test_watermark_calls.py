"""on_watermark() of classes with a key: behind the timers of its watermark, before those that are later."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from onceflow import Ctx, Job, KeyedCoProcess, KeyedProcess, Timer, ValueState, WatermarkStrategy
from onceflow.runtime.errors import OnceflowError
from onceflow.runtime.operators.processing.process import ProcessOperator
from onceflow.runtime.testing.mutation import Mutant, mutated
from onceflow.testing import harness, run


@dataclass(frozen=True)
class Number:
    n: int
    ts: int


@dataclass(frozen=True)
class Told:
    what: str
    time: int


class Tell(KeyedProcess[int, Number, Told]):
    def process(self, number: Number, ctx: Ctx) -> None:
        ctx.timers.event_time(number.ts)

    def on_timer(self, fired: Timer, ctx: Ctx) -> Iterator[Told]:
        yield Told("timer", fired.time)

    def on_watermark(self, watermark: int, ctx: Ctx) -> Iterator[Told]:
        assert ctx.key is None
        assert ctx.event_time == watermark or ctx.is_end_of_input
        yield Told("watermark", watermark)


def check_told(pushed: list[list[int]]) -> None:
    """Each list: timers that are set before event time goes on by 10, a restart now and then behind it."""
    with harness(Tell(), key="n") as test:
        times = sorted(10 * step + ms for step, each in enumerate(pushed) for ms in each)
        for step, each in enumerate(pushed):
            for ms in each:
                test.element(Number(ms, 10 * step + ms), at=10 * step + ms)
            if step % 3 == 1:
                test.restart()
            test.advance(10 * step + 9)
            if step % 3 == 2:
                test.restart()
        told = test.out
        assert [each.time for each in told if each.what == "timer"] == times
        watermarks = [(place, each.time) for place, each in enumerate(told) if each.what == "watermark"]
        assert {time for _, time in watermarks} >= {10 * step + 9 for step in range(len(pushed))}
        for place, watermark in watermarks:
            assert all(each.time <= watermark for each in told[:place])
            assert all(each.time > watermark for each in told[place + 1 :])


@settings(max_examples=25, deadline=None)
@given(st.lists(st.lists(st.integers(1, 9), unique=True, max_size=4), max_size=5))
@example([[3, 1], [], [7, 9], [2]])
def test_it_is_told_behind_its_timers_and_before_later_ones(pushed: list[list[int]]) -> None:
    check_told([sorted(each) for each in pushed])


_on_watermark = ProcessOperator.on_watermark


def before_timers(self: ProcessOperator, time_ms: int) -> None:
    _on_watermark(self, time_ms)
    self._calls.call(self._fired_ms)


def test_a_watermark_that_is_told_before_its_timers_is_found() -> None:
    mutant = Mutant("told at once", [(ProcessOperator, "on_watermark", before_timers)])
    with mutated(mutant), pytest.raises(AssertionError):
        check_told([[1, 3], [], [7, 9], [2]])


def test_thousands_of_timers_fire_in_pieces_before_it() -> None:
    with harness(Tell(), key="n") as test:
        for n in range(0, 3000, 100):
            test._run.push(input=[Number(each, 3_001) for each in range(n, n + 100)])
        told = test.advance(3_001).out
    assert len(told) - sum(each.what == "watermark" for each in told) == 3_000
    assert (told[-1].what, told[-1].time) == ("watermark", 3_001)


class Both(KeyedCoProcess[int, Number, Number, Told]):
    def process_left(self, record: Number, ctx: Ctx) -> None:
        pass

    def process_right(self, record: Number, ctx: Ctx) -> None:
        pass

    def on_watermark(self, watermark: int, ctx: Ctx) -> Iterator[Told]:
        yield Told("both", watermark)


def test_of_two_streams_it_is_the_lower_one() -> None:
    job = Job("both")
    times = WatermarkStrategy.monotonous("ts")
    left = job.from_elements(Number(1, 0), watermarks=times, uid="left")
    right = job.from_elements(Number(1, 0), watermarks=times, uid="right")
    left.key_by("n").connect(right.key_by("n")).process(Both(), uid="both").print(uid="out")
    with run(job, left=[], right=[]) as test:
        test.advance_to(50, source="left")
        assert test.rows("out") == []
        test.advance_to(20, source="right")
        assert [row["time"] for row in test.rows("out")] == [20]


class Keyless(Tell):
    last = ValueState("last", int)

    def __init__(self, use: Any) -> None:
        self.use = use

    def on_watermark(self, watermark: int, ctx: Ctx) -> Iterator[Told]:
        self.use(self, ctx)
        yield from ()


@pytest.mark.parametrize(
    "use",
    [
        lambda self, ctx: self.last.get(),
        lambda self, ctx: self.last.set(1),
        lambda self, ctx: self.last.clear(),
        lambda self, ctx: ctx.timers.event_time(1),
        lambda self, ctx: ctx.timers.processing_time(1),
        lambda self, ctx: ctx.timers.delete_event_time(1),
        lambda self, ctx: ctx.timers.delete_processing_time(1),
    ],
)
def test_there_is_no_key(use: Any) -> None:
    said = r"on_watermark\(\) has no key: state of a key and timers are there only in process\(\)"
    with harness(Keyless(use), key="n") as test, pytest.raises(OnceflowError, match=said):
        test.element(Number(1, 1)).advance(5)
