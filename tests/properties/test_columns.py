"""Columns by slot against a list: whatever is grown, set, kept and frozen, in any order."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from onceflow.runtime.operators.aggregation.accumulator import valid_arrivals
from onceflow.runtime.operators.aggregation.accumulators import WordExtreme
from onceflow.runtime.operators.aggregation.sums import IntegerSum
from onceflow.runtime.state.columns import FreezableColumn, GrowableColumn
from onceflow.runtime.state.table import LiveRows
from onceflow.runtime.state.values import WordColumn

FILL = 7
GROWN_PLACES = st.integers(0, 3_000)  # a column begins with 1,024
STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("grow"), GROWN_PLACES),
        st.tuples(st.just("reserve"), GROWN_PLACES),
        st.tuples(st.just("keep"), st.randoms(use_true_random=False)),
        st.tuples(st.just("view"), st.booleans()),
    ),
    max_size=12,
)


@pytest.mark.parametrize("kind", [GrowableColumn, FreezableColumn])
@given(steps=STEPS)
def test_new_places_hold_the_fill_wherever_their_memory_was_before(
    kind: type[GrowableColumn], steps: list[tuple[str, Any]]
) -> None:
    column = kind(np.int64, FILL)
    expected: list[int] = []
    views: list[tuple[Any, list[int]]] = []
    for number, (step, argument) in enumerate(steps):
        match step:
            case "grow":
                new = max(0, argument - len(expected))
                column.grow(argument)
                assert column.used().tolist() == expected + [FILL] * new
                expected += [-number] * new
                column.values[len(expected) - new : len(expected)] = -number
            case "reserve":
                column.reserve(argument)
            case "keep":
                kept = sorted(argument.sample(range(len(expected)), argument.randint(0, len(expected))))
                column.keep(np.array(kept, np.int64))
                expected = [expected[i] for i in kept]
            case "view":
                views = [(column.used(), list(expected))] if argument else []
        assert len(column) == len(expected)
        assert column.used().tolist() == expected
        for view, values in views:
            assert view.tolist() == values


SLOTS_MAX = 40
BATCH = st.lists(
    st.tuples(st.integers(0, SLOTS_MAX), st.one_of(st.none(), st.integers(-5, 5))), min_size=1, max_size=30
)
OPERATIONS = st.lists(
    st.one_of(
        st.tuples(st.just("update"), BATCH),
        st.tuples(st.just("merge"), BATCH),
        st.tuples(st.just("load"), BATCH),
        st.tuples(st.just("keep"), st.randoms(use_true_random=False)),
        st.tuples(st.just("clear"), st.randoms(use_true_random=False)),
        st.tuples(st.just("freeze"), st.booleans()),
    ),
    max_size=10,
)


def slots_of(numbers: list[int], known: int) -> tuple[list[int], int]:
    """Slots as an index gives them: those not known are numbered in the order in which they come."""
    new: dict[int, int] = {}
    slots = [n if n < known else new.setdefault(n, known + len(new)) for n in numbers]
    return slots, known + len(new)


def combined(is_max: bool, before: int | None, value: int | None) -> int | None:
    if before is None or value is None:
        return value if before is None else before
    return max(before, value) if is_max else before + value


@pytest.mark.parametrize("is_max", [False, True])
@given(steps=OPERATIONS)
def test_a_slot_is_null_until_it_has_seen_a_value(is_max: bool, steps: list[tuple[str, Any]]) -> None:
    column = WordExtreme(pa.int64(), is_max=True) if is_max else IntegerSum()
    expected: list[int | None] = []
    frozen: list[tuple[Any, Any, list[int | None]]] = []
    for step, argument in steps:
        if step in ("update", "merge", "load"):
            slots, size = slots_of([number for number, _ in argument], len(expected))
            if step == "load":  # empty slots, each once
                slots = list(range(len(expected), len(expected) + len(argument)))
                size = len(expected) + len(argument)
            numbers, values = np.array(slots), pa.array([value for _, value in argument], pa.int64())
            expected += [None] * (size - len(expected))
            column.grow(size)
            if step == "update":
                column.update(valid_arrivals(numbers, values, numbers, all_new=True))
            elif step == "merge":
                column.merge(numbers, *other_with(is_max, values))
            else:
                column.load(numbers, values)
            for slot, (_, value) in zip(slots, argument, strict=True):
                expected[slot] = combined(is_max, expected[slot], value)
        elif step == "keep":
            kept = sorted(argument.sample(range(len(expected)), argument.randint(0, len(expected))))
            column.keep(np.array(kept, np.int64))
            expected = [expected[i] for i in kept]
        elif step == "clear":
            cleared = argument.sample(range(len(expected)), argument.randint(0, len(expected)))
            column.clear(np.array(cleared, np.int64))
            expected = [None if i in cleared else value for i, value in enumerate(expected)]
        else:
            rows = np.arange(len(expected))
            few = rows[len(rows) // 2 :: 8]  # which are picked
            whole, picked = (column.freeze(LiveRows(len(rows), some)) for some in (None, few))
            then = [(whole, rows, list(expected)), (picked, few, [expected[row] for row in few.tolist()])]
            frozen = [*frozen[-2:], *then] if argument else []
        assert column.results(np.arange(len(expected))).to_pylist() == expected
        for snapshot, rows_then, values_then in frozen:
            assert snapshot(rows_then).to_pylist() == values_then


def test_slots_that_nobody_marked_stay_null() -> None:
    """The contract of `mark` says so, whatever operators do."""
    column = WordColumn(pa.int64())
    column.grow(3)
    column.mark(np.array([0, 1, 2]), all_new=True)
    column.grow(5)
    column.grow(7)
    column.mark(np.array([5, 6]), all_new=True)
    column.mark(np.array([1]))
    assert column.take(np.arange(7)).is_null().to_pylist() == [False] * 3 + [True] * 2 + [False] * 2
    column.keep(np.array([0, 3, 5]))
    assert column.freeze(LiveRows(3))(np.arange(3)).is_null().to_pylist() == [False, True, False]


def test_a_merge_says_nothing_of_slots_that_it_does_not_name() -> None:
    column = IntegerSum()
    column.grow(3)
    column.merge(np.array([0, 2]), *other_with(False, pa.array([4, 5], pa.int64())))
    assert column.results(np.arange(3)).to_pylist() == [4, None, 5]


def other_with(is_max: bool, values: pa.Array) -> tuple[Any, np.ndarray[Any, Any]]:
    """An accumulator in whose slots these values are, and the slots."""
    other: Any = WordExtreme(pa.int64(), is_max=True) if is_max else IntegerSum()
    other.grow(len(values))
    slots = np.arange(len(values))
    other.update(valid_arrivals(slots, values, slots))
    return other, slots
