"""WindowProcess: what its context gives in each kind of window, timers of windows, and what is refused."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import pytest

from onceflow import (
    FunctionContext,
    Job,
    KeyedProcess,
    MapState,
    OperatorListState,
    Timer,
    ValueState,
    WatermarkStrategy,
    WindowBounds,
    WindowCtx,
    WindowProcess,
    WindowState,
    count_window,
    every_rows,
    global_window,
    processing_time,
    session,
    tumbling,
)
from onceflow.runtime.errors import OnceflowError
from onceflow.testing import run


@dataclass(frozen=True)
class Row:
    key: str
    n: int
    ts: int


@dataclass(frozen=True)
class Told:
    key: str | None
    what: str
    n: int


class Tell(WindowProcess[str, Row, Told]):
    """Says how often its window has fired, and how often those of the key have."""

    times = WindowState("times", int)
    of_key = MapState("of_key", str, int)

    def process(
        self, key: str, window: WindowBounds | None, rows: list[Row], ctx: WindowCtx
    ) -> Iterator[Told]:
        self.times.set(self.times.get(0) + 1)
        self.of_key.put("fired", self.of_key.get("fired", 0) + 1)
        yield Told(key, "times", self.times.get(0))
        yield Told(key, "of key", self.of_key.get("fired", 0))


class OfKey(WindowProcess[str, Row, Told]):
    """State of the key only: for sessions too."""

    fired = ValueState("fired", int)

    def open(self, ctx: FunctionContext) -> None:
        self.seen = ctx.metrics.counter("seen")

    def process(
        self, key: str | None, window: WindowBounds | None, rows: list[Row], ctx: WindowCtx
    ) -> Iterator[Told]:
        self.seen.inc()
        self.fired.set((self.fired.get() or 0) + len(rows))
        yield Told(key, "rows", self.fired.get() or 0)


def of_all_rows(key: None, window: None, rows: list[Row]) -> Iterator[Told]:
    yield Told(key, "rows", len(rows))


def stream(job: Job) -> Any:
    return job.from_elements(Row("a", 0, 0), watermarks=WatermarkStrategy.monotonous("ts"), uid="rows")


def told(windows: Callable[[Any], Any], process: Any, times: list[int], parallelism: int = 1) -> list[Any]:
    """What it tells of key a with rows at these times, restarted in the middle."""
    job = Job("told")
    windows(stream(job)).process(process, uid="told").print(uid="out")
    with run(job, parallelism=2, rows=[]) as test:
        for n, time in enumerate(times):
            if n == len(times) // 2:
                test.restart(parallelism=parallelism)
            test.push(rows=[Row("a", n, time)])
        test.finish()
        return [(row["what"], row["n"]) for row in test.rows("out")]


def test_a_window_that_fires_once_has_state_of_the_key() -> None:
    found = told(lambda rows: rows.key_by("key").window(tumbling(10)), Tell(), [1, 12, 25])
    assert found == [(what, n) for at in (1, 2, 3) for what, n in (("times", 1), ("of key", at))]


def test_windows_without_bounds_are_one_for_each_key() -> None:
    found = told(lambda rows: rows.key_by("key").window(count_window(2)), Tell(), [1, 2, 3, 4])
    assert found == [("times", 1), ("of key", 1), ("times", 2), ("of key", 2)]
    assert told(lambda rows: rows.window_all(count_window(2)), OfKey(), [1, 2]) == [("rows", 2)]
    assert told(lambda rows: rows.window_all(count_window(2)), of_all_rows, [1, 2]) == [("rows", 2)]
    every = every_rows(2)
    found = told(
        lambda rows: rows.key_by("key").window(global_window()).trigger(every, results="discarding"),
        Tell(),
        [1, 2, 3, 4],
    )
    assert found == [("times", 1), ("of key", 1), ("times", 2), ("of key", 2)]


def test_sessions_windows_by_the_clock_and_those_of_all_rows_have_state_of_the_key() -> None:
    assert told(lambda rows: rows.key_by("key").window(session(10)), OfKey(), [1, 2, 30, 60]) == [
        ("rows", 2),
        ("rows", 3),
        ("rows", 4),
    ]
    assert told(lambda rows: rows.window_all(tumbling(10)), OfKey(), [1, 2, 30]) == [("rows", 2), ("rows", 3)]
    by_clock = processing_time(tumbling("1 d"))
    assert told(lambda rows: rows.key_by("key").window(by_clock), OfKey(), [1, 2]) == [("rows", 2)]


class Remind(WindowProcess[str, Row, Told]):
    """Sends the sum again at a time after the window's end, and by the clock."""

    total = WindowState("total", int)

    def process(self, key: str, window: WindowBounds | None, rows: list[Row], ctx: WindowCtx) -> None:
        assert window is not None
        self.total.set(sum(row.n for row in rows))
        ctx.timers.event_time(window.end + 5)
        ctx.timers.event_time(window.end + 7)
        ctx.timers.delete_event_time(window.end + 7)
        ctx.timers.event_time(window.end + 90)
        ctx.timers.processing_time(ctx.processing_time + 3_000)

    def on_timer(self, fired: Timer, key: str, window: WindowBounds | None, ctx: WindowCtx) -> Iterator[Told]:
        assert window is not None
        time = "clock" if fired.is_processing_time else fired.time
        yield Told(key, f"{time} {window.start}", self.total.get(0))


