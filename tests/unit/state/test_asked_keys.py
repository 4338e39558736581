"""AskedKeys: by both hashes a key is told from others, also from those that share the first, and the bound of
rows is a sentence."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest

from onceflow.runtime.errors import UsageError
from onceflow.runtime.state.asked_keys import ROWS_MAX, AskedKeys
from onceflow.runtime.state.hashing import CHECK_SEED, hash_keys

USERS = pa.record_batch({"user": pa.array([f"user-{n}" for n in range(50_000)])})
HASHES, CHECKS = hash_keys(USERS, ["user"]), hash_keys(USERS, ["user"], CHECK_SEED)


@pytest.mark.parametrize("asked_for", [[], [7], [49_999, 7, 7, 0], list(range(0, 50_000, 50))])
def test_the_keys_are_found_among_others(asked_for: list[int]) -> None:
    asked = AskedKeys(USERS.take(pa.array(asked_for, pa.int64())))
    near = asked.near(HASHES)
    assert near.tolist() == sorted(set(asked_for))
    assert near[asked.are(HASHES[near], CHECKS[near])].tolist() == sorted(set(asked_for))
    assert asked.identities.tolist() == [[HASHES[n], CHECKS[n]] for n in asked_for]


def test_a_key_that_shares_one_hash_is_another() -> None:
    asked = AskedKeys(USERS.slice(0, 2))
    hashes, checks = HASHES[[0, 0, 5, 1]], CHECKS[[0, 1, 0, 1]]
    assert asked.are(hashes, checks).tolist() == [True, False, False, True]


def test_more_rows_than_may_be_are_refused() -> None:
    AskedKeys(USERS.slice(0, 1)).check_count(ROWS_MAX)
    with pytest.raises(UsageError, match="have 4 rows or more, and a live answer has 3 at most from each"):
        AskedKeys(USERS.slice(0, 1), rows_max=3).check_count(4)


def test_nothing_is_near_nothing() -> None:
    assert AskedKeys(USERS.slice(0, 0)).near(np.zeros(0, np.uint64)).tolist() == []
