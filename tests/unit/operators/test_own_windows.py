"""Windows of the user's own: what assign() gets, what it may return, and what is said of anything else."""

from collections.abc import Callable
from typing import Any

import numpy as np
import polars as pl
import pyarrow as pa
import pytest

from onceflow import (
    FunctionContext,
    Job,
    WatermarkStrategy,
    WindowAssigner,
    count,
    count_distinct,
    every_rows,
    processing_time,
    sum_,
    tumbling,
)
from onceflow.runtime.checkpoint.state_comparison import windows_text
from onceflow.runtime.errors import GraphError, OptionError, UserFunctionError
from onceflow.runtime.operators.windows.window import WindowAggregate
from onceflow.runtime.testing.harness import OperatorHarness

SCHEMA = pa.schema([("user", pa.string()), ("amount", pa.int64()), ("unused", pa.int64())])
ROWS = pa.RecordBatch.from_pylist([{"user": "a", "amount": n, "unused": n} for n in (1, 2)], SCHEMA)


class Made(WindowAssigner):
    """What a function gives."""

    def __init__(self, made: Callable[[pa.RecordBatch, Any], Any]) -> None:
        self.made = made

    def assign(self, batch: pa.RecordBatch, event_time: Any) -> Any:
        return self.made(batch, event_time)


def sums(made: Callable[[pa.RecordBatch, Any], Any]) -> list[tuple[int, int, int]]:
    configured = WindowAggregate("w", ("user",), Made(made), {"total": sum_("amount")}, SCHEMA)
    harness = OperatorHarness(configured.create, ["user"])
    harness.push(ROWS, [3, 13])
    harness.finish()
    return sorted((row["window_start"], row["window_end"], row["total"]) for row in harness.rows())


@pytest.mark.parametrize(
    "made",
    [
        lambda batch, times: (times // 10 * 10, times // 10 * 10 + 10),
        lambda batch, times: (pa.array([0, 10]), pl.Series([10, 20])),
        lambda batch, times: ([0, 10], np.array([10, 20], np.int32)),
        lambda batch, times: ([1, 0], [10, 0], [20, 10]),
    ],
    ids=["numpy", "arrow and polars", "lists", "places"],
)
def test_arrays_of_any_kind_are_windows(made: Any) -> None:
    assert sums(made) == [(0, 10, 1), (10, 20, 2)]


def test_a_row_in_several_windows_or_in_none() -> None:
    assert sums(lambda batch, times: ([1, 1], [0, 5], [20, 20])) == [(0, 20, 2), (5, 20, 2)]
    assert sums(lambda batch, times: ([], [], [])) == []


def test_by_what_the_row_says() -> None:
    def as_long_as_the_amount(batch: pa.RecordBatch, times: Any) -> Any:
        return times, times + batch.column("amount").to_numpy()

    assert sums(as_long_as_the_amount) == [(3, 4, 1), (13, 15, 2)]


@pytest.mark.parametrize(
    ("made", "sentence"),
    [
        (lambda batch, times: times, r"Made.assign\(\) gave a ndarray: return \(starts, ends\), or"),
        (lambda batch, times: ([0], [10]), "1 starts and 1 ends: return one of each for each of 2 rows"),
        (lambda batch, times: ([0], [0, 1], [10]), "gave 1 places, 2 starts and 1 ends: return as many of"),
        (lambda batch, times: (times * 1.5, times), "gave starts of float64: give an array of whole numbers"),
        (lambda batch, times: ([0, 0], [None, 1]), "gave ends of object: give an array of whole numbers"),
        (lambda batch, times: ([[0]], [1]), "gave starts with 2 dimensions: give"),
        (lambda batch, times: ([0, 5], [1, 5]), "gave a window from 5 to 5: give an end behind the start"),
        (lambda batch, times: ([0, 0], [1, (1 << 63) - 1]), "at the end of time: give ms since the epoch"),
        (lambda batch, times: ([2], [0], [1]), "gave place 2, in a batch of 2 rows: give the places of"),
        (lambda batch, times: ([-1], [0], [1]), "gave place -1, in a batch"),
        (lambda batch, times: ([0, 1, 0], [0] * 3, [9] * 3), "window from 0 to 9 twice for one row"),
        (lambda batch, times: times.sort(), "read-only"),
        (lambda batch, times: batch["no"], "Made.assign"),
    ],
)
def test_what_is_no_window_is_refused(made: Any, sentence: str) -> None:
    with pytest.raises(UserFunctionError, match=sentence) as raised:
        sums(made)
    assert "operator 'w'" in str(raised.value)


class Opened(WindowAssigner):
    """Windows as long as a parameter of the job says."""

    length_ms = 0

    def open(self, ctx: FunctionContext) -> None:
        self.length_ms = int(ctx.params["length"])

    def assign(self, batch: pa.RecordBatch, event_time: Any) -> Any:
        starts = event_time // self.length_ms * self.length_ms
        return starts, starts + self.length_ms


def test_in_a_program() -> None:
    job = Job("own", params={"length": 10})
    times = WatermarkStrategy.monotonous("ts")
    rows = job.from_elements(*[{"user": "a", "ts": ts} for ts in (1, 2, 12)], watermarks=times).key_by("user")
    windows = rows.window(Opened())
    counted = windows.aggregate(n=count(), kinds=count_distinct("ts"))
    assert counted._input.step.name == "window by Opened by user", "as the plan shows it"
    counts = counted.collect()
    pairs = windows.trigger(every_rows(2), results="accumulating").aggregate(n=count()).collect()
    by_clock = rows.window(processing_time(Opened())).aggregate(n=count()).collect()
    job.run(master="threads[2]")
    assert [tuple(row.values()) for row in counts] == [("a", 0, 10, 2, 2), ("a", 10, 20, 1, 1)]
    assert [tuple(row.values()) for row in pairs] == [("a", 0, 10, 2)]
    assert sum(row["n"] for row in by_clock) == 3


def test_the_state_names_the_class() -> None:
    configured = WindowAggregate("w", ("user",), Made(lambda batch, times: ()), {"n": count()}, SCHEMA)
    assert configured.description.windows is not None
    assert windows_text(configured.description.windows) == "windows by Made"
    assert configured.columns_read == {"user", "amount", "unused"}


def test_mistakes() -> None:
    class WrongLife(Opened):
        def close(self, what: int) -> None: ...

    stream = Job("own").from_elements({"user": "a"}).key_by("user")
    with pytest.raises(GraphError, match="an object of a class derived from WindowAssigner"):
        stream.window(Opened)  # type: ignore[arg-type]
    with pytest.raises(GraphError, match="a window needs event time"):
        stream.window(Opened())
    with pytest.raises(GraphError, match="can't be called as `close"):
        stream.window(WrongLife())
    with pytest.raises(OptionError, match="derived from WindowAssigner"):
        processing_time(processing_time(tumbling("1 s")))  # type: ignore[arg-type]
