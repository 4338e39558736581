"""Went: the last that became of each unit counts, and only what no durable snapshot has."""

from __future__ import annotations

import numpy as np

from onceflow.runtime.state.rocks.row_ids import Identities
from onceflow.runtime.state.rocks.went import Went


def identities(*numbers: int) -> Identities:
    return np.array([(number, number + 1) for number in numbers], np.uint64).reshape(-1, 2)


def numbers(of: Identities) -> list[int]:
    found: list[int] = of[:, 0].tolist()
    return found


def noted(went: Went, changed_in: int, *units: int, is_there: bool = True) -> None:
    went.note(identities(*units), np.full(len(units), changed_in, np.int32), is_there)


def test_the_last_that_became_of_a_unit_counts() -> None:
    went = Went()
    assert not went
    noted(went, 0, 5, 3, 9)
    noted(went, 1, 9, is_there=False)
    noted(went, 1, 3, 7)
    assert went
    assert numbers(went.since(0)) == [3, 7]


def test_without_a_snapshot_to_build_on_nothing_is_asked_for_again() -> None:
    went = Went()
    noted(went, 0, 5)
    assert numbers(went.since(-1)) == []
    assert not went


def test_what_a_durable_snapshot_has_takes_no_memory() -> None:
    went = Went()
    noted(went, 1, 5, 3)
    noted(went, 2, 4)
    assert went.nbytes == 3 * (16 + 4)
    assert numbers(went.since(1)) == [4]
    assert went.nbytes == 16 + 4
    assert numbers(went.since(2)) == []
    assert went.nbytes == 0
