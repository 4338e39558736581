"""Cells: kernels and arrays give the same numbers, whatever slots and values come."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from onceflow.runtime.kernels.ops import COMPILED, PLAIN, ops, using
from onceflow.runtime.state.cells import add_at, count_at, mark_at

pytestmark = pytest.mark.skipif(not ops().are_compiled, reason="needs numba")

SLOTS = st.lists(st.integers(0, 40), max_size=120).map(lambda slots: np.array(slots, np.int64))
INT64 = st.integers(-(1 << 63), (1 << 63) - 1)
DOUBLE = st.floats()


def alike(change, *cells: np.ndarray) -> None:
    """The same change with kernels and without, to the same cells."""
    for array in cells:
        by_kernel, by_array = array.copy(), array.copy()
        with using(COMPILED):
            change(by_kernel)
        with using(PLAIN):
            change(by_array)
        assert by_kernel.tobytes() == by_array.tobytes()


@given(SLOTS, st.data())
def test_integers_are_added_alike_and_wrap_around_alike(slots, data):
    values = np.array(data.draw(st.lists(INT64, min_size=len(slots), max_size=len(slots))), np.int64)
    cells = np.array(data.draw(st.lists(INT64, min_size=41, max_size=41)), np.int64)
    alike(lambda into: add_at(into, slots, values), cells)


@given(SLOTS, st.data())
def test_floats_are_added_alike_in_the_order_of_the_rows(slots, data):
    values = np.array(data.draw(st.lists(DOUBLE, min_size=len(slots), max_size=len(slots))), np.float64)
    by_kernel, by_array = np.zeros(41), np.zeros(41)
    with using(COMPILED):
        add_at(by_kernel, slots, values)
    with using(PLAIN):
        add_at(by_array, slots, values)
    assert np.array_equal(by_kernel, by_array, equal_nan=True)
    assert (np.signbit(by_kernel) == np.signbit(by_array))[~np.isnan(by_kernel)].all()


@given(SLOTS)
def test_rows_are_counted_and_marked_alike(slots):
    alike(lambda into: count_at(into, slots), np.arange(41))
    alike(lambda into: mark_at(into, slots), np.zeros(41, np.bool_))


@pytest.mark.parametrize("dtype", [np.int64, np.float64])
def test_values_that_can_not_be_written_are_added_alike(dtype):
    """Goal: those of a batch lie in Arrow's memory."""
    values = np.arange(1, 301).astype(dtype)
    values.flags.writeable = False
    slots = np.arange(300) % 7
    alike(lambda into: add_at(into, slots, values), np.zeros(7, dtype))
