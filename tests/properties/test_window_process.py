"""WindowProcess: state of windows and of keys against dictionaries, over late rows, restarts and rescales."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from onceflow import (
    Job,
    SideOutput,
    ValueState,
    WatermarkStrategy,
    WindowBounds,
    WindowCtx,
    WindowProcess,
    WindowState,
    sliding,
    tumbling,
)
from onceflow.runtime.errors import OnceflowError
from onceflow.runtime.operators.processing.fired_windows import FiredWindows
from onceflow.runtime.testing.mutation import Mutant, mutated
from onceflow.testing import run, simulate

SIZE, LATENESS = 10, 15


@dataclass(frozen=True)
class Row:
    key: str
    n: int
    ts: int


@dataclass(frozen=True, order=True)
class Fired:
    key: str
    start: int
    rows: list[int]
    times: int
    calls: int


@dataclass(frozen=True, order=True)
class Ended:
    start: int
    times: int


class Seen:
    """No record type."""

    def __init__(self, times: list[int]) -> None:
        self.times = times


class Count(WindowProcess[str, Row, Fired]):
    """Counts how often a window has fired, and how often windows of a key have."""

    times = WindowState("times", int)
    seen = WindowState("seen", Seen, codec="pickle")
    calls = ValueState("calls", int)
    ended = SideOutput("ended", Ended)

    def process(
        self, key: str, window: WindowBounds | None, rows: list[Row], ctx: WindowCtx
    ) -> Iterator[Fired]:
        assert window is not None
        times, calls = self.times.get(0) + 1, (self.calls.get() or 0) + 1
        self.times.set(times)
        seen = self.seen.get() or Seen([])
        assert seen.times == list(range(1, times)), "an object is another window's"
        self.seen.set(Seen([*seen.times, times]))
        self.calls.set(calls)
        yield Fired(key, window.start, [row.n for row in rows], times, calls)

    def clear(self, window: WindowBounds, ctx: WindowCtx) -> None:
        ctx.emit(self.ended, Ended(window.start, self.times.get(0)))


class Model:
    def __init__(self, slide: int) -> None:
        self.slide = slide
        self.watermark = -1
        self.windows: dict[tuple[str, int], list[int]] = defaultdict(list)
        self.times: dict[tuple[str, int], int] = defaultdict(int)
        self.calls: dict[str, int] = defaultdict(int)
        self.fired: list[tuple[str, int, list[int], int]] = []
        self.ended: list[Ended] = []

    def push(self, row: Row) -> None:
        first = row.ts // self.slide * self.slide
        for start in range(first, row.ts - SIZE, -self.slide):
            over_ms = start + SIZE - 1
            if over_ms + LATENESS > self.watermark:
                self.windows[row.key, start].append(row.n)
                if over_ms <= self.watermark:
                    self.fire(row.key, start)

    def advance(self, time_ms: int) -> None:
        before, self.watermark = self.watermark, time_ms
        for key, start in list(self.windows):
            if before < start + SIZE - 1 <= time_ms:
                self.fire(key, start)
        for key, start in [at for at in self.windows if at[1] + SIZE - 1 + LATENESS <= time_ms]:
            del self.windows[key, start]
            self.ended.append(Ended(start, self.times.pop((key, start))))

    def fire(self, key: str, start: int) -> None:
        self.times[key, start] += 1
        self.calls[key] += 1
        self.fired.append((key, start, list(self.windows[key, start]), self.times[key, start]))


Does = tuple[str, int, int]
"""push a row of key n % 3 at a time; advance event time by so much; restart at a parallelism."""


def check_windows(does: Sequence[Does], slide: int) -> None:
    model, now = Model(slide), 0
    job = Job("windows")
    source = job.from_elements(Row("a", 0, 0), watermarks=WatermarkStrategy.monotonous("ts"), uid="rows")
    window = tumbling(SIZE) if slide == SIZE else sliding(SIZE, slide)
    windows = source.key_by("key").window(window).allowed_lateness(LATENESS, results="accumulating")
    counted = windows.process(Count(), uid="count")
    counted.print(uid="out")
    counted.side_output("ended").print(uid="ended")
    with run(job, parallelism=2, rows=[]) as test:
        for number, (what, n, ms) in enumerate(does):
            if what == "push":
                row = Row("abc"[n % 3], number, ms)
                test.push(rows=[row])
                model.push(row)
                now = max(now, ms)
            elif what == "advance":
                now += ms
                test.advance_to(now)
            else:
                test.restart(parallelism=n)
            model.advance(max(model.watermark, now if what == "advance" else now - 1))
        test.finish()
        model.advance(1 << 60)
        out = [Fired(**row) for row in test.rows("out")]
        ended = sorted(Ended(**row) for row in test.rows("ended"))
    assert sorted((f.key, f.start, f.rows, f.times) for f in out) == sorted(model.fired)
    assert ended == sorted(model.ended)
    calls: dict[str, list[int]] = defaultdict(list)
    for fired in out:
        calls[fired.key].append(fired.calls)
    assert {key: sorted(each) for key, each in calls.items()} == {
        key: list(range(1, n + 1)) for key, n in model.calls.items()
    }


STEPS = st.one_of(
    st.tuples(st.just("push"), st.integers(0, 2), st.integers(0, 60)),
    st.tuples(st.just("advance"), st.just(0), st.integers(1, 20)),
    st.tuples(st.just("restart"), st.integers(1, 3), st.just(0)),
)
LATE: list[Does] = [
    ("push", 0, 4),
    ("advance", 0, 8),
    ("restart", 3, 0),
    ("push", 0, 5),
    ("push", 1, 6),
    ("restart", 1, 0),
    ("push", 0, 7),
    ("advance", 0, 14),
    ("push", 0, 30),
    ("push", 0, 3),
]


@settings(max_examples=30, deadline=None)
@given(st.lists(STEPS, max_size=12), st.sampled_from([SIZE, 4]))
@example(LATE, SIZE)
@example(LATE, 4)
@example([("push", 2, 59), ("restart", 1, 0), ("push", 2, 50)], SIZE)
def test_state_of_windows_is_that_of_dictionaries(does: Sequence[Does], slide: int) -> None:
    check_windows(does, slide)


def ends_at_once(self: FiredWindows, window: WindowBounds, ctx: Any) -> None:
    self._end(window, ctx)


_end: Callable[..., None] = FiredWindows._end


def keeps(self: FiredWindows, window: WindowBounds, ctx: Any) -> None:
    bound, self._bound = self._bound, []
    _end(self, window, ctx)
    self._bound = bound


def one_window(self: FiredWindows, window: WindowBounds, ctx: Any) -> None:
    self._window, self._ctx = window, ctx
    for state in self._bound:
        state._window = WindowBounds(0, SIZE)


MUTANTS = [
    Mutant("a window is over when it has fired", [(FiredWindows, "_remember", ends_at_once)]),
    Mutant("a window is never over", [(FiredWindows, "on_timer", lambda self, fired, ctx: [])]),
    Mutant("all windows are one", [(FiredWindows, "_enter", one_window)]),
]


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.title)
def test_state_of_the_wrong_window_is_found(mutant: Mutant) -> None:
    with mutated(mutant), pytest.raises((AssertionError, OnceflowError)):
        check_windows(LATE, 4)


@pytest.mark.parametrize("barriers", ["aligned", "unaligned"])
def test_crashes_change_nothing(barriers: str) -> None:
    job = Job("crashes")
    source = job.from_elements(Row("a", 0, 0), watermarks=WatermarkStrategy.monotonous("ts"), uid="rows")
    counted = source.key_by("key").window(tumbling(SIZE)).process(Count(), uid="count")
    counted.print(uid="out")
    counted.side_output("ended").print(uid="ended")
    rows = {key: [Row(key, n, 3 * n) for n in range(split, 30, 3)] for split, key in enumerate("abc")}
    report = simulate(job, {"rows": rows}, seeds=8, barriers=barriers)
    assert report.rows == {"out": 27, "ended": 27}
