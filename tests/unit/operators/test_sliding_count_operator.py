"""Sliding count windows against a list of each key's rows: any batches, snapshots and parallelism."""

from typing import Any

import pyarrow as pa
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from onceflow.runtime.errors import Fatal, OptionError
from onceflow.runtime.kernels.ops import PLAIN, using
from onceflow.runtime.operators.aggregation.aggregates import collect_list, count, max_, quantile, sum_
from onceflow.runtime.operators.assigners.counting import CountWindow, count_window
from onceflow.runtime.operators.windows import sliding_count_operator
from onceflow.runtime.operators.windows.sliding_count_operator import Panes, SlidingCountOperator
from onceflow.runtime.operators.windows.window import WindowAggregate, WindowReduce
from onceflow.runtime.state.overflow import NO_ROWS, UNLIMITED, StateBackend
from onceflow.runtime.state.rocks.rocks_units import RocksUnits
from onceflow.runtime.testing.harness import OperatorHarness
from onceflow.runtime.testing.mutation import Mutant, mutated
from onceflow.runtime.testing.tight_state import INCREMENTAL, tight_rocksdb

SCHEMA = pa.schema([("user", pa.string()), ("amount", pa.int64())])
AGGREGATES = {
    "n": count(),
    "total": sum_("amount"),
    "high": max_("amount"),
    "all": collect_list("amount"),
    "half": quantile("amount", 0.5),
}
ROWS = st.lists(st.tuples(st.sampled_from("aaabc"), st.none() | st.integers(-9, 9)), max_size=12)
STEPS = st.lists(ROWS | st.sampled_from([1, 2, 3]), max_size=10)
SIZES = st.integers(2, 7).flatmap(lambda size: st.tuples(st.just(size), st.integers(1, size - 1)))


def config(size: int, slide: int) -> WindowAggregate:
    return WindowAggregate("w", ("user",), count_window(size, slide), AGGREGATES, SCHEMA)


def as_batch(rows: list[tuple[str, int | None]]) -> pa.RecordBatch:
    return pa.RecordBatch.from_pylist([{"user": u, "amount": n} for u, n in rows], SCHEMA)


