"""Varints by whole arrays are those of Kafka, written a byte at a time."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from onceflow.connectors.kafka.varints import varint_bytes, varints

LOWEST, HIGHEST = -(1 << 63), (1 << 63) - 1
EDGES = [sign * (1 << bits) + near for bits in range(63) for sign in (-1, 1) for near in (-1, 0, 1)]
numbers = st.integers(-1, 200) | st.sampled_from([*EDGES, LOWEST, HIGHEST]) | st.integers(LOWEST, HIGHEST)


def reference(number: int) -> bytes:
    rest = (number << 1 ^ number >> 63) & ((1 << 64) - 1)
    written = bytearray()
    while rest >= 0x80:
        written.append(rest & 0x7F | 0x80)
        rest >>= 7
    return bytes([*written, rest])


@given(st.lists(numbers, min_size=1, max_size=30), st.sampled_from([b"", b"\0", b"\xff\0"]))
def test_varints_are_those_of_a_byte_at_a_time(given_numbers: list[int], behind: bytes) -> None:
    found, which = varints(np.array(given_numbers, np.int64), behind)
    expected = [reference(number) + behind for number in given_numbers]
    assert found.take(pa.array(which)).to_pylist() == expected
    sizes = varint_bytes(np.array(given_numbers, np.int64)).tolist()
    assert sizes == [len(each) - len(behind) for each in expected]


@pytest.mark.parametrize("most", [999, 1_000, 5_000, 16_381, 16_382, 16_383, 16_384, 50_000])
def test_what_is_kept_written_ends_without_a_seam(most: int) -> None:
    ascending = np.arange(-1, most + 1)
    found, which = varints(ascending)
    assert found.take(pa.array(which)).to_pylist() == [reference(number) for number in ascending.tolist()]
    found, which = varints(ascending[-1:])
    assert found.take(pa.array(which)).to_pylist() == [reference(most)]
