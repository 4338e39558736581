"""Process: records and watermarks without a key, with lists of the subtask, against sums over all input."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from onceflow import (
    Ctx,
    FunctionContext,
    Job,
    KeyedProcess,
    OperatorListState,
    Process,
    SideOutput,
    Timer,
    ValueState,
    WatermarkStrategy,
    errors_to,
    sum_,
    tumbling,
)
from onceflow.runtime.errors import OnceflowError
from onceflow.runtime.operators.operator import RestoredState
from onceflow.runtime.operators.processing.keyless_process import KeylessOperator
from onceflow.runtime.operators.processing.watermark_calls import WatermarkCalls
from onceflow.runtime.testing.mutation import Mutant, mutated
from onceflow.testing import harness, run, simulate


@dataclass(frozen=True)
class Number:
    n: int
    ts: int


@dataclass(frozen=True)
class Total:
    n: int


class Gather(Process[Number, Total]):
    """Keeps numbers until event time goes on, and sends their sum then; odd ones go to `odd` too."""

    kept = OperatorListState("kept", int)
    odd = SideOutput("odd", Number)

    def process(self, number: Number, ctx: Ctx) -> None:
        assert (ctx.key, ctx.event_time) == (None, number.ts)
        self.kept.add(number.n)
        if number.n % 2:
            ctx.emit(self.odd, number)

    def on_watermark(self, watermark: int, ctx: Ctx) -> Iterator[Total]:
        assert watermark == ctx.watermark
        if self.kept.get():
            yield Total(sum(self.kept.get()))
            self.kept.clear()


def gathering() -> Job:
    job = Job("gathering")
    times = WatermarkStrategy.monotonous("ts")
    numbers = job.from_elements(Number(1, 0), watermarks=times, uid="numbers")
    totals = numbers.process(Gather(), uid="gather")
    totals.window_all(tumbling(10)).aggregate(n=sum_("n"), uid="windows").print(uid="out")
    totals.side_output("odd").print(uid="odd")
    return job


Does = tuple[str, int]
"""push a number of so many ms further; advance event time by so much; restart or crash, at a parallelism."""


def check_gathered(does: Sequence[Does]) -> None:
    """No number is lost, or late, or counted twice in the windows behind; each odd one came out once."""
    given: list[Number] = []
    now = 0
    with run(gathering(), parallelism=2, numbers={"s0": [], "s1": []}) as test:
        for what, n in does:
            match what:
                case "push":
                    number = Number(len(given) + 1, now + n)
                    test.push(numbers={f"s{len(given) % 2}": [number]})
                    given.append(number)
                case "advance":
                    now = max([now, *(each.ts for each in given)]) + n
                    test.advance_to(now)
                case "restart":
                    test.restart(parallelism=n)
                case _:
                    test.crash(parallelism=n)
        test.finish()
        assert test.late_records == 0
        assert sum(row["n"] for row in test.rows("out")) == sum(number.n for number in given)
        odd = sorted(row["n"] for row in test.rows("odd"))
        assert odd == [number.n for number in given if number.n % 2]


STEPS = st.one_of(
    st.tuples(st.just("push"), st.integers(0, 30)),
    st.tuples(st.just("advance"), st.integers(1, 30)),
    st.tuples(st.sampled_from(["restart", "crash"]), st.integers(1, 3)),
)
LATE_END: list[Does] = [("push", 5), ("advance", 50), ("push", 0), ("restart", 3)]


@settings(max_examples=25, deadline=None)
@given(st.lists(STEPS, max_size=8))
@example(LATE_END)
@example([("push", 0), ("push", 3), ("restart", 1), ("advance", 9), ("crash", 2), ("push", 2)])
def test_what_waits_for_the_watermark_is_counted_once(does: Sequence[Does]) -> None:
    check_gathered(does)


def forgets(self: KeylessOperator, states: Sequence[RestoredState]) -> None:
    if self._lists is not None:
        self._lists.restore(states)


MUTANTS = [
    Mutant("how far event time has come is not restored", [(KeylessOperator, "restore", forgets)]),
    Mutant("the end is told with time 0", [(WatermarkCalls, "_event_time", lambda self, before: 0)]),
    Mutant("watermarks are not told", [(WatermarkCalls, "call", lambda self, before: None)]),
    Mutant("lists are not kept", [(KeylessOperator, "begin", lambda self: self._lists.restore([]))]),
]


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.title)
def test_numbers_that_get_lost_are_found(mutant: Mutant) -> None:
    with mutated(mutant), pytest.raises((AssertionError, OnceflowError)):
        check_gathered(LATE_END)


@pytest.mark.parametrize("barriers", ["aligned", "unaligned"])
def test_side_outputs_under_crashes_and_rescales(barriers: str) -> None:
    job = Job("sides")
    source = job.from_elements(Number(1, 0), watermarks=WatermarkStrategy.monotonous("ts"), uid="numbers")
    sides = source.process(Once(), uid="once")
    sides.print(uid="even")
    sides.side_output("odd").print(uid="odd")
    numbers = {f"s{split}": [Number(n, n) for n in range(split, 24, 3)] for split in range(3)}
    report = simulate(job, {"numbers": numbers}, seeds=8, barriers=barriers)
    assert report.rows == {"even": 12, "odd": 12}


class Once(Process[Number, Total]):
    seen = OperatorListState("seen", int)
    odd = SideOutput("odd", Number)

    def process(self, number: Number, ctx: Ctx) -> Iterator[Total]:
        assert number.n not in self.seen.get(), "it came before"
        self.seen.add(number.n)
        if number.n % 2:
            ctx.emit(self.odd, number)
        else:
            yield Total(number.n)


class Careful(Process[Number, Total]):
    odd = SideOutput("odd", Number)

    def open(self, ctx: FunctionContext) -> None:
        self.calls = ctx.metrics.counter("calls")

    def process(self, number: Number, ctx: Ctx) -> Iterator[Total]:
        self.calls.inc()
        ctx.emit(self.odd, number)
        yield Total(number.n)
        if number.n < 0:
            raise ValueError("it is negative")


def test_a_record_that_fails_leaves_nothing_behind() -> None:
    job = Job("careful")
    numbers = job.from_elements(Number(1, 0), uid="numbers")
    totals = numbers.process(Careful(), uid="careful", on_error=errors_to("failed"))
    totals.print(uid="out")
    totals.side_output("odd").print(uid="odd")
    totals.side_output("failed").print(uid="failed")
    with run(job, numbers=[Number(1, 0), Number(-1, 0), Number(2, 0)]) as test:
        assert [row["n"] for row in test.rows("out")] == [1, 2]
        assert [row["n"] for row in test.rows("odd")] == [1, 2]
        assert [row["error"] for row in test.rows("failed")] == ["ValueError: it is negative"]


def test_without_event_time_the_end_is_told() -> None:
    class Last(Process[Number, Total]):
        def process(self, number: Number, ctx: Ctx) -> None:
            assert (ctx.event_time, ctx.is_late) == (None, False)

        def on_watermark(self, watermark: int, ctx: Ctx) -> Iterator[Total]:
            assert (ctx.event_time, ctx.is_end_of_input) == (None, True)
            yield Total(7)

    job = Job("last")
    rows = job.from_elements(Number(1, 0), uid="numbers").process(Last()).collect()
    job.run(master="threads[1]")
    assert rows == [Total(7)]


class SetsTimer(Process[Number, Total]):
    def process(self, number: Number, ctx: Ctx) -> None:
        ctx.timers.event_time(number.n)


class HasTimer(SetsTimer):
    def on_timer(self, fired: Timer, ctx: Ctx) -> None:
        pass


class HasValue(SetsTimer):
    last = ValueState("last", int)


class ByKey(KeyedProcess[int, Number, Total]):
    def process(self, number: Number, ctx: Ctx) -> None:
        pass


class Raises(SetsTimer):
    def on_watermark(self, watermark: int, ctx: Ctx) -> None:
        raise ValueError("not so far")

    def process(self, number: Number, ctx: Ctx) -> None:
        pass


def numbers() -> Any:
    return Job("refused").from_elements(Number(1, 0))


@pytest.mark.parametrize(
    ("build", "said"),
    [
        (
            lambda: harness(SetsTimer()).element(Number(1, 0)),
            "a timer belongs to a key, and SetsTimer has none",
        ),
        (lambda: numbers().process(HasTimer()), r"HasTimer has on_timer\(\), but timers belong to a key"),
        (lambda: numbers().process(HasValue()), "state 'last' of HasValue belongs to a key"),
        (lambda: numbers().process(ByKey()), r"is a KeyedProcess: write stream.key_by\(...\).process\(ByKey"),
        (lambda: numbers().process(print), "expected an object of a class derived from Process"),
        (lambda: numbers().key_by("n").process(Gather()), r"which has no key: write stream.process\(Gather"),
        (lambda: numbers().process(Gather(), on_error="drop"), "leave on_error= out"),
        (
            lambda: numbers().process(Careful(), on_error=errors_to("odd")),
            "a side output 'odd': name another",
        ),
        (lambda: harness(Raises()).advance(5), "Raises.on_watermark failed on the watermark 5 .*not so far"),
    ],
)
def test_what_it_can_not_do_is_refused(build: Callable[[], Any], said: str) -> None:
    with pytest.raises(OnceflowError, match=said):
        build()


def test_updates_and_deletes_are_not_taken_for_new_rows() -> None:
    job = Job("changes")
    source = job.from_elements(Number(1, 0), watermarks=WatermarkStrategy.monotonous("ts"), uid="numbers")
    windows = source.key_by("n").window(tumbling(10)).allowed_lateness(5).aggregate(ts=sum_("ts"))
    windows.process(Careful(), uid="careful").print()
    with pytest.raises(OnceflowError, match=r"'careful' .* would take the updates and deletes of"):
        run(job, numbers=[])
