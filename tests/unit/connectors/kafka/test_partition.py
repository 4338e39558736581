"""murmur2 in columns agrees with Kafka's own, whose results these are (UtilsTest)."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from onceflow.connectors.kafka.partition import by_columns, by_kernel, murmur2
from onceflow.runtime.kernels.compiled import kernels_enabled
from tests.unit.guarded_memory import array_of, before_closed_page, behind_closed_page

KNOWN = {
    b"21": -973932308,
    b"foobar": -790332482,
    b"a-little-bit-long-string": -985981536,
    b"a-little-bit-longer-string": -1486304829,
    b"lkjh234lh9fiuh90y23oiuhsafujhadof229phr9h19h89h8": -58897971,
    b"abc": 479470107,
}


def reference(key: bytes) -> int:
    """Utils.murmur2, a byte at a time."""
    mask, m = 0xFFFFFFFF, 0x5BD1E995
    h = 0x9747B28C ^ len(key)
    whole = len(key) & ~3
    for i in range(0, whole, 4):
        k = int.from_bytes(key[i : i + 4], "little") * m & mask
        k = (k ^ k >> 24) * m & mask
        h = h * m & mask ^ k
    rest = key[whole:]
    if rest:
        h = (h ^ int.from_bytes(rest, "little")) * m & mask
    h = (h ^ h >> 13) * m & mask
    return h ^ h >> 15


def test_known_hashes() -> None:
    keys = pa.array(list(KNOWN), pa.large_binary())
    assert murmur2(keys).astype(np.int32).tolist() == list(KNOWN.values())


PARTITIONS = st.integers(1, 50) | st.integers(1, (1 << 31) - 1) | st.sampled_from([1 << 30, (1 << 31) - 1])


@given(
    st.lists(st.one_of(st.none(), st.binary(max_size=40)), max_size=30),
    st.integers(0, 5),
    PARTITIONS,
    st.sampled_from([pa.binary(), pa.large_binary()]),
)
def test_agrees_with_the_reference_for_slices_nulls_and_empty_keys(
    keys: list[bytes | None], start: int, partitions: int, arrow: pa.DataType
) -> None:
    column = pa.array(keys, arrow)[start:]
    expected = [(reference(k) & 0x7FFFFFFF) % partitions if k is not None else None for k in keys[start:]]
    for choose in [by_columns, by_kernel] if kernels_enabled() else [by_columns]:
        got = choose(column, partitions).tolist()
        assert len(got) == len(expected)
        assert [g for g, e in zip(got, expected, strict=True) if e is not None] == [
            e for e in expected if e is not None
        ]


@pytest.mark.skipif(not kernels_enabled(), reason="needs numba")
@pytest.mark.parametrize("length", [*range(10)])
def test_the_kernel_reads_nothing_before_or_behind_a_key(length: int) -> None:
    key = bytes(range(200, 200 + length))
    for closed in (before_closed_page, behind_closed_page):
        with closed() as put:
            column = array_of([key], put(key), pa.binary())
            assert by_kernel(column, 1_000).tolist() == [(reference(key) & 0x7FFFFFFF) % 1_000]
            del column
