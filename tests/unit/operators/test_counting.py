"""Count windows against a naive list: any batches, keys, snapshots and parallelism."""

from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from onceflow.runtime.errors import Fatal, OptionError
from onceflow.runtime.kernels.ops import PLAIN, using
from onceflow.runtime.operators.aggregation.aggregates import count, last, max_, sum_
from onceflow.runtime.operators.assigners.counting import CountWindow, count_window
from onceflow.runtime.operators.windows.window import WindowAggregate, WindowReduce
from onceflow.runtime.state.overflow import UNLIMITED, StateBackend
from onceflow.runtime.testing.harness import OperatorHarness
from onceflow.runtime.testing.tight_state import tight_rocksdb

SCHEMA = pa.schema([("user", pa.string()), ("amount", pa.int64())])
ROWS = st.lists(st.tuples(st.sampled_from("abc"), st.none() | st.integers(-9, 9)), max_size=12)
STEPS = st.lists(ROWS | st.sampled_from([1, 2, 3]), max_size=10)


def config(rows: int) -> WindowAggregate:
    aggregates = {"n": count(), "total": sum_("amount"), "high": max_("amount"), "last": last("amount")}
    return WindowAggregate("w", ("user",), CountWindow(rows), aggregates, SCHEMA)


def as_batch(rows: list[tuple[str, int | None]]) -> pa.RecordBatch:
    return pa.RecordBatch.from_pylist([{"user": u, "amount": n} for u, n in rows], SCHEMA)


@settings(max_examples=100, deadline=None)
@given(steps=STEPS, size=st.integers(1, 5))
def test_each_window_has_exactly_its_rows(steps: list[Any], size: int) -> None:
    check_against_lists(steps, size, UNLIMITED)


@settings(max_examples=15, deadline=None)
@given(steps=STEPS, size=st.integers(1, 5))
def test_each_window_in_rocksdb_has_exactly_its_rows(steps: list[Any], size: int) -> None:
    with tight_rocksdb(rows_in_memory=1) as state:
        check_against_lists(steps, size, state)


def check_against_lists(steps: list[Any], size: int, state: StateBackend) -> None:
    with using(PLAIN):
        harness, clock = OperatorHarness(config(size).create, ["user"], state=state), 0
        waiting: dict[str, list[int | None]] = {}
        expected: list[tuple[Any, ...]] = []
        found: list[tuple[Any, ...]] = []
        for step in steps:
            if isinstance(step, int):  # to so many subtasks
                states = harness.snapshot()
                harness.push(as_batch([("a", 1)] * 7), [0] * 7)  # lost in the crash
                harness.close()
                harness = OperatorHarness(config(size).create, ["user"], step, states=states, state=state)
                continue
            for user, amount in step:
                waiting.setdefault(user, []).append(amount)
                if len(waiting[user]) == size:
                    known = [n for n in waiting.pop(user) if n is not None]
                    best = (sum(known), max(known), known[-1]) if known else (None, None, None)
                    expected.append((user, size, *best))
            harness.push(as_batch(step), range(clock, clock + len(step)))
            clock += len(step)
            found += [tuple(row.values()) for row in harness.rows()]
            harness.out.emitted.clear()
        harness.finish()
        harness.close()
        assert harness.rows() == [], "a window that is not full sends nothing"
        for user in "abc":
            assert [r for r in found if r[0] == user] == [r for r in expected if r[0] == user]


def test_a_result_has_the_event_time_of_its_last_row() -> None:
    harness = OperatorHarness(config(2).create, ["user"])
    harness.push(as_batch([("a", 1), ("b", 1), ("a", 2), ("a", 3)]), [9, 3, 5, 1])
    [(_, records)] = harness.out.emitted
    assert records.event_time is not None
    assert records.event_time.tolist() == [5]


def test_keys_whose_windows_were_full_are_forgotten() -> None:
    harness = OperatorHarness(config(1).create, ["user"])
    many = as_batch([(f"u{n}", n) for n in range(3_000)])
    harness.push(many, [0] * 3_000)
    assert sum(batch.num_rows for state in harness.snapshot() for batch in state.batches("counts")) == 0
    harness.push(many, [0] * 3_000)
    assert len(harness.rows()) == 6_000


def test_reduce_over_so_many_rows() -> None:
    def add(one: Any, other: Any) -> Any:
        return other._replace(amount=one.amount + other.amount)

    harness = OperatorHarness(WindowReduce("w", ("user",), CountWindow(2), add, SCHEMA).create, ["user"])
    harness.push(as_batch([("a", n) for n in range(5)]), [0] * 5)
    assert [row["amount"] for row in harness.rows()] == [1, 5]


def test_mistakes() -> None:
    with pytest.raises(OptionError, match="at least 1 row"):
        count_window(0)
    harness = OperatorHarness(config(2).create, ["user"])
    with pytest.raises(Fatal, match="for user='a' in the window that is not full"):
        harness.push(as_batch([("a", 1 << 62), ("a", 1 << 62)]), [0, 0])
