"""Event time at a source: exact under skew, idle splits out and back in, restored, never going back."""

from __future__ import annotations

import random

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from onceflow.runtime.contracts import Fetch, WatermarkStrategy
from onceflow.runtime.errors import Fatal
from onceflow.runtime.records import WATERMARK_MAX_MS, WATERMARK_MIN_MS
from onceflow.runtime.slot.event_time import (
    SILENT_AFTER_MS,
    SourceWatermarks,
    event_times,
    said_of_silent,
)

BOUND_MS = 2_000
STRATEGY = WatermarkStrategy.bounded_out_of_orderness(BOUND_MS, event_time="ts", idle_after=30_000)


def fetch(rows: list[tuple[str, int]]) -> Fetch:
    """(split, event time) of each row."""
    splits = tuple(dict.fromkeys(split for split, _ in rows))
    return Fetch(
        pa.record_batch({"ts": pa.array([ts for _, ts in rows], pa.int64())}),
        np.array([splits.index(split) for split, _ in rows], np.uint16),
        splits,
    )


class Source:
    """Watermarks of one subtask, as SourceTask drives them."""

    def __init__(self, *splits: str, strategy: WatermarkStrategy = STRATEGY) -> None:
        self.strategy = strategy
        self.watermarks = SourceWatermarks(strategy)
        for split in splits:
            self.watermarks.add_split(split, None, False)
        self.now_ms = 0.0

    def read(self, *rows: tuple[str, int]) -> int:
        found = fetch(list(rows))
        self.watermarks.observe(found, event_times(found, self.strategy, "s"))
        self.watermarks.advance(self.now_ms)
        return self.watermarks.current_ms

    def punctuate(self, **watermarks: int) -> int:
        self.watermarks.punctuate(watermarks)
        self.watermarks.advance(self.now_ms)
        return self.watermarks.current_ms

    def wait(self, ms: float, at_end: tuple[str, ...] = ()) -> int:
        self.watermarks.at_end(at_end, self.now_ms)
        self.now_ms += ms
        self.watermarks.advance(self.now_ms)
        return self.watermarks.current_ms


def test_the_watermark_is_the_highest_time_less_the_bound_less_one() -> None:
    assert Source("a").read(("a", 10_000), ("a", 9_000)) == 10_000 - BOUND_MS - 1


def test_a_split_without_a_record_yet_holds_it_back() -> None:
    source = Source("a", "b")
    assert source.read(("a", 10_000)) == WATERMARK_MIN_MS
    assert source.read(("b", 5_000)) == 5_000 - BOUND_MS - 1


def test_a_split_that_is_hours_ahead_moves_nothing() -> None:
    source = Source("a", "b")
    source.read(("a", 10_000), ("b", 10_000))
    assert source.read(("a", 10_000 + 7_200_000)) == 10_000 - BOUND_MS - 1
    assert source.read(("b", 11_000)) == 11_000 - BOUND_MS - 1


@given(st.integers(0, 2**32), st.integers(1, 6))
def test_a_backlog_read_at_any_pace_makes_no_record_late(seed: int, splits: int) -> None:
    """Records of each split are out of order within the bound; splits are read at unequal pace, and the
    last record of one is hours ahead. No record may be behind the watermark of before it was read."""
    chance = random.Random(seed)
    names = [f"t-{n}" for n in range(splits)]
    left = {
        name: sorted(range(0, 50_000, 250), key=lambda ts: ts + chance.uniform(0, BOUND_MS)) for name in names
    }
    left[names[0]].append(7_200_000)
    source = Source(*names)
    before = WATERMARK_MIN_MS
    while any(left.values()):
        name = chance.choice([n for n in names if left[n]])
        count = chance.randint(1, 60)
        rows, left[name] = left[name][:count], left[name][count:]
        assert all(ts > before for ts in rows), "late"
        after = source.read(*((name, ts) for ts in rows))
        assert after >= before, "went back"
        before = after


def test_what_the_source_itself_knows_of_event_time_raises_the_watermark_and_never_lowers_it() -> None:
    source = Source("a", "b")
    source.read(("a", 10_000), ("b", 1_000))
    assert source.punctuate(b=5_000) == 5_000, "and not two seconds less: it is a watermark, no row"
    assert source.punctuate(b=2_000) == 5_000
    source.wait(15_000, at_end=("b",))
    assert source.wait(15_000) == 10_000 - BOUND_MS - 1, "b is idle"
    assert source.punctuate(b=6_000) == 10_000 - BOUND_MS - 1
    restored = Source("a", "b")
    for split, highest_ms in source.watermarks.progress().items():
        restored.watermarks.add_split(split, highest_ms, False)
    restored.watermarks.advance(0)
    assert restored.watermarks.current_ms == 6_000, "a restore has it, too"


