"""Key groups: stable under rescale, and every key has exactly one owner."""

import numpy as np
import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from onceflow.runtime.exchange.key_groups import Partitioner
from onceflow.runtime.records import Records
from onceflow.runtime.state.hashing import hash_keys
from onceflow.runtime.state.key_groups import key_group_range, key_groups_of, subtask_of_key_group

KEYS = st.lists(st.none() | st.text(max_size=5), min_size=1, max_size=50)


@given(max_parallelism=st.integers(1, 1 << 15), data=st.data())
def test_ranges_cover_every_key_group_once_and_agree_with_the_owner(max_parallelism, data):
    parallelism = data.draw(st.integers(1, min(max_parallelism, 200)))
    ranges = [key_group_range(max_parallelism, parallelism, i) for i in range(parallelism)]
    assert ranges[0].start == 0
    assert ranges[-1].stop == max_parallelism
    for subtask, owned in enumerate(ranges):
        assert len(owned) >= max_parallelism // parallelism
        assert subtask == 0 or owned.start == ranges[subtask - 1].stop
        for group in (owned.start, owned.stop - 1):
            assert subtask_of_key_group(max_parallelism, parallelism, group) == subtask


@given(keys=KEYS, parallelism=st.integers(1, 9), max_parallelism=st.sampled_from([9, 128, 1000]))
def test_a_key_is_with_the_owner_of_its_key_group_at_any_parallelism(keys, parallelism, max_parallelism):
    batch = pa.record_batch({"k": pa.array(keys, pa.string())})
    groups = key_groups_of(hash_keys(batch, ["k"]), max_parallelism)
    assert (groups < max_parallelism).all()
    rows = 0
    for subtask, part in Partitioner(("k",), max_parallelism, parallelism).split(Records(batch)):
        owned = key_group_range(max_parallelism, parallelism, subtask)
        assert all(g in owned for g in key_groups_of(part.key_hash, max_parallelism).tolist())
        rows += len(part)
    assert rows == len(keys)


@given(st.lists(st.integers(0, (1 << 64) - 1), min_size=1))
def test_key_groups_are_ranges_of_the_hash(hashes):
    ordered = np.sort(np.array(hashes, np.uint64))
    assert (np.diff(key_groups_of(ordered, 128).astype(int)) >= 0).all()
