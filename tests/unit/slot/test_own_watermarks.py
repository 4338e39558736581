"""Watermarks that records bring, and those of the user's own rule: by split, restored, refused."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from onceflow import Job
from onceflow.runtime.contracts import Fetch, WatermarkGenerator, WatermarkStrategy
from onceflow.runtime.errors import GraphError, UserFunctionError
from onceflow.runtime.records import WATERMARK_MAX_MS, WATERMARK_MIN_MS, Int64s
from onceflow.runtime.slot.event_time import SourceWatermarks, event_times
from onceflow.runtime.slot.own_watermarks import rule_of

MARKED = WatermarkStrategy.punctuated("marker", event_time="ts", idle_after=1_000)


class FarBehind(WatermarkGenerator):
    """The lowest time of what was read, if that is enough."""

    def on_records(self, event_times: Int64s) -> int | None:
        return int(event_times.min()) if len(event_times) > 1 else None


class Counting(WatermarkGenerator):
    """What it keeps is of one split."""

    def __init__(self) -> None:
        self.read = 0

    def on_records(self, event_times: Int64s) -> int | None:
        self.read += len(event_times)
        return self.read


class Source:
    """Watermarks of one subtask, as SourceTask drives them."""

    def __init__(self, strategy: WatermarkStrategy, restored: Mapping[str, int | None]) -> None:
        self.strategy = strategy
        self.watermarks = SourceWatermarks(strategy)
        self.rule = rule_of(strategy, "clicks")
        for split, progress in restored.items():
            self.watermarks.add_split(split, progress, False)
        self.now_ms = 0.0

    def read(self, *rows: tuple[str, int, int | None]) -> int:
        """Rows of (split, event time, marker)."""
        splits = tuple(dict.fromkeys(split for split, _, _ in rows))
        columns = {
            "ts": pa.array([ts for _, ts, _ in rows], pa.int64()),
            "marker": pa.array([marker for _, _, marker in rows], pa.int64()),
        }
        of_rows = np.array([splits.index(split) for split, _, _ in rows], np.uint16)
        found = Fetch(pa.record_batch(columns), of_rows, splits)
        return self.take(found)

    def take(self, found: Fetch) -> int:
        assert self.rule is not None
        times = event_times(found, self.strategy, "clicks")
        self.watermarks.observe_told(found, self.rule.watermarks(found, times))
        return self.now()

    def now(self) -> int:
        self.watermarks.advance(self.now_ms)
        return self.watermarks.current_ms


def two(strategy: WatermarkStrategy) -> Source:
    return Source(strategy, {"a": None, "b": None})


def test_the_watermark_is_the_highest_marker_of_each_split_and_the_lowest_of_both() -> None:
    source = two(MARKED)
    assert source.read(("a", 9, 7), ("a", 3, None), ("a", 50, 5)) == WATERMARK_MIN_MS, "b has said nothing"
    assert source.read(("b", 100, None)) == WATERMARK_MIN_MS
    assert source.read(("b", 100, 40), ("a", 1, None)) == 7
    assert source.read(("a", 8, 20)) == 20
    assert source.read(("a", 8, 10)) == 20, "it never goes back"


def test_a_marker_may_be_a_timestamp() -> None:
    source = Source(WatermarkStrategy.punctuated("at", event_time="ts"), {"a": None})
    at = pa.array([None, 5_000], pa.timestamp("us", "UTC"))
    batch = pa.record_batch({"ts": pa.array([1, 2]), "at": at})
    assert source.take(Fetch(batch, np.zeros(2, np.uint16), ("a",))) == 5


def test_records_without_a_marker_end_idleness() -> None:
    source = two(MARKED)
    source.read(("a", 1, 10), ("b", 1, 20))
    source.watermarks.at_end(["a"], source.now_ms)
    source.now_ms += 1_000
    assert source.now() == 20, "a is left out"
    source.read(("a", 1, None))
    assert not source.watermarks._splits["a"].is_idle
    assert source.read(("b", 1, 90)) == 20, "a holds it again"


def test_what_a_split_came_to_is_restored() -> None:
    source = two(MARKED)
    source.read(("a", 1, 10), ("b", 1, 20))
    again = Source(MARKED, source.watermarks.progress())
    assert again.now() == 10


@given(
    st.lists(
        st.tuples(st.sampled_from("ab"), st.integers(0, 99), st.none() | st.integers(0, 99)), max_size=30
    )
)
def test_however_rows_are_cut_into_fetches_the_markers_are_those(rows: list[Any]) -> None:
    whole, pieces = two(MARKED), two(MARKED)
    for row in rows:
        pieces.read(row)
    if rows:
        whole.read(*rows)
    assert whole.watermarks.progress() == pieces.watermarks.progress()


def test_each_split_has_a_generator_of_its_own() -> None:
    source = two(WatermarkStrategy.generated(Counting, event_time="ts"))
    assert source.read(("a", 5, None), ("a", 6, None), ("b", 7, None)) == 1
    assert source.read(("b", 7, None), ("b", 7, None)) == 2
    assert source.rule is not None
    source.rule.forget("a")
    assert source.read(("a", 1, None), ("b", 1, None)) == 2, "a begins again, and the watermark stays"


def test_a_generator_that_says_nothing_leaves_the_watermark() -> None:
    source = Source(WatermarkStrategy.generated(FarBehind, event_time="ts"), {"a": None})
    assert source.read(("a", 5, None)) == WATERMARK_MIN_MS
    assert source.read(("a", 9, None), ("a", 6, None)) == 6


@pytest.mark.parametrize(
    ("said", "watermark"), [(1 << 80, WATERMARK_MAX_MS - 2), (-(1 << 80), WATERMARK_MIN_MS)]
)
def test_only_the_end_of_the_input_is_the_end_of_time(said: int, watermark: int) -> None:
    class Wild(WatermarkGenerator):
        def on_records(self, event_times: Int64s) -> int | None:
            return said

    assert (
        Source(WatermarkStrategy.generated(Wild, event_time="ts"), {"a": None}).read(("a", 1, None))
        == watermark
    )


def _raises(_: Any, event_times: Int64s) -> int | None:
    raise ValueError("no such time")


@pytest.mark.parametrize(
    ("rule", "sentence"),
    [
        (_raises, r"operator 'clicks': _raises failed on 1 records of a \(at .*\): ValueError: no such time"),
        (lambda *_: "soon", "source 'clicks': Rule.on_records returned 'soon' for a: return a time in ms"),
        (lambda *_: True, "returned True"),
    ],
)
def test_a_generator_that_fails_is_named_with_its_split(rule: Callable[..., Any], sentence: str) -> None:
    generator: Any = type("Rule", (WatermarkGenerator,), {"on_records": rule})
    with pytest.raises(UserFunctionError, match=sentence):
        Source(WatermarkStrategy.generated(generator, event_time="ts"), {"a": None}).read(("a", 1, None))


def test_what_can_not_be_is_refused_when_the_graph_is_built() -> None:
    job = Job("clicks")
    rows = [{"ts": 1, "marker": "x"}]
    with pytest.raises(GraphError, match="watermark column 'marker' is string"):
        job.from_elements(
            *rows, watermarks=WatermarkStrategy.punctuated("marker", event_time="ts"), uid="clicks"
        )
    with pytest.raises(GraphError, match=r"no watermark column 'marked'.*did you mean 'marker'"):
        job.from_elements(
            *rows, watermarks=WatermarkStrategy.punctuated("marked", event_time="ts"), uid="clicks"
        )
    strategy = WatermarkStrategy.generated(Counting(), event_time="ts")  # type: ignore[arg-type]
    with pytest.raises(GraphError, match=r"can't be called: write the class, without \(\)"):
        job.from_elements(*rows, watermarks=strategy, uid="clicks")
