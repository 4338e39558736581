"""Flat rows to JSON as a compiled loop: see encode.py."""

from __future__ import annotations

from typing import Any

import numpy as np

from onceflow.connectors.formats.json.compiled.skip_kernels import MINUS, NULL, QUOTE, TRUE, ZERO, E
from onceflow.runtime.kernels.blocks import (
    BLOCK,
    copy_block,
    leading_zeros,
    store_int32,
    store_int64,
    store_uint8,
)
from onceflow.runtime.kernels.compiled import kernel
from onceflow.runtime.kernels.copying import copy_short
from onceflow.runtime.kernels.memory import load_int32, load_int64, load_uint8

# What a step writes. Its columns: kind; address and length of what stands before the value; address of the
# values; address of the validity (a byte for each row) or 0; of texts the address of the offsets, the bytes
# of each (4 or 8), and the end of the memory in which the texts lie. The last step has no value: it is what
# ends each row.
TEXTS, INTEGERS, BOOLEANS, END = 0, 1, 2, 3
STEP_WIDTH = 8
_WIDE = 8
SLACK = BLOCK
"""The bytes that are read behind what stands before a value, and written behind all rows."""
INTEGER_BYTES_MAX = 20
_LOWEST = -(1 << 63)
_PAIRS = np.frombuffer("".join(f"{n:02}" for n in range(100)).encode(), np.uint8)
"""The digits of each number below 100."""
_int64: Any = np.int64
_uint64: Any = np.uint64
_EIGHT_DIGITS = _uint64(10**8)
_POWERS = np.array([0, *(10**n for n in range(1, 20))], np.uint64)
_FALS = 0x736C6166
"""The first letters of `false`, as TRUE and NULL are."""


@kernel
def _put_integer(at: int, value: int) -> int:
    """Any but the lowest of int64, which has no opposite. Digits come from the last one on."""
    if value < 0:
        store_uint8(at, MINUS)
        at += 1
        value = -value
    if value < 10:
        store_uint8(at, ZERO + value)
        return at + 1
    rest = _uint64(value)
    end = at + _digits(rest)
    place = end
    while rest >= _EIGHT_DIGITS:
        higher = rest // _EIGHT_DIGITS
        place -= 8
        store_int64(place, _eight_digits(rest - higher * _EIGHT_DIGITS))
        rest = higher
    while rest >= _uint64(100):
        higher = rest // _uint64(100)
        place -= 2
        _put_pair(place, rest - higher * _uint64(100))
        rest = higher
    if place - at == 2:
        _put_pair(at, rest)
    elif place > at:
        store_uint8(at, ZERO + _int64(rest))
    return end


@kernel
def _digits(number: Any) -> int:
    """How many it has. Of its bits, 1233 / 4096 is a little more than log10(2)."""
    guess = ((64 - leading_zeros(_int64(number) | 1)) * 1233) >> 12
    return guess + int(number >= _POWERS[guess])


@kernel
def _put_pair(at: int, number: Any) -> None:
    pair = 2 * _int64(number)
    store_uint8(at, _PAIRS[pair])
    store_uint8(at + 1, _PAIRS[pair + 1])


@kernel
def _eight_digits(number: Any) -> int:
    """The text of eight digits as a little-endian word: halves, then quarters, then digits, all parts at
    once, each divided by multiplying with the inverse."""
    high = number // _uint64(10_000)
    halves = high | (number - high * _uint64(10_000)) << _uint64(32)
    tops = (halves * _uint64(10_486) >> _uint64(20)) & _uint64(0x0000_007F_0000_007F)
    quarters = tops | (halves - tops * _uint64(100)) << _uint64(16)
    tens = (quarters * _uint64(103) >> _uint64(10)) & _uint64(0x000F_000F_000F_000F)
    digits = tens | (quarters - tens * _uint64(10)) << _uint64(8)
    return _int64(digits | _uint64(0x3030_3030_3030_3030))  # type: ignore[no-any-return]


@kernel
def _put_boolean(at: int, value: int) -> int:
    """Five bytes are written in either case."""
    store_int32(at, TRUE if value else _FALS)
    store_uint8(at + 4, E)
    return at + (4 if value else 5)


@kernel
def _copy_blocks(target: int, source: int, count: int) -> None:
    """Copy `count` bytes, and up to SLACK more."""
    copy_block(target, source)
    for done in range(BLOCK, count, BLOCK):
        copy_block(target + done, source + done)


@kernel
def _extent(offsets: int, width: int, row: int) -> tuple[int, int]:
    """Where a text begins, and its bytes."""
    if width == _WIDE:
        start = load_int64(offsets + 8 * row)
        return start, load_int64(offsets + 8 * row + 8) - start
    start = _int64(load_int32(offsets + 4 * row))
    return start, _int64(load_int32(offsets + 4 * row + 4)) - start


@kernel
def write(program: Any, order: Any, offsets: Any, at: int) -> bool:
    """Writes the rows in this order (empty: as they are) from the address `at` on, and where the i-th lies,
    counted from there, to offsets[i] and offsets[i + 1]. There is room for the longest that the rows can be,
    and for SLACK bytes more. False, and nothing is to be used, at an integer it can't write."""
    begin = at
    offsets[0] = 0
    for i in range(len(offsets) - 1):
        row = order[i] if len(order) else i
        for step in range(program.shape[0]):
            before, length = program[step, 1], program[step, 2]
            _copy_blocks(at, before, length)
            at += length
            kind, values, valid = program[step, 0], program[step, 3], program[step, 4]
            if kind == END:
                break
            if valid != 0 and load_uint8(valid + row) == 0:
                store_int32(at, NULL)
                at += 4
            elif kind == TEXTS:
                start, size = _extent(program[step, 5], program[step, 6], row)
                store_uint8(at, QUOTE)
                copy_short(at + 1, values + start, size, program[step, 7])
                store_uint8(at + 1 + size, QUOTE)
                at += size + 2
            elif kind == INTEGERS:
                value = load_int64(values + 8 * row)
                if value == _LOWEST:
                    return False
                at = _put_integer(at, value)
            else:
                at = _put_boolean(at, load_uint8(values + row))
        offsets[i + 1] = at - begin
    return True
