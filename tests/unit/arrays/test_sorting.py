"""What runtime/arrays/sorting.py says is the order of numbers is what np.argsort says."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from onceflow.runtime.arrays import sorting

LOWEST, HIGHEST = -(1 << 63), (1 << 63) - 1
CLOSE = st.integers(-3, 3)
ANY = st.integers(LOWEST, HIGHEST)


@given(st.lists(st.one_of(CLOSE, ANY), max_size=40))
@example([])
@example([5])
@example([2, 1, 2, 1])
@example([HIGHEST, LOWEST, HIGHEST])
@example([LOWEST + 1, LOWEST, LOWEST + 1])
@example([HIGHEST, HIGHEST - 1, HIGHEST])
@example([1 << 61, 0, 1 << 61])
@example([(1 << 61) - 1, 0, (1 << 61) - 1])
def test_the_order_is_that_of_a_stable_sort(numbers: list[int]) -> None:
    array = np.array(numbers, np.int64)
    order = sorting.stable_order(array)
    assert order.tolist() == sorted(range(len(numbers)), key=numbers.__getitem__)
    assert order.dtype == np.int64
    assert array.tolist() == numbers, "it is not changed"


@pytest.mark.parametrize("count", [1 << 12, (1 << 12) - 1, (1 << 12) + 1])
def test_the_order_of_many_equal_numbers_is_that_in_which_they_come(count: int) -> None:
    numbers = np.random.default_rng(count).integers(-50, 50, count)
    assert (sorting.stable_order(numbers) == np.argsort(numbers, kind="stable")).all()
