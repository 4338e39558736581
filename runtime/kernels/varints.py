"""Integers of variable length, as Kafka's records (KIP-98), Avro and protocol buffers have them: in zigzag,
seven bits to a byte. For kernels; needs numba."""

from __future__ import annotations

from onceflow.runtime.kernels.blocks import shift_right, store_uint8
from onceflow.runtime.kernels.compiled import kernel


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
