"""FreezableColumn: what was frozen stays as it was for as long as somebody holds it."""

import numpy as np

from onceflow.runtime.state.columns import FreezableColumn, GrowableColumn, _Copy

ALL = np.arange(5_000)


def filled(value: int) -> FreezableColumn:
    column = FreezableColumn(np.int64)
    column.grow(5_000)
    column.values[:5_000] = value
    return column


def test_what_was_frozen_does_not_change_with_the_column():
    column = filled(1)
    frozen = column.frozen()
    column.values[:] = 2
    column.grow(50_000)
    column.keep(np.arange(10))
    column.values[:] = 3
    assert (frozen.take(ALL) == 1).all()


def test_a_second_barrier_leaves_what_the_first_froze_if_it_is_still_being_written():
    column = filled(1)
    first = column.frozen()
    column.values[:] = 2
    second = column.frozen()
    column.values[:] = 3
    third = column.frozen()
    assert (first.take(ALL) == 1).all()
    assert (second.take(ALL) == 2).all()
    assert (third.take(ALL) == 3).all()


def test_values_that_were_taken_stay_when_the_memory_is_used_again():
    column = filled(1)
    taken = column.frozen().take(ALL)
    column.values[:] = 2
    assert (column.frozen().take(ALL) == 2).all()
    assert (taken == 1).all()


def test_the_memory_of_copies_that_nobody_needs_is_used_again():
    """Goal: a barrier at a million keys copies, and does not wait for new memory."""
    column = filled(1)
    memory = column._copies[0]._memory
    column.frozen()
    held = column.frozen()
    assert held._values.base is memory
    other = column.frozen()._values.base
    assert other is not memory
    assert column.frozen()._values.base is other
    del held
    assert column.frozen()._values.base is memory


def test_the_memory_of_the_next_copy_is_there_before_the_barrier():
    column = FreezableColumn(np.int64)
    column.reserve(200_000)
    pages = np.full(len(column.values), 7)
    column._copies = [_Copy(pages)]
    for size in (10, 6_000, 6_001):
        column.grow(size)
    pages_of_six_thousand = [(pages[first : first + 512] == 0).any() for first in range(0, 6_000, 512)]
    assert all(pages_of_six_thousand)
    assert np.count_nonzero(pages == 7) > 0.99 * len(pages)


def test_growing_touches_nothing_of_what_was_frozen():
    column = FreezableColumn(np.int64, fill=9)
    held = []
    for size in range(100, 60_000, 1_700):
        column.grow(size)
        column.values[:size] = size
        held.append((size, column.frozen()))
        if size % 3 == 0:
            held.pop(0)
        column.keep(np.arange(size))
    for size, frozen in held:
        assert (frozen.take(np.arange(size)) == size).all()


def test_growing_after_the_column_shrank_touches_nothing_of_what_was_frozen_in_between():
    column = filled(1)
    column.grow(200_000)
    column.keep(np.arange(10_000))
    column.values[:10_000] = 2
    frozen = column.frozen()
    column.grow(20_000)
    assert (frozen.take(np.arange(10_000)) == 2).all()


def test_the_memory_of_a_column_is_used_again_if_nobody_has_a_view_of_it():
    """Goal: a window that fires leaves its memory to the next one, but what a snapshot needs."""
    column = GrowableColumn(np.int64)
    column.grow(5_000)
    column.values[:5_000] = np.arange(5_000)
    memory, view = column.values.ctypes.data, column.used()
    column.keep(np.arange(1_000, 5_000))
    assert column.values.ctypes.data != memory
    assert (view == np.arange(5_000)).all()
    del view
    memory = column.values.ctypes.data
    column.keep(np.arange(500, 4_000))
    assert column.values.ctypes.data == memory
    assert (column.used() == np.arange(1_500, 5_000)).all()
    column.grow(8_000)
    assert not column.values[3_500:8_000].any()
