"""Row ids: their order is that of key groups; keys that share their first hash are told apart."""

from __future__ import annotations

import numpy as np

from onceflow.runtime.state.key_groups import key_groups_of
from onceflow.runtime.state.rocks.row_ids import are_among, identities_of, in_order, last_places, row_ids


def test_ids_in_order_are_key_groups_in_order() -> None:
    identities = np.random.default_rng(1).integers(0, 2**64, (500, 2), dtype=np.uint64)
    ids = sorted(row_ids(identities))
    assert ids == row_ids(in_order(identities))
    for max_parallelism in (1, 7, 128, 32_768):
        groups = key_groups_of(identities_of(ids)[:, 0], max_parallelism)
        assert (np.diff(groups.astype(np.int64)) >= 0).all()


def test_ids_come_back() -> None:
    identities = np.array([[0, 2**64 - 1], [5, 7]], np.uint64)
    assert (identities_of(row_ids(identities)) == identities).all()
    assert identities_of([]).shape == (0, 2)


def test_who_is_among_whom() -> None:
    among = in_order(np.array([[7, 1], [3, 9], [3, 2], [3, 5], [9, 9]], np.uint64))
    some = np.array([[3, 2], [3, 3], [7, 1], [7, 2], [8, 1], [3, 9]], np.uint64)
    assert are_among(some, among).tolist() == [True, False, True, False, False, True]
    assert are_among(some, among[:0]).tolist() == [False] * 6


def test_where_each_is_last() -> None:
    identities = np.array([[7, 1], [3, 9], [3, 2], [7, 1], [3, 9], [3, 9]], np.uint64)
    assert last_places(identities).tolist() == [2, 5, 3]
    assert last_places(identities[:0]).tolist() == []