def result(user: str, rows: list[tuple[int, int | None]]) -> tuple[Any, ...]:
    """What a window of these rows sends, and its event time."""
    known = sorted(amount for _, amount in rows if amount is not None)
    in_order = [amount for _, amount in rows if amount is not None]
    middle = (known[(len(known) - 1) // 2] + known[len(known) // 2]) / 2 if known else None
    values = (sum(known), known[-1], in_order, middle) if known else (None, None, None, None)
    return (user, len(rows), *values, rows[-1][0])


def check(steps: list[Any], size: int, slide: int, state: StateBackend = UNLIMITED) -> None:
    with using(PLAIN):
        create, clock = config(size, slide).create, 0
        harness = OperatorHarness(create, ["user"], state=state)
        came: dict[str, list[tuple[int, int | None]]] = {}
        expected: list[tuple[Any, ...]] = []
        found: list[tuple[Any, ...]] = []
        for step in steps:
            if isinstance(step, int):  # to so many subtasks
                states = harness.snapshot()
                if step > 1:
                    harness.push(as_batch([("a", 1)] * 7), [0] * 7)  # lost in the crash
                    harness.close()
                    harness = OperatorHarness(create, ["user"], step, states=states, state=state)
                continue
            for n, (user, amount) in enumerate(step):
                rows = came.setdefault(user, [])
                rows.append((1_000 - clock - n, amount))
                if len(rows) % slide == 0:
                    expected.append(result(user, rows[-size:]))
            harness.push(as_batch(step), [1_000 - clock - n for n in range(len(step))])
            clock += len(step)
            for _, records in harness.out.emitted:
                times = records.event_time.tolist()
                found += [
                    (*row.values(), time) for row, time in zip(records.batch.to_pylist(), times, strict=True)
                ]
            harness.out.emitted.clear()
        harness.finish()
        harness.close()
        assert harness.rows() == [], "a window that is not full sends nothing"
        for user in "abc":
            assert [r for r in found if r[0] == user] == [r for r in expected if r[0] == user]


@settings(max_examples=200, deadline=None)
@given(steps=STEPS, sizes=SIZES)
@example([[("a", 1)] * 5, 2, [("a", 2)] * 7, 3, [("a", 3)] * 2], (5, 3))
def test_each_result_is_of_the_last_rows(steps: list[Any], sizes: tuple[int, int]) -> None:
    check(steps, *sizes)


INCREMENTS = [[("a", 1)] * 5, 1, [("b", 1)] * 2, 1, [("a", 2)] * 3, 1, 2, [("b", 2)] * 5, [("a", 3)] * 5]


@settings(max_examples=80, deadline=None)
@given(steps=STEPS, sizes=SIZES)
@example(INCREMENTS, (5, 3))
def test_each_result_after_increments_is_of_the_last_rows(steps: list[Any], sizes: tuple[int, int]) -> None:
    check(steps, *sizes, INCREMENTAL)


@settings(max_examples=20, deadline=None)
@given(steps=STEPS, sizes=SIZES)
@example(INCREMENTS, (5, 3))
def test_each_result_from_rocksdb_is_of_the_last_rows(steps: list[Any], sizes: tuple[int, int]) -> None:
    with tight_rocksdb(rows_in_memory=1) as state:
        check(steps, *sizes, state)


def test_a_key_that_does_not_come_back_from_disk_is_found() -> None:
    mutant = Mutant("a key does not come back", [(RocksUnits, "_bring", lambda *_: NO_ROWS)])
    with mutated(mutant), tight_rocksdb(rows_in_memory=1) as state, pytest.raises(AssertionError):
        check([[("a", 1)] * 5, [("b", 1)] * 2, [("a", 2)] * 3, [("b", 2)] * 5], 5, 3, state)


original_let_go = SlidingCountOperator._let_go
original_so_far = SlidingCountOperator._rows_so_far


def let_go_too_early(self: SlidingCountOperator, panes: Panes, so_far: Any) -> None:
    """A pane goes while its last window is to come."""
    original_let_go(self, panes, so_far + self._slide)


def count_what_is_there(self: SlidingCountOperator, panes: Panes, key_count: int) -> Any:
    """Rows are counted from the earliest pane that there is."""
    lowest = panes.firsts.min() if len(panes.firsts) else 0
    return original_so_far(self, panes, key_count) - lowest


@pytest.mark.parametrize(
    "mutant",
    [
        Mutant("panes go too early", [(SlidingCountOperator, "_let_go", let_go_too_early)]),
        Mutant(
            "rows that went are not counted", [(SlidingCountOperator, "_rows_so_far", count_what_is_there)]
        ),
    ],
    ids=lambda mutant: mutant.title,
)
def test_mutant_is_killed(mutant: Mutant) -> None:
    with mutated(mutant), pytest.raises(AssertionError):
        check([[("a", n)] for n in range(12)], 5, 3)


def test_panes_that_stay_are_found() -> None:
    mutant = Mutant("panes are never let go", [(SlidingCountOperator, "_let_go", lambda *_: None)])
    with mutated(mutant), pytest.raises(AssertionError):
        test_a_key_keeps_what_its_next_window_needs()


def test_a_key_keeps_what_its_next_window_needs() -> None:
    harness = OperatorHarness(config(6, 2).create, ["user"])
    for n in range(500):
        harness.push(as_batch([("a", n)]), [0])
    panes = [batch for state in harness.snapshot() for batch in state.batches("count_panes")]
    kept = [row for batch in panes for row in batch.select(["first", "rows"]).to_pylist()]
    assert sorted(kept, key=lambda row: row["first"]) == [
        {"first": 496, "rows": 2},
        {"first": 498, "rows": 2},
    ]


def test_many_windows_of_a_batch_are_merged_in_pieces() -> None:
    rows = sliding_count_operator._MERGED_MAX // 100 * 3
    window = CountWindow(200, 1)
    configured = WindowAggregate("w", ("user",), window, {"total": sum_("amount")}, SCHEMA)
    harness = OperatorHarness(configured.create, ["user"])
    harness.push(as_batch([("a", 1)] * rows), [0] * rows)
    assert len(harness.out.emitted) > 2
    assert [row["total"] for row in harness.rows()] == [min(n + 1, 200) for n in range(rows)]


def test_reduce_joins_what_was_reduced() -> None:
    def add(one: Any, other: Any) -> Any:
        return other._replace(amount=one.amount + other.amount)

    window = CountWindow(3, 2)
    harness = OperatorHarness(WindowReduce("w", ("user",), window, add, SCHEMA).create, ["user"])
    harness.push(as_batch([("a", n) for n in range(7)]), [0] * 7)
    assert [row["amount"] for row in harness.rows()] == [1, 6, 12]


def test_mistakes() -> None:
    with pytest.raises(OptionError, match="slides by at least 1 row"):
        count_window(5, slide=0)
    with pytest.raises(OptionError, match="would be in none; use at most slide=5"):
        count_window(5, slide=6)
    assert count_window(5, slide=5) == count_window(5)
    assert count_window(5, slide=2).title == "of 5 rows every 2"
    for rows in ([("a", 1 << 62), ("a", 1 << 62)], [("a", 1 << 62), ("a", 0), ("a", 1 << 62), ("a", 0)]):
        harness = OperatorHarness(config(4, 2).create, ["user"])
        with pytest.raises(Fatal, match="for user='a' in a window of its last 4 rows"):
            harness.push(as_batch(rows), [0] * len(rows))
