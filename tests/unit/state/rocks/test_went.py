"""Went: the last that became of each unit counts, and only what no durable snapshot has."""

from __future__ import annotations

import numpy as np

from onceflow.runtime.state.increments import HASH_MAX
from onceflow.runtime.state.rocks.row_ids import Identities
from onceflow.runtime.state.rocks.went import FrozenWent, Went


def identities(*numbers: int) -> Identities:
    return np.array([(number, number + 1) for number in numbers], np.uint64).reshape(-1, 2)


def changed(frozen: FrozenWent, first: int = 0, last: int = HASH_MAX) -> list[int]:
    return [number for part in frozen.between(first, last) for number in part[:, 0].tolist()]


def noted(went: Went, changed_in: int, *units: int, is_there: bool = True) -> None:
    went.note(identities(*units), np.full(len(units), changed_in, np.int32), is_there)


def test_the_last_that_became_of_a_unit_counts() -> None:
    went = Went()
    assert not went
    noted(went, 0, 5, 3, 9)
    noted(went, 1, 9, is_there=False)
    noted(went, 1, 3, 7)
    assert went
    assert changed(went.freeze(0)) == [3, 7]


def test_without_a_snapshot_to_build_on_nothing_is_asked_for_again() -> None:
    went = Went()
    noted(went, 0, 5)
    assert changed(went.freeze(-1)) == []
    assert not went


def test_what_a_durable_snapshot_has_takes_no_memory() -> None:
    went = Went()
    noted(went, 1, 5, 3)
    noted(went, 2, 4)
    assert went.nbytes == 3 * (16 + 4)
    assert changed(went.freeze(1)) == [4]
    assert went.nbytes == 16 + 4
    assert changed(went.freeze(2)) == []
    assert went.nbytes == 0


def test_what_is_frozen_stays_as_it_was_and_is_counted_at_most() -> None:
    went = Went()
    noted(went, 0, 5, 3)
    noted(went, 1, 3, is_there=False)
    frozen = went.freeze(-1 + 1)
    noted(went, 1, 8)
    noted(went, 2, 5, is_there=False)
    assert changed(frozen) == []
    assert len(frozen) == 0


def test_many_are_put_in_order_some_at_a_time() -> None:
    random, went = np.random.default_rng(3), Went(range_units=100)
    hashes = random.integers(0, HASH_MAX, 1_000, np.uint64, endpoint=True)
    hashes[:2] = [0, HASH_MAX]
    for first in range(0, 1_000, 50):
        part = hashes[first : first + 50]
        went.note(np.stack([part, part], axis=1), np.ones(len(part), np.int32), True)
    frozen = went.freeze(0)
    pieces = list(frozen.between(0, HASH_MAX))
    assert len(pieces) > 5
    assert max(map(len, pieces)) < 200
    assert np.concatenate(pieces)[:, 0].tolist() == sorted(hashes.tolist())
    middle = 1 << 63
    assert changed(frozen, 0, middle - 1) + changed(frozen, middle) == sorted(hashes.tolist())
    assert changed(frozen, 1, 0) == changed(frozen, HASH_MAX + 1) == []
