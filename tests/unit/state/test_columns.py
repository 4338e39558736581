"""GrowableColumn: what was frozen stays as it was for as long as somebody holds it."""

import numpy as np

from onceflow.runtime.state.columns import GrowableColumn

ALL = np.arange(5_000)


def filled(value: int) -> GrowableColumn:
    column = GrowableColumn(np.int64)
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


def test_the_memory_of_a_copy_that_nobody_needs_is_used_again():
    """Goal: a barrier at a million keys copies, and does not wait for new memory."""
    column = filled(1)
    column.frozen()
    spare = column._spare
    column.frozen()
    assert column._spare is spare
    held = column.frozen()
    column.frozen()
    assert column._spare is not spare
    assert (held.take(ALL) == 1).all()