def test_an_idle_split_is_left_out_and_comes_back_without_the_watermark_going_back() -> None:
    source = Source("a", "b")
    source.read(("a", 10_000), ("b", 8_000))
    assert source.wait(29_999, at_end=("b",)) == 8_000 - BOUND_MS - 1, "not idle yet"
    assert source.wait(1) == 10_000 - BOUND_MS - 1, "idle"
    assert source.read(("a", 60_000)) == 60_000 - BOUND_MS - 1
    assert source.read(("b", 9_000)) == 60_000 - BOUND_MS - 1, "back, and nothing goes back"
    assert source.read(("a", 90_000)) == 60_000 - BOUND_MS - 1, "it counts again"


def test_a_split_is_idle_only_by_its_end_never_by_a_slow_broker() -> None:
    source = Source("a", "b")
    source.read(("a", 10_000), ("b", 8_000))
    assert source.wait(3_600_000) == 8_000 - BOUND_MS - 1
    assert not source.watermarks.is_idle


def test_a_record_starts_the_idle_clock_anew() -> None:
    source = Source("a", "b")
    source.read(("a", 10_000), ("b", 8_000))
    source.wait(20_000, at_end=("b",))
    source.read(("b", 8_100))
    assert source.wait(20_000, at_end=("b",)) == 8_100 - BOUND_MS - 1
    assert source.wait(10_000) == 10_000 - BOUND_MS - 1


def test_a_paused_split_is_never_idle_and_holds_the_watermark() -> None:
    source = Source("a", "b")
    source.read(("a", 10_000), ("b", 8_000))
    source.wait(20_000, at_end=("b",))
    source.watermarks.pause(["b"])
    assert source.wait(3_600_000, at_end=("b",)) == 8_000 - BOUND_MS - 1
    source.watermarks.resume(["b"])
    assert source.wait(29_999, at_end=("b",)) == 8_000 - BOUND_MS - 1, "the idle clock starts anew"
    assert source.wait(1) == 10_000 - BOUND_MS - 1


def test_a_forgotten_split_does_not_count_and_without_any_the_source_is_idle() -> None:
    source = Source("a", "b")
    source.read(("a", 10_000), ("b", 8_000))
    source.watermarks.finish(["b"])
    source.watermarks.forget("b")
    assert source.wait(0) == 10_000 - BOUND_MS - 1
    assert source.watermarks.progress() == {"a": 10_000}
    source.watermarks.finish(["a"])
    source.watermarks.forget("a")
    assert source.watermarks.is_idle, "nothing to read: others are not held up"
    assert source.watermarks.current_ms == 10_000 - BOUND_MS - 1


def test_without_idle_after_an_empty_split_holds_for_ever() -> None:
    source = Source("a", "b", strategy=WatermarkStrategy.monotonous("ts"))
    source.read(("a", 10_000))
    assert source.wait(86_400_000, at_end=("b",)) == WATERMARK_MIN_MS


def test_all_idle_is_idle_and_a_source_without_splits_is_too() -> None:
    source = Source("a")
    source.read(("a", 1))
    source.wait(30_000, at_end=("a",))
    assert source.watermarks.is_idle
    assert Source().watermarks.is_idle
    source.watermarks.add_split("new", None, False)
    assert not source.watermarks.is_idle, "a split that was just found counts at once"


def test_a_finished_split_does_not_count_and_all_finished_is_no_idleness() -> None:
    source = Source("a", "b")
    source.read(("a", 10_000), ("b", 8_000))
    source.watermarks.finish(["b"])
    assert source.wait(0) == 10_000 - BOUND_MS - 1
    source.watermarks.finish(["a"])
    assert source.watermarks.is_finished
    assert not source.watermarks.is_idle
    assert source.wait(0) == 10_000 - BOUND_MS - 1, "the end of time is the task's to say"


def test_a_restored_split_goes_on_from_its_highest_time() -> None:
    """Without it a split read to its end before the checkpoint would hold event time at the beginning."""
    source = Source("a", "b")
    source.read(("a", 10_000), ("b", 8_000))
    progress = source.watermarks.progress()
    assert progress == {"a": 10_000, "b": 8_000}
    restored = Source()
    for split, highest in progress.items():
        restored.watermarks.add_split(split, highest, False)
    assert restored.wait(0) == 8_000 - BOUND_MS - 1


