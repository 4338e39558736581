"""Alignment: which channels are blocked, when to snapshot, what a newer barrier or an abort changes."""

from __future__ import annotations

import pytest

from onceflow.runtime.checkpoint.alignment import Alignment
from onceflow.runtime.records import Barrier


def test_the_only_channel_never_blocks() -> None:
    alignment = Alignment(1)
    assert alignment.on_barrier(0, Barrier(1)).snapshot == Barrier(1)
    assert alignment.blocked == frozenset()


def test_channels_are_blocked_until_the_last_barrier_comes() -> None:
    alignment = Alignment(3)
    assert alignment.on_barrier(1, Barrier(1)).block == {1}
    assert alignment.on_barrier(0, Barrier(1)).block == {0}
    assert alignment.blocked == {0, 1}
    last = alignment.on_barrier(2, Barrier(1))
    assert last.snapshot == Barrier(1)
    assert last.unblock == {0, 1}
    assert alignment.blocked == frozenset()


def test_a_blocked_channel_must_not_be_read() -> None:
    alignment = Alignment(2)
    alignment.on_barrier(0, Barrier(1))
    with pytest.raises(AssertionError, match="while it was blocked"):
        alignment.on_barrier(0, Barrier(2))


def test_at_least_once_blocks_nothing_and_snapshots_when_all_have_come() -> None:
    alignment = Alignment(2, is_aligned=False)
    assert alignment.on_barrier(0, Barrier(1)).block == frozenset()
    assert alignment.blocked == frozenset()
    assert alignment.on_barrier(1, Barrier(1)).snapshot == Barrier(1)


def test_a_newer_barrier_supersedes_the_older_and_unblocks_its_channels() -> None:
    alignment = Alignment(3)
    alignment.on_barrier(0, Barrier(1))
    newer = alignment.on_barrier(1, Barrier(2))
    assert newer.superseded == 1
    assert newer.unblock == {0}
    assert newer.block == {1}
    assert alignment.on_barrier(2, Barrier(1)).snapshot is None, "the old one is over"
    alignment.on_barrier(0, Barrier(2))
    assert alignment.on_barrier(2, Barrier(2)).snapshot == Barrier(2)


def test_an_abort_unblocks_and_barriers_on_their_way_are_ignored() -> None:
    alignment = Alignment(2)
    alignment.on_barrier(0, Barrier(1))
    assert alignment.abort(1).unblock == {0}
    assert alignment.on_barrier(1, Barrier(1)).snapshot is None
    assert alignment.blocked == frozenset()


def test_an_abort_that_comes_before_the_barriers_makes_them_ignored() -> None:
    alignment = Alignment(2)
    alignment.abort(1)
    alignment.on_barrier(0, Barrier(1))
    assert alignment.blocked == frozenset()
    alignment.on_barrier(0, Barrier(2))
    assert alignment.on_barrier(1, Barrier(2)).snapshot == Barrier(2)


def test_an_abort_of_an_older_checkpoint_leaves_the_newer_alone() -> None:
    alignment = Alignment(2)
    alignment.on_barrier(0, Barrier(2))
    alignment.abort(1)
    assert alignment.blocked == {0}
    assert alignment.on_barrier(1, Barrier(2, is_last=True)).snapshot == Barrier(2, is_last=True)


def test_the_same_barrier_twice_on_a_channel_is_a_fault() -> None:
    alignment = Alignment(2, is_aligned=False)
    alignment.on_barrier(0, Barrier(1))
    with pytest.raises(AssertionError, match="twice"):
        alignment.on_barrier(0, Barrier(1))


def test_a_barrier_may_overtake_as_soon_as_it_has_come_on_one_channel() -> None:
    alignment = Alignment(3)
    assert not alignment.may_overtake(1, come=[])
    assert alignment.may_overtake(1, come=[2])
    alignment.on_barrier(0, Barrier(1))
    assert alignment.may_overtake(1, come=[]), "it was read on one"
    assert alignment.awaited(1) == {1, 2}
    alignment.overtake(1)
    assert alignment.blocked == frozenset()
    assert alignment.on_barrier(1, Barrier(1)).snapshot is None, "it was taken"
    assert not alignment.may_overtake(1, come=[2])


def test_a_barrier_overtakes_nothing_on_a_channel_that_is_in_order() -> None:
    alignment = Alignment(3, in_order=[1, 2])
    alignment.on_barrier(1, Barrier(1))
    assert not alignment.may_overtake(1, come=[0, 2])
    alignment.on_barrier(2, Barrier(1))
    assert alignment.may_overtake(1, come=[])
    assert not Alignment(1, in_order=[0]).may_overtake(1, come=[0])


def test_what_is_over_or_older_or_not_aligned_overtakes_nothing() -> None:
    alignment = Alignment(2)
    alignment.abort(1)
    assert not alignment.may_overtake(1, come=[0])
    alignment.on_barrier(0, Barrier(3))
    assert not alignment.may_overtake(2, come=[1])
    assert alignment.may_overtake(4, come=[1]), "a newer one gives the older up"
    assert not Alignment(2, is_aligned=False).may_overtake(1, come=[0])
