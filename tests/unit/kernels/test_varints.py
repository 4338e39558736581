"""Integers of variable length, as the kernels write and read them."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

pytest.importorskip("numba")

from onceflow.runtime.kernels.varints import put_varint, varint, varint_bytes


def by_definition(number: int) -> bytes:
    """Zigzag, then seven bits to a byte from the lowest on, the eighth where more follow."""
    rest = 2 * number if number >= 0 else -2 * number - 1
    groups = []
    while not groups or rest:
        groups.append(rest % 128)
        rest //= 128
    return bytes([*(group + 128 for group in groups[:-1]), groups[-1]])


@given(st.integers(-(1 << 63), (1 << 63) - 1) | st.integers(-70, 70))
@example(-(1 << 63))
@example((1 << 63) - 1)
@example(1 << 62)
@example(0)
def test_any_integer(number: int) -> None:
    room = np.full(16, 0xEE, np.uint8)
    end = put_varint(room.ctypes.data, number) - room.ctypes.data
    assert room[:end].tobytes() == by_definition(number)
    assert end == varint_bytes(number)
    assert (room[end:] == 0xEE).all(), "and not a byte more"
    start = room.ctypes.data
    assert varint(start, start + end) == (number, start + end)
    assert varint(start, start + end - 1) == (0, -1)


def test_what_64_bits_do_not_hold_is_no_number() -> None:
    room = np.full(16, 0x80, np.uint8)
    assert varint(room.ctypes.data, room.ctypes.data + 16) == (0, -1)
