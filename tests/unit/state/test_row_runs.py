"""Slots that are neighbours are known as a part of their column, and no others."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from onceflow.runtime.state.heap.row_runs import run_of


@given(st.integers(0, 50), st.integers(1, 50))
def test_neighbours_are_a_run(first: int, count: int) -> None:
    slots = np.arange(first, first + count)
    run = run_of(slots)
    assert run is not None
    assert np.arange(200)[run].tolist() == slots.tolist()


@given(st.lists(st.integers(0, 9), max_size=8))
def test_a_run_is_what_it_stands_for(numbers: list[int]) -> None:
    run = run_of(np.array(numbers, np.int64))
    is_run = bool(numbers) and numbers == list(range(numbers[0], numbers[0] + len(numbers)))
    assert (run is not None) == is_run
    assert run is None or np.arange(30)[run].tolist() == numbers


def test_the_same_first_and_last_are_not_enough() -> None:
    assert run_of(np.array([3, 5, 4, 6])) is None
    assert run_of(np.array([3, 3, 6, 6])) is None
