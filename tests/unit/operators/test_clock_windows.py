"""Windows in processing time, with a clock that is moved by hand."""

from collections import Counter, defaultdict
from collections.abc import Iterator
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from onceflow.runtime.clock import ManualClock
from onceflow.runtime.errors import OptionError
from onceflow.runtime.operators.aggregation.aggregates import count, sum_
from onceflow.runtime.operators.assigners.by_clock import ByClock, TimeWindow, processing_time
from onceflow.runtime.operators.assigners.counting import count_window
from onceflow.runtime.operators.assigners.cumulative import Cumulative, cumulative
from onceflow.runtime.operators.assigners.session import Session, session
from onceflow.runtime.operators.assigners.sliding import Sliding, sliding
from onceflow.runtime.operators.assigners.tumbling import Tumbling, tumbling
from onceflow.runtime.operators.windows.clock_windows import ClockWindowOperator
from onceflow.runtime.operators.windows.window import WindowAggregate
from onceflow.runtime.records import Records
from onceflow.runtime.testing.harness import OperatorHarness
from onceflow.runtime.testing.mutation import Mutant, mutated
from onceflow.runtime.testing.tight_state import INCREMENTAL, tight_rocksdb

SCHEMA = pa.schema([("user", pa.string()), ("amount", pa.int64())])
START = 1_000_000


def harness(
    window: ByClock, states: Any = None, now_ms: int = START, has_event_time: bool = True
) -> OperatorHarness:
    configured = WindowAggregate(
        "w", ("user",), window, {"n": count(), "total": sum_("amount")}, SCHEMA, has_event_time=has_event_time
    )
    made = OperatorHarness(configured.create, ["user"], 1, states=states, clock=ManualClock())
    made.tick(now_ms - made.clock.now_ms())
    return made


def push(to: OperatorHarness, *rows: tuple[str, int]) -> None:
    to.push(pa.RecordBatch.from_pylist([{"user": u, "amount": n} for u, n in rows], SCHEMA), [7] * len(rows))


def sent(by: OperatorHarness) -> list[tuple[Any, ...]]:
    """What has come out since the last call, in ms after the start: (user, start, end, n, total)."""
    found = [
        (r["user"], r["window_start"] - START, r["window_end"] - START, r["n"], r["total"]) for r in by.rows()
    ]
    by.out.emitted.clear()
    return found


def test_rows_belong_to_the_time_at_which_they_come() -> None:
    h = harness(processing_time(tumbling("1 s")))
    push(h, ("a", 1))
    h.tick(999)
    push(h, ("a", 2))
    assert sent(h) == []
    h.tick(1)
    push(h, ("a", 4))
    assert sent(h) == [("a", 0, 1_000, 2, 3)]
    h.tick(1_000)
    assert sent(h) == [("a", 1_000, 2_000, 1, 4)]
    assert h.late_rows == 0


def test_a_watermark_fires_nothing_and_the_end_of_the_input_all() -> None:
    h = harness(processing_time(tumbling("1 s")))
    push(h, ("a", 1))
    h.advance(START + 5_000)
    assert sent(h) == []
    h.finish()
    assert sent(h) == [("a", 0, 1_000, 1, 1)]


@pytest.mark.parametrize(
    ("window", "expected"),
    [
        (
            sliding("2 s", "1 s"),
            [("a", -1_000, 1_000, 1, 1), ("a", 0, 2_000, 2, 3), ("a", 1_000, 3_000, 1, 2)],
        ),
        (session("600 ms"), [("a", 0, 600, 1, 1), ("a", 1_500, 2_100, 1, 2)]),
        (
            cumulative("2 s", "1 s"),
            [("a", 0, 1_000, 1, 1), ("a", 0, 2_000, 2, 3)],
        ),
    ],
)
def test_all_windows_of_time(window: Any, expected: list[tuple[Any, ...]]) -> None:
    h = harness(processing_time(window))
    push(h, ("a", 1))
    for step in range(40):
        if step == 15:
            push(h, ("a", 2))
        h.tick(100)
    assert sent(h) == expected


def test_a_restored_window_fires_by_the_clock_of_the_new_machine() -> None:
    h = harness(processing_time(tumbling("1 s")))
    push(h, ("a", 1))
    h.tick(5_000)
    h.out.emitted.clear()
    push(h, ("a", 2))
    behind = harness(processing_time(tumbling("1 s")), h.snapshot(), START + 1_000)
    push(behind, ("a", 4))
    behind.tick(1_000)
    assert sent(behind) == [("a", 1_000, 2_000, 1, 4)], "nothing is late where the clock is behind"
    behind.tick(10_000)
    assert sent(behind) == [("a", 5_000, 6_000, 1, 2)]


def test_results_have_the_first_event_time_that_is_not_late_or_none() -> None:
    def times(h: OperatorHarness) -> list[Any]:
        found: list[Records] = [records for _, records in h.out.emitted]
        return [None if records.event_time is None else records.event_time.tolist() for records in found]

    h = harness(processing_time(tumbling("1 s")))
    h.advance(70)
    push(h, ("a", 1))
    h.tick(1_000)
    assert times(h) == [[71]]
    h = harness(processing_time(tumbling("1 s")), has_event_time=False)
    push(h, ("a", 1))
    h.tick(1_000)
    assert times(h) == [None]


def test_windows_that_know_no_time_are_refused() -> None:
    with pytest.raises(OptionError, match=r"use tumbling\(...\)"):
        processing_time(count_window(3))  # type: ignore[arg-type]


# --- Against lists --------------------------------------------------------------------------------------

