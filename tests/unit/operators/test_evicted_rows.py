"""Rows that are left out when a window fires, against lists: any batches, restores and parallelism."""

from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from onceflow.runtime.errors import UserFunctionError
from onceflow.runtime.kernels.ops import PLAIN, using
from onceflow.runtime.operators.aggregation.aggregates import BuiltinAggregate, Kind
from onceflow.runtime.operators.aggregation.evicted_rows import (
    ChosenRows,
    EvictedRows,
    Eviction,
    LastRows,
    LatestRows,
    NearRows,
)
from onceflow.runtime.operators.assigners.firings import ONCE, Firings, Results
from onceflow.runtime.operators.assigners.global_window import GlobalWindow
from onceflow.runtime.operators.assigners.sliding import sliding
from onceflow.runtime.operators.triggers.built_in import every_rows
from onceflow.runtime.operators.windows.new_spans import Window
from onceflow.runtime.operators.windows.window import WindowAggregate
from onceflow.runtime.state.overflow import UNLIMITED, StateBackend
from onceflow.runtime.testing.harness import OperatorHarness
from onceflow.runtime.testing.mutation import Mutant, mutated
from onceflow.runtime.testing.tight_state import INCREMENTAL, tight_rocksdb
from onceflow.runtime.types.record_types import record_class
from onceflow.runtime.types.records_of_columns import RecordReader

SCHEMA = pa.schema([("user", pa.string()), ("price", pa.int64())])
Came = tuple[int, int | None]
"""A row's event time and price."""


def keeps_other_than_the_first(records: list[Any], timestamps: list[int]) -> list[bool]:
    assert len(records) == len(timestamps)
    return [place > 0 and record.price != 0 for place, record in enumerate(records)]


EVICTIONS: dict[str, tuple[Eviction, Callable[[list[Came]], list[Came]]]] = {
    "count": (LastRows(3, "3"), lambda rows: rows[-3:]),
    "time": (LatestRows(7, "7"), lambda rows: [r for r in rows if r[0] > max(t for t, _ in rows) - 7]),
    "delta": (
        NearRows("price", 2, "2"),
        lambda rows: [r for r in rows if r[1] is None or rows[-1][1] is None or abs(r[1] - rows[-1][1]) < 2],
    ),
    "own": (
        ChosenRows(
            "w",
            keeps_other_than_the_first,
            keeps_other_than_the_first,
            RecordReader(record_class(SCHEMA)),
            "own",
        ),
        lambda rows: [r for r in rows[1:] if r[1] != 0],
    ),
}
ROWS = st.lists(
    st.tuples(st.integers(0, 20), st.sampled_from("ab"), st.none() | st.integers(0, 3)), max_size=6
)
STEPS = st.lists(ROWS | st.sampled_from([1, 2, 3]), max_size=8)


def configured(eviction: Eviction, window: Window, firings: Firings = ONCE) -> WindowAggregate:
    aggregates = {"rows": BuiltinAggregate(Kind.EVICTED_ROWS, eviction=eviction)}
    return WindowAggregate("w", ("user",), window, aggregates, SCHEMA, firings=firings)


def opened(config: WindowAggregate, parallelism: int, states: Any, state: StateBackend) -> OperatorHarness:
    return OperatorHarness(config.create, ["user"], parallelism, states=states, state=state)


def push(to: OperatorHarness, rows: list[Any]) -> None:
    batch = pa.RecordBatch.from_pylist([{"user": user, "price": price} for _, user, price in rows], SCHEMA)
    to.push(batch, [time for time, _, _ in rows])


def check(steps: list[Any], kind: str, every: int, state: StateBackend = UNLIMITED) -> None:
    eviction, left = EVICTIONS[kind]
    firings = Firings(0, Results.ACCUMULATING, every_rows(every))
    with using(PLAIN):
        config = configured(eviction, GlobalWindow(), firings)
        harness, kept, counts = opened(config, 1, None, state), dict[str, Any](), dict[str, int]()
        expected: list[Any] = []
        found: list[Any] = []
        for step in steps:
            if isinstance(step, int):
                states = harness.snapshot()
                if step > 1:
                    push(harness, [(9, user, 1) for user in "ab"] * 5)  # lost in the crash
                    harness.close()
                    harness = opened(config, step, states, state)
                continue
            for time, user, price in step:
                kept.setdefault(user, []).append((time, price))
                counts[user] = counts.get(user, 0) + 1
                if counts[user] % every == 0:
                    kept[user] = left(kept[user])
                    expected.append((user, [price for _, price in kept[user]]))
            push(harness, step)
            found += [(row["user"], [r["price"] for r in row["rows"]]) for row in harness.rows()]
            harness.out.emitted.clear()
    harness.close()
    for user in "ab":
        assert [row for row in found if row[0] == user] == [row for row in expected if row[0] == user]


