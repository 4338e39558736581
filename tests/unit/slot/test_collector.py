"""The garbage collector rests while a slot runs, and afterwards is as it was."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Iterator

import pytest

from onceflow.runtime.slot.collector import collector_off


class Cyclic:
    def __init__(self) -> None:
        self.me = self


@pytest.fixture
def nothing_frozen() -> Iterator[None]:
    gc.unfreeze()
    yield
    gc.freeze()


@pytest.mark.usefixtures("nothing_frozen")
def test_it_is_off_inside_with_all_that_lives_frozen_and_as_before_at_the_end() -> None:
    with collector_off():
        assert not gc.isenabled()
        assert gc.get_freeze_count() > 10_000
    assert gc.isenabled()
    assert gc.get_freeze_count() == 0


def test_what_was_frozen_before_stays_frozen() -> None:
    gc.freeze()
    before = gc.get_freeze_count()
    with collector_off():
        pass
    assert gc.get_freeze_count() == pytest.approx(before, rel=0.01)


@pytest.mark.usefixtures("nothing_frozen")
def test_what_another_slot_of_the_process_has_frozen_is_unfrozen_at_that_ones_end_only() -> None:
    with collector_off():
        with collector_off():
            pass
        assert gc.get_freeze_count() > 0
    assert gc.get_freeze_count() == 0


def test_what_an_attempt_before_has_left_in_cycles_is_gone() -> None:
    left = weakref.ref(Cyclic())
    with collector_off():
        assert left() is None