Came = dict[str, list[tuple[int, int]]]
"""(when it came, amount) of each row, by user."""
STEP = st.one_of(
    st.tuples(st.just("rows"), st.lists(st.tuples(st.sampled_from("abc"), st.integers(-9, 9)), max_size=6)),
    st.tuples(st.just("tick"), st.integers(1, 40)),
    st.tuples(st.just("restore"), st.integers(1, 3)),
)
WINDOW = st.one_of(
    st.builds(Tumbling, st.integers(1, 30), st.integers(0, 9)),
    st.builds(lambda slide, more: Sliding(slide + more, slide), st.integers(2, 12), st.integers(1, 12)),
    st.builds(lambda step, steps: Cumulative(step * steps, step), st.integers(2, 9), st.integers(2, 4)),
    st.builds(Session, st.integers(1, 25)),
)
MOVED: list[Any] = [
    *[("rows", [("a", 1), ("b", 2)]), ("tick", 4), ("rows", [("a", 3)]), ("restore", 3)],
    *[("rows", [("a", 5)]), ("tick", 7), ("rows", [("b", 4)]), ("restore", 1), ("tick", 30)],
]


def windows(window: TimeWindow, rows: list[tuple[int, int]]) -> Iterator[tuple[int, int, list[int]]]:
    """(start, end, amounts) of all windows of one user, however far the clock is."""
    if isinstance(window, Session):
        visit: list[tuple[int, int]] = []
        for at, amount in rows:
            if visit and at - visit[-1][0] >= window.gap_ms:  # the clock has ended it
                yield visit[0][0], visit[-1][0] + window.gap_ms, [each for _, each in visit]
                visit = []
            visit.append((at, amount))
        if visit:
            yield visit[0][0], visit[-1][0] + window.gap_ms, [each for _, each in visit]
        return
    for start, end in sorted({span for at, _ in rows for span in spans(window, at)}):
        yield start, end, [amount for at, amount in rows if start <= at < end]


def spans(window: TimeWindow, at: int) -> list[tuple[int, int]]:
    match window:
        case Tumbling(size_ms=size, offset_ms=offset):
            start = (at - offset) // size * size + offset
            return [(start, start + size)]
        case Sliding(size_ms=size, slide_ms=slide):
            last = at // slide * slide
            return [(start, start + size) for start in range(last, at - size, -slide)]
        case Cumulative(size_ms=size, step_ms=step):
            start = at // size * size
            return [(start, end) for end in range(start + step, start + size + 1, step) if end > at]
    raise AssertionError(window)


def check_run(steps: list[Any], window: TimeWindow, state: Any = None) -> None:
    configured = WindowAggregate(
        "w", ("user",), processing_time(window), {"n": count(), "total": sum_("amount")}, SCHEMA
    )
    clock, more = ManualClock(), {} if state is None else {"state": state}
    came: Came = defaultdict(list)
    h = OperatorHarness(configured.create, ["user"], 1, clock=clock, **more)
    found: Counter[tuple[Any, ...]] = Counter()

    def check(now_ms: int | None) -> None:
        found.update((r["user"], r["window_start"], r["window_end"], r["n"], r["total"]) for r in h.rows())
        h.out.emitted.clear()
        assert found == Counter(
            (user, start, end, len(amounts), sum(amounts))
            for user, rows in came.items()
            for start, end, amounts in windows(window, rows)
            if now_ms is None or end <= now_ms
        )

    for kind, value in steps:
        match kind:
            case "rows" if value:
                for user, amount in value:
                    came[user].append((int(clock.now_ms()), amount))
                push(h, *value)
            case "tick":
                h.tick(value)
            case "restore":
                states = h.snapshot()
                push(h, ("a", 100))
                h.tick(50)  # what happens behind the snapshot is lost, but for the clock
                h = OperatorHarness(configured.create, ["user"], value, states=states, clock=clock, **more)
                h.tick(1)
        if kind != "rows":
            check(int(clock.now_ms()))
    h.finish()
    check(None)


@settings(max_examples=60, deadline=None)
@given(steps=st.lists(STEP, max_size=12), window=WINDOW)
@example(MOVED, Session(9))
@example(MOVED, Cumulative(20, 5))
def test_windows_by_the_clock_agree_with_lists(steps: list[Any], window: TimeWindow) -> None:
    check_run(steps, window)


@settings(max_examples=15, deadline=None)
@given(steps=st.lists(STEP, max_size=12), window=WINDOW)
@example(MOVED, Session(9))
def test_so_do_those_whose_snapshots_build_on_each_other(steps: list[Any], window: TimeWindow) -> None:
    check_run(steps, window, INCREMENTAL)


@settings(max_examples=5, deadline=None)
@given(steps=st.lists(STEP, max_size=12), window=WINDOW)
@example(MOVED, Session(9))
def test_so_do_those_in_rocksdb(steps: list[Any], window: TimeWindow) -> None:
    with tight_rocksdb(rows_in_memory=1) as state:
        check_run(steps, window, state)


def restore_nothing(self: ClockWindowOperator, states: Any) -> None:
    """What was open is gone."""


def go_back(self: ClockWindowOperator) -> None:
    """All rows count as those of the first one's time."""
    if self._time_ms < 0:
        self._time_ms = self._clock.now_ms()
    self._spans.on_watermark(self._clock.now_ms() - 1)


MUTANTS = (
    Mutant("open windows are not restored", [(ClockWindowOperator, "restore", restore_nothing)]),
    Mutant("rows come when the first one came", [(ClockWindowOperator, "_look", go_back)]),
)


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.title)
def test_a_wrong_window_by_the_clock_is_found(mutant: Mutant) -> None:
    with mutated(mutant), pytest.raises(AssertionError):
        check_run(MOVED, Tumbling(10))