@settings(max_examples=150, deadline=None)
@given(steps=STEPS, kind=st.sampled_from([*EVICTIONS]), every=st.integers(1, 3))
@example([[(0, "a", 1)] * 2, 2, [(1, "a", 2)] * 2], "own", 2)
def test_what_is_left_out_is_gone(steps: list[Any], kind: str, every: int) -> None:
    check(steps, kind, every)


@settings(max_examples=60, deadline=None)
@given(steps=STEPS, kind=st.sampled_from([*EVICTIONS]), every=st.integers(1, 3))
@example([[(0, "a", 1)] * 2, 1, [(1, "a", 2)], 1, [(1, "a", 2)], 1, 2, [(2, "a", 2)] * 2], "own", 2)
def test_what_is_left_out_is_gone_from_increments(steps: list[Any], kind: str, every: int) -> None:
    check(steps, kind, every, INCREMENTAL)


@settings(max_examples=15, deadline=None)
@given(steps=STEPS, kind=st.sampled_from([*EVICTIONS]), every=st.integers(1, 3))
@example([[(0, "a", 1)] * 2, [(0, "b", 1)], [(1, "a", 2)], 2, [(1, "b", 2)], [(1, "a", 2)]], "own", 2)
def test_what_is_left_out_is_gone_from_rocksdb(steps: list[Any], kind: str, every: int) -> None:
    with tight_rocksdb(rows_in_memory=1) as state:
        check(steps, kind, every, state)


original_results = EvictedRows.results


def kept_for_the_next_time(self: EvictedRows, rows: Any) -> Any:
    """What is left out of a result is in the next one."""
    lists = self._lists.copy()
    made = original_results(self, rows)
    self._lists = lists
    return made


def test_rows_that_come_back_are_found() -> None:
    mutant = Mutant("what is left out comes back", [(EvictedRows, "results", kept_for_the_next_time)])
    with mutated(mutant), pytest.raises(AssertionError):
        check([[(0, "a", 1)] * 2, [(1, "a", 2)] * 2], "own", 2)


def test_a_window_that_slides_leaves_the_rows_of_the_next_one() -> None:
    harness = OperatorHarness(configured(LastRows(1, "1"), sliding(20, 10)).create, ["user"])
    push(harness, [(0, "a", 1), (12, "a", 2), (11, "a", 3)])
    harness.finish()
    found = [(row["window_start"], [r["price"] for r in row["rows"]]) for row in harness.rows()]
    assert found == [(-10, [1]), (0, [3]), (10, [3])]


def test_a_snapshot_has_the_rows_as_they_were() -> None:
    firings = Firings(0, Results.ACCUMULATING, every_rows(3))
    harness = OperatorHarness(configured(LastRows(1, "1"), GlobalWindow(), firings).create, ["user"])
    push(harness, [(5, "a", 1), (6, "a", 2)])
    [state] = harness.snapshot()
    push(harness, [(7, "a", 3)])
    [value] = [row for batch in state.batches("spans") for row in batch["value"].to_pylist()]
    assert [row["row"]["price"] for row in value["rows"]] == [1, 2]
    assert [row["event_time"] for row in value["rows"]] == [5, 6]
    part = configured(LastRows(1, "the last row"), GlobalWindow(), firings).description.parts[0]
    assert (part.kind, part.function) == ("evicted_rows", "the last row")


def test_a_wrong_number_of_answers_is_told() -> None:
    def says_too_little(records: list[Any], timestamps: list[int]) -> list[bool]:
        return [True]

    rule = ChosenRows("w", says_too_little, says_too_little, RecordReader(record_class(SCHEMA)), "own")
    harness = OperatorHarness(configured(rule, sliding(10, 5)).create, ["user"])
    push(harness, [(1, "a", 1), (2, "a", 2)])
    with pytest.raises(UserFunctionError, match="says_too_little said of 1 records whether they stay, and"):
        harness.finish()
