"""Sessions whose gap a function of the record says: what it may return, its life, and what is refused."""

from dataclasses import dataclass
from datetime import timedelta
from typing import Any

import pyarrow as pa
import pytest

from onceflow import FunctionContext, Job, WatermarkStrategy, count, processing_time, session
from onceflow.runtime.checkpoint.state_comparison import windows_text
from onceflow.runtime.errors import GraphError, UserFunctionError
from onceflow.runtime.operators.assigners.firings import ONCE
from onceflow.runtime.operators.assigners.own_gaps import OwnGap
from onceflow.runtime.operators.assigners.session import Session
from onceflow.runtime.operators.describe import windows_of
from onceflow.runtime.operators.windows.window import WindowAggregate
from onceflow.runtime.testing.harness import OperatorHarness
from onceflow.runtime.types.record_types import record_class
from onceflow.runtime.types.records_of_columns import RecordReader


@dataclass(frozen=True)
class View:
    user: str
    kind: str
    ts: int
    unused: int = 0


VIEWS = [View("ann", "film", 0), View("ann", "page", 50_000), View("ann", "page", 54_000)]
TIMES = WatermarkStrategy.monotonous("ts")


def visits(gap: Any, by_clock: bool = False) -> list[tuple[int, int, int]]:
    job = Job("visits")
    window = processing_time(session(gap)) if by_clock else session(gap)
    views = job.from_elements(*VIEWS, watermarks=TIMES, uid="views")
    rows = views.key_by("user").window(window).aggregate(n=count(), uid="visits").collect()
    job.run(master="threads[1]")
    return sorted((row["window_start"], row["window_end"], row["n"]) for row in rows)


@pytest.mark.parametrize(
    "gap",
    [
        lambda view: 60_000 if view.kind == "film" else 2_000,
        lambda view: timedelta(minutes=1) if view.kind == "film" else timedelta(seconds=2),
        lambda view: "1 min" if view.kind == "film" else "2 s",
    ],
    ids=["ms", "timedelta", "text"],
)
def test_a_function_of_the_record_says_the_gap(gap: Any) -> None:
    assert visits(gap) == [(0, 60_000, 3)], "the film goes on for a minute"
    assert visits(lambda view: 2_000) == [(0, 2_000, 1), (50_000, 52_000, 1), (54_000, 56_000, 1)]


def test_it_says_it_by_the_clock_too() -> None:
    [(start, end, n)] = visits(lambda view: "1 h", by_clock=True)
    assert n == 3
    assert end - start >= 3_600_000


def push(gap: Any) -> None:
    schema = pa.schema([("user", pa.string())])
    window = Session(0, OwnGap(gap, RecordReader(record_class(schema))))
    configured = WindowAggregate("w", ("user",), window, {"n": count()}, schema)
    OperatorHarness(configured.create, ["user"]).push(
        pa.RecordBatch.from_pylist([{"user": "ann"}], schema), [0]
    )


@pytest.mark.parametrize("gap", [0, -5, None, True, 1.5, "soon", timedelta(0), 1 << 70])
def test_what_is_no_gap_ends_the_job_with_a_sentence(gap: Any) -> None:
    said = r"session\(.*<lambda>\) gives .* for the record Record\(user="
    with pytest.raises(UserFunctionError, match=said):
        push(lambda view: gap)


def test_a_function_that_fails_is_named_with_its_record() -> None:
    with pytest.raises(UserFunctionError, match=r"<lambda> failed on the record .*ZeroDivisionError"):
        push(lambda view: 1 // 0)


def test_a_function_of_another_record_is_refused_when_the_graph_is_built() -> None:
    @dataclass
    class Click:
        button: str

    def pause(click: Click) -> int:
        return 1

    pause.__annotations__["click"] = Click
    views = Job("j").from_elements(*VIEWS, watermarks=TIMES, uid="views")
    with pytest.raises(GraphError, match="the stream has no column 'button'"):
        views.key_by("user").window(session(pause))


class Pauses:
    """A function object: what open makes says the gap."""

    gap_ms = 0

    def open(self, ctx: FunctionContext) -> None:
        self.gap_ms = 60_000

    def __call__(self, view: View) -> int:
        return self.gap_ms


def test_a_function_object_is_opened_once_for_each_subtask() -> None:
    pauses = Pauses()
    assert visits(pauses) == [(0, 114_000, 3)]
    assert pauses.gap_ms == 0, "each subtask has a copy"


def test_the_function_is_named_in_plans_and_comparisons() -> None:
    window = Session(0, OwnGap(Pauses()))
    assert window.title == "session with a gap by Pauses"
    assert windows_text(windows_of(window, ONCE)) == "sessions with a gap by Pauses"
