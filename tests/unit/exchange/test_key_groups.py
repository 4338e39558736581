"""Partitioner: each record to the owner of its key group, nothing lost, order kept."""

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest

from onceflow.runtime.exchange.key_groups import Partitioner
from onceflow.runtime.kernels.ops import COMPILED, PLAIN, Ops, ops, using
from onceflow.runtime.records import Origin, Records
from onceflow.runtime.state.hashing import hash_keys
from onceflow.runtime.state.key_groups import key_group_range, key_groups_of


def records(rows: int) -> Records:
    batch = pa.record_batch({"user": [f"u{i % 97}" for i in range(rows)], "n": list(range(rows))})
    origin = Origin(("t-0",), np.zeros(rows, np.uint16), np.arange(rows))
    return Records(batch, np.arange(rows) * 10, None, origin)


@pytest.mark.parametrize("parallelism", [1, 2, 3, 4, 128])
def test_each_record_goes_to_the_owner_of_its_key_group_in_order(parallelism):
    given = records(1000)
    seen = []
    for subtask, part in Partitioner(("user",), 128, parallelism).split(given):
        assert part.key_hash is not None
        assert (part.key_hash == hash_keys(part.batch, ["user"])).all()
        owned = key_group_range(128, parallelism, subtask)
        assert all(group in owned for group in key_groups_of(part.key_hash, 128).tolist())
        numbers = part.batch.column("n").to_pylist()
        assert numbers == sorted(numbers)
        assert part.event_time is not None
        assert part.event_time.tolist() == [n * 10 for n in numbers]
        assert part.origin is not None
        assert part.origin.offset.tolist() == numbers
        seen += numbers
    assert sorted(seen) == list(range(1000))


def test_parallelism_one_and_a_batch_of_one_owner_are_not_copied():
    given = records(100)
    [(_, whole)] = Partitioner(("user",), 128, 1).split(given)
    assert whole.batch is given.batch
    one_key = given.filter(np.arange(100) % 97 == 0)
    [(_, alone)] = Partitioner(("user",), 128, 4).split(one_key)
    assert alone.batch is one_key.batch


def split_by(chosen: Ops, max_parallelism: int, parallelism: int, given: Records):
    with using(chosen):
        return list(Partitioner(("user",), max_parallelism, parallelism).split(given))


@pytest.mark.skipif(not ops().are_compiled, reason="needs numba")
@pytest.mark.parametrize("parallelism", [2, 3, 128, 300])
@pytest.mark.parametrize("max_parallelism", [300, 1 << 15])
def test_kernels_and_arrays_split_alike(parallelism, max_parallelism):
    batch = pa.record_batch({"user": [f"u{i % 97}" if i % 5 else None for i in range(2_000)]})
    for rows in (batch, batch.slice(7, 1_000), batch.filter(pc.is_valid(batch.column(0)))):
        given = Records(rows, np.arange(len(rows)))
        by_arrays = split_by(PLAIN, max_parallelism, parallelism, given)
        by_kernels = split_by(COMPILED, max_parallelism, parallelism, given)
        assert len(by_arrays) == len(by_kernels)
        for (one, part), (other, same) in zip(by_arrays, by_kernels, strict=True):
            assert one == other
            assert part.batch.equals(same.batch)
            assert part.event_time.tolist() == same.event_time.tolist()
            assert part.key_hash.tolist() == same.key_hash.tolist()


@pytest.mark.parametrize("last", [0, 1])
def test_a_batch_of_the_first_or_last_subtask_alone_is_not_copied(last):
    for i in range(100):
        batch = pa.record_batch({"user": [f"u{i}"] * 3})
        [(subtask, part)] = Partitioner(("user",), 128, 2).split(Records(batch))
        assert part.batch is batch
        if subtask == last:
            return
    raise AssertionError("no such key")


def test_an_empty_batch_goes_nowhere():
    assert list(Partitioner(("user",), 128, 2).split(records(0))) == []


def test_keys_spread_evenly_over_subtasks():
    batch = pa.record_batch({"id": np.arange(100_000)})
    sizes = [len(part) for _, part in Partitioner(("id",), 128, 4).split(Records(batch))]
    assert max(sizes) < 1.05 * min(sizes)