def test_timers_of_a_window_fire_until_it_is_over() -> None:
    job = Job("reminded")
    windows = stream(job).key_by("key").window(tumbling(10)).allowed_lateness(50, results="accumulating")
    windows.process(Remind(), uid="remind").print(uid="out")
    with run(job, parallelism=2, rows=[]) as test:
        test.push(rows=[Row("a", 3, 1), Row("b", 4, 2), Row("a", 5, 11)])
        test.advance_to(12).restart(parallelism=1)
        assert test.rows("out") == []
        test.advance_to(17)
        assert sorted((row["key"], row["what"], row["n"]) for row in test.rows("out")) == [
            ("a", "15 0", 3),
            ("b", "15 0", 4),
        ]
        test.advance_to(21).crash(parallelism=3).advance_clock("3 s")
        clock = sorted((row["key"], row["what"]) for row in test.rows("out") if "clock" in row["what"])
        assert clock == [("a", "clock 0"), ("a", "clock 10"), ("b", "clock 0")]
        test.advance_to(200)
        of_time = sorted(row["what"] for row in test.rows("out") if "clock" not in row["what"])
        assert of_time == ["15 0", "15 0", "25 10"]
        assert all(row["state"]["onceflow.timers"] is None for row in test.state("remind.process-Remind"))


class SetsTimer(OfKey):
    def process(self, key: Any, window: WindowBounds | None, rows: list[Row], ctx: WindowCtx) -> Any:
        ctx.timers.event_time(1)


class Once(SetsTimer):
    def on_timer(self, fired: Timer, key: Any, window: WindowBounds | None, ctx: WindowCtx) -> None:
        pass


class Outside(OfKey):
    times = WindowState("times", int)

    def open(self, ctx: FunctionContext) -> None:
        self.times.set(1)


class Lists(OfKey):
    kept = OperatorListState("kept", int)


class Wrong(OfKey):
    def process(self, key: Any, window: WindowBounds | None, rows: list[Row], ctx: WindowCtx) -> Any:
        raise ValueError("not this one")


class InKeyed(KeyedProcess[str, Row, Told]):
    times = WindowState("times", int)

    def process(self, row: Row, ctx: Any) -> None:
        self.times.set(1)


def by_key() -> Any:
    return stream(Job("refused")).key_by("key")


def ran(windows: Callable[[Any], Any], process: Any) -> Callable[[], Any]:
    return lambda: told(windows, process, [1, 2])


TUMBLING = lambda rows: rows.key_by("key").window(tumbling(10))  # noqa: E731


@pytest.mark.parametrize(
    ("build", "said"),
    [
        (lambda: by_key().window(session(5)).process(Tell()), "but sessions become one, and what each had"),
        (
            lambda: by_key().window(processing_time(tumbling(5))).trigger(every_rows(1)).process(Tell()),
            "a window by the clock with a trigger may fire when it seems to be over",
        ),
        (ran(lambda rows: TUMBLING(rows).allowed_lateness(5), Tell()), 'results="accumulating"'),
        (ran(TUMBLING, SetsTimer()), r"SetsTimer sets a timer and has no on_timer\(\)"),
        (ran(TUMBLING, Once()), "a window that fires once, and is over then: give the windows a trigger"),
        (ran(TUMBLING, Outside()), r"state 'times' is one of a window: use it in process\(\)"),
        (lambda: by_key().window(tumbling(5)).process(Lists()), "the class has keys: use a ListState"),
        (ran(TUMBLING, Wrong()), r"Wrong.process failed on the window .* of key 'a' .*not this one"),
        (
            lambda: told(lambda rows: Keyed(rows), InKeyed(), [1]),
            r"state 'times' is one of a window: use it in process\(\) and clear\(\) of a WindowProcess",
        ),
    ],
)
def test_what_it_can_not_do_is_refused(build: Callable[[], Any], said: str) -> None:
    with pytest.raises(OnceflowError, match=said):
        build()


class Keyed:
    """The same call on a keyed stream."""

    def __init__(self, rows: Any) -> None:
        self.rows = rows

    def process(self, process: Any, uid: str) -> Any:
        return self.rows.key_by("key").process(process, uid=uid)
