"""Flat rows to JSON as a compiled loop: see json_compiled_encoder.py."""

from __future__ import annotations

from typing import Any

import numpy as np

from onceflow.runtime.kernels.compiled import kernel
from onceflow.runtime.kernels.memory import copy_bytes, load_int64, load_uint8

# What a step writes. Its columns: kind, address of the values, address of the offsets (int64) of a text,
# address of the validity (a byte for each row) or 0, address and length of what stands before the value.
TEXTS, INTEGERS, BOOLEANS = 0, 1, 2
WRITE_WIDTH = 6
INTEGER_BYTES_MAX = 20
_LOWEST = -(1 << 63)
_ZERO, _MINUS, _QUOTE, _END = 0x30, 0x2D, 0x22, 0x7D
_A, _E, _F, _L, _N, _R, _S, _T, _U = 0x61, 0x65, 0x66, 0x6C, 0x6E, 0x72, 0x73, 0x74, 0x75


@kernel
def _put_integer(out: Any, at: int, value: int) -> int:
    """Any but the lowest of int64, which has no opposite. Digits come from the last one on."""
    if value < 0:
        out[at] = _MINUS
        at += 1
        value = -value
    ten = np.uint64(10)
    rest = np.uint64(value)
    size = 1
    bound = ten
    while size < 19 and rest >= bound:
        size += 1
        bound *= ten
    for place in range(at + size - 1, at - 1, -1):
        higher = rest // ten
        out[place] = _ZERO + np.int64(rest - higher * ten)
        rest = higher
    return at + size


@kernel
def _put_null(out: Any, at: int) -> int:
    out[at], out[at + 1], out[at + 2], out[at + 3] = _N, _U, _L, _L
    return at + 4


@kernel
def _put_boolean(out: Any, at: int, value: int) -> int:
    if value:
        out[at], out[at + 1], out[at + 2], out[at + 3] = _T, _R, _U, _E
        return at + 4
    out[at], out[at + 1], out[at + 2], out[at + 3], out[at + 4] = _F, _A, _L, _S, _E
    return at + 5


@kernel
def write(program: Any, offsets: Any, out: Any, out_address: int) -> bool:
    """Writes each row from offsets[row] on, and where it ends to offsets[row + 1]. `out` has room for the
    longest that the rows can be. False, and nothing is to be used, at an integer it can't write."""
    at = 0
    for row in range(len(offsets) - 1):
        for step in range(program.shape[0]):
            copy_bytes(out_address + at, program[step, 4], program[step, 5])
            at += program[step, 5]
            kind, values, valid = program[step, 0], program[step, 1], program[step, 3]
            if valid != 0 and load_uint8(valid + row) == 0:
                at = _put_null(out, at)
            elif kind == TEXTS:
                start = load_int64(program[step, 2] + 8 * row)
                size = load_int64(program[step, 2] + 8 * row + 8) - start
                out[at] = _QUOTE
                copy_bytes(out_address + at + 1, values + start, size)
                out[at + 1 + size] = _QUOTE
                at += size + 2
            elif kind == INTEGERS:
                value = load_int64(values + 8 * row)
                if value == _LOWEST:
                    return False
                at = _put_integer(out, at, value)
            else:
                at = _put_boolean(out, at, load_uint8(values + row))
        out[at] = _END
        at += 1
        offsets[row + 1] = at
    return True
