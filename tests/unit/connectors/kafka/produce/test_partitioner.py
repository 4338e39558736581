"""Partitions by key: murmur2 agrees with Kafka's own, whose results these are (UtilsTest)."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from onceflow.connectors.kafka.produce.partitioner import by_kernel, murmur2, one_by_one, partition_by_key
from onceflow.runtime.kernels.ops import ops
from tests.unit.guarded_memory import array_of, before_closed_page, behind_closed_page

KNOWN = {
    b"21": -973932308,
    b"foobar": -790332482,
    b"a-little-bit-long-string": -985981536,
    b"a-little-bit-longer-string": -1486304829,
    b"lkjh234lh9fiuh90y23oiuhsafujhadof229phr9h19h89h8": -58897971,
    b"abc": 479470107,
}


def test_known_hashes() -> None:
    assert [np.uint32(murmur2(key)).astype(np.int32) for key in KNOWN] == list(KNOWN.values())


PARTITIONS = st.integers(1, 50) | st.integers(1, (1 << 31) - 1) | st.sampled_from([1 << 30, (1 << 31) - 1])


@given(
    st.lists(st.one_of(st.none(), st.binary(max_size=40)), max_size=30),
    st.integers(0, 5),
    PARTITIONS,
    st.sampled_from([pa.binary(), pa.large_binary()]),
)
def test_all_agree_on_slices_nulls_and_empty_keys(
    keys: list[bytes | None], start: int, partitions: int, arrow: pa.DataType
) -> None:
    column = pa.array(keys, arrow)[start:]
    expected = [(murmur2(k) & 0x7FFFFFFF) % partitions if k is not None else None for k in keys[start:]]
    for choose in [one_by_one, by_kernel] if ops().are_compiled else [one_by_one]:
        got = choose(column, partitions).tolist()
        assert len(got) == len(expected)
        assert [g for g, e in zip(got, expected, strict=True) if e is not None] == [
            e for e in expected if e is not None
        ]


@pytest.mark.skipif(not ops().are_compiled, reason="needs numba")
@pytest.mark.parametrize("length", [*range(10)])
def test_the_kernel_reads_nothing_before_or_behind_a_key(length: int) -> None:
    key = bytes(range(200, 200 + length))
    for closed in (before_closed_page, behind_closed_page):
        with closed() as put:
            column = array_of([key], put(key), pa.binary())
            assert by_kernel(column, 1_000).tolist() == [(murmur2(key) & 0x7FFFFFFF) % 1_000]
            del column


def test_rows_without_a_key_go_where_it_is_said() -> None:
    some = pa.array([b"abc", None, b"abc", None], pa.binary())
    of_key = one_by_one(some[:1], 7)[0]
    assert partition_by_key(some, 7, 3).tolist() == [of_key, 3, of_key, 3]
    assert partition_by_key(some, 7, np.arange(4, dtype=np.int32)).tolist() == [of_key, 1, of_key, 3]
    assert partition_by_key(some[::2], 7, 3).tolist() == [of_key, of_key]
    assert partition_by_key(some[1::2], 7, 3).tolist() == [3, 3]
    assert partition_by_key(some[:0], 7, 3).tolist() == []
