"""Integers of variable length, as Kafka's records (KIP-98), Avro and protocol buffers have them: in zigzag,
seven bits to a byte. For kernels; needs numba."""

from __future__ import annotations

from typing import Any

import numpy as np

from onceflow.runtime.kernels.blocks import shift_right, store_uint8
from onceflow.runtime.kernels.compiled import kernel
from onceflow.runtime.kernels.memory import load_uint8

_HIGHEST = (1 << 63) - 1
_int64: Any = np.int64
"""In a kernel `int` of an unsigned number stays unsigned."""


@kernel
def varint(at: int, end: int) -> tuple[int, int]:
    """The number at the address `at`, and the address behind it: -1 if it runs over the end, or over what 64
    bits hold."""
    number = shift = 0
    while at < end and shift < 64:
        byte = _int64(load_uint8(at))
        at += 1
        number |= (byte & 0x7F) << shift
        if byte < 0x80:
            return (number >> 1) & _HIGHEST ^ -(number & 1), at
        shift += 7
    return 0, -1


@kernel
def put_varint(at: int, number: int) -> int:
    """Writes any int64 to the address `at`; the address behind it."""
    rest = (number << 1) ^ (number >> 63)
    while shift_right(rest, 7) != 0:
        store_uint8(at, rest & 0x7F | 0x80)
        rest = shift_right(rest, 7)
        at += 1
    store_uint8(at, rest)
    return at + 1


@kernel
def varint_bytes(number: int) -> int:
    """How many put_varint writes: 1 to 10."""
    rest = shift_right((number << 1) ^ (number >> 63), 7)
    count = 1
    while rest != 0:
        rest = shift_right(rest, 7)
        count += 1
    return count
