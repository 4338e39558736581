"""Cells: kernels and arrays give the same numbers, whatever slots and values come."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from onceflow.runtime.kernels.compiled import kernels_enabled
from onceflow.runtime.state.cells import add_at, count_at, mark_at

pytestmark = pytest.mark.skipif(not kernels_enabled(), reason="needs numba")

SLOTS = st.lists(st.integers(0, 40), max_size=120).map(lambda slots: np.array(slots, np.int64))
INT64 = st.integers(-(1 << 63), (1 << 63) - 1)
DOUBLE = st.floats()


def alike(change, *cells: np.ndarray) -> None:
    """The same change with kernels and without, to the same cells."""
    for array in cells:
        by_kernel, by_array = array.copy(), array.copy()
        change(by_kernel, True)
        change(by_array, False)
        assert by_kernel.tobytes() == by_array.tobytes()


@given(SLOTS, st.data())
def test_integers_are_added_alike_and_wrap_around_alike(slots, data):
    values = np.array(data.draw(st.lists(INT64, min_size=len(slots), max_size=len(slots))), np.int64)
    cells = np.array(data.draw(st.lists(INT64, min_size=41, max_size=41)), np.int64)
    alike(lambda into, kernels: add_at(into, slots, values, kernels), cells)


@given(SLOTS, st.data())
def test_floats_are_added_alike_in_the_order_of_the_rows(slots, data):
    values = np.array(data.draw(st.lists(DOUBLE, min_size=len(slots), max_size=len(slots))), np.float64)
    by_kernel, by_array = np.zeros(41), np.zeros(41)
    add_at(by_kernel, slots, values, kernels=True)
    add_at(by_array, slots, values, kernels=False)
    assert np.array_equal(by_kernel, by_array, equal_nan=True)
    assert (np.signbit(by_kernel) == np.signbit(by_array))[~np.isnan(by_kernel)].all()


@given(SLOTS)
def test_rows_are_counted_and_marked_alike(slots):
    alike(lambda into, kernels: count_at(into, slots, kernels), np.arange(41))
    alike(lambda into, kernels: mark_at(into, slots, kernels), np.zeros(41, np.bool_))


@pytest.mark.parametrize("dtype", [np.int64, np.float64])
def test_values_that_can_not_be_written_are_added_alike(dtype):
    """Goal: those of a batch lie in Arrow's memory."""
    values = np.arange(1, 301).astype(dtype)
    values.flags.writeable = False
    slots = np.arange(300) % 7
    alike(lambda into, kernels: add_at(into, slots, values, kernels), np.zeros(7, dtype))