@pytest.mark.parametrize("time_ms", [WATERMARK_MIN_MS, WATERMARK_MIN_MS + 5, WATERMARK_MAX_MS, -1, 0])
def test_no_time_is_beyond_the_range(time_ms: int) -> None:
    found = Source("a").read(("a", time_ms))
    assert WATERMARK_MIN_MS <= found < WATERMARK_MAX_MS, "the end of time is said at the end of input only"


def test_event_time_is_an_integer_column_or_a_timestamp_of_any_unit() -> None:
    for unit, factor in (("s", 1), ("ms", 1_000), ("us", 1_000_000), ("ns", 1_000_000_000)):
        column = pa.array([17 * factor], pa.int64()).cast(pa.timestamp(unit, tz="Europe/Berlin"))
        batch = Fetch(pa.record_batch({"ts": column}), np.zeros(1, np.uint16), ("a",))
        assert event_times(batch, STRATEGY, "s").tolist() == [17_000]


def test_without_a_column_it_is_the_records_own_timestamp() -> None:
    plain = fetch([("a", 1)])
    batch = Fetch(plain.records, plain.row_split, plain.splits, timestamp_ms=np.array([99], np.int64))
    assert event_times(batch, WatermarkStrategy.monotonous(), "s").tolist() == [99]


@pytest.mark.parametrize(
    ("offset", "where"), [(None, "of b:"), (np.array([7, 8, 9], np.int64), "of b at offset 8:")]
)
def test_a_record_without_event_time_is_named(offset: np.ndarray | None, where: str) -> None:
    column = pa.array([1, None, 3], pa.int64())
    rows = Fetch(pa.record_batch({"ts": column}), np.array([0, 1, 0], np.uint16), ("a", "b"), offset=offset)
    with pytest.raises(
        Fatal, match=f"source 'purchases': the event-time column 'ts' is null in a record {where}"
    ):
        event_times(rows, STRATEGY, "purchases")


def test_regression_an_empty_split_that_goes_idle_with_the_others_does_not_hold_their_results() -> None:
    source = Source("a", "b", "empty")
    source.read(("a", 50_000), ("b", 10_000))
    assert source.watermarks.current_ms == WATERMARK_MIN_MS
    assert source.wait(30_000, at_end=("a", "b", "empty")) == 10_000 - BOUND_MS - 1
    assert source.watermarks.is_idle


def test_regression_nothing_is_idle_only_because_nobody_polled() -> None:
    """A process was frozen, or its outputs were full: what came meanwhile has not been seen yet."""
    source = Source("a", "b")
    source.read(("a", 10_000), ("b", 10_000))
    source.wait(1, at_end=("a", "b"))
    assert source.wait(3_600_000) == 10_000 - BOUND_MS - 1
    assert source.read(("a", 900_000)) == 10_000 - BOUND_MS - 1, "b is not idle"
    source.wait(29_999)
    assert source.wait(1) == 900_000 - BOUND_MS - 1


def test_a_split_that_holds_event_time_and_has_nothing_to_read_is_named() -> None:
    endless = WatermarkStrategy.bounded_out_of_orderness(BOUND_MS, event_time="ts")
    source = Source("a", "b", "empty", strategy=endless)
    silent = lambda: source.watermarks.silent(source.now_ms)  # noqa: E731 - read each time
    source.read(("a", 1_000), ("b", 1_000 + SILENT_AFTER_MS))
    source.wait(SILENT_AFTER_MS - 1, at_end=("a", "b", "empty"))
    assert silent() == [], "it may be a pause"
    source.wait(1)
    assert silent() == ["a", "empty"], "the one without a record, and the one that is far behind"
    source.read(("a", 2_000))
    assert silent() == ["empty"], "a record has come, and it is not so far behind"
    source.read(("empty", 5_000))
    source.wait(SILENT_AFTER_MS, at_end=("a", "b", "empty"))
    assert silent() == [], "none is far behind another"


def test_a_split_that_is_idle_or_unread_or_has_finished_is_not_named() -> None:
    source = Source("read", "idle", "paused", "over", "behind")
    source.wait(0, at_end=("idle", "paused", "over"))
    source.watermarks.pause(["paused"])
    source.watermarks.finish(["over"])
    source.wait(20_000)
    assert source.watermarks.silent(source.now_ms) == ["idle"]
    source.wait(10_000)
    assert source.watermarks.silent(source.now_ms) == [], "nor is one that is not at its end"


def test_what_is_said_of_silent_splits() -> None:
    assert said_of_silent("orders", []) == ""
    assert said_of_silent("orders", ["t-1"]) == (
        "source 'orders': event time waits for t-1, where nothing comes: give its watermarks idle_after="
    )
    assert "t-0, t-1, t-2, t-3, t-4 and 3 more, where" in said_of_silent("o", [f"t-{n}" for n in range(8)])
