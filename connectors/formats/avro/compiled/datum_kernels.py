"""Avro as compiled loops, for records without arrays, maps and records in them: see decode.py."""

from __future__ import annotations

from typing import Any

import numpy as np

from onceflow.runtime.kernels.blocks import store_uint8, trailing_zeros
from onceflow.runtime.kernels.compiled import kernel
from onceflow.runtime.kernels.memory import copy_bytes, load_int64, load_uint8
from onceflow.runtime.kernels.varints import put_varint, varint, varint_bytes

# What a step of the program reads. Its columns: kind, slot of the numbers (-1: skipped), lowest and highest
# integer, index of the branch null (-1: no union), slot of the validity (-1: none, so null is bad), bytes.
INTEGER, FIXED, FLOAT, DOUBLE, BOOLEAN, TEXT = 0, 1, 2, 3, 4, 5
STEP_WIDTH = 7

_DOUBT = -1
_CONTINUED = -0x7F7F7F7F7F7F7F80
"""The highest bit of each byte of a word: another byte follows."""
_SEVEN_BITS = 0x7F7F7F7F7F7F7F7F


@kernel
def _varint(at: int, end: int) -> tuple[Any, int]:
    """The number there and the position after it, or -1 for it. Up to eight bytes are taken as one word,
    without a loop, whose end the processor would guess wrong; reads so many behind the end."""
    word = load_int64(at)
    stops = ~word & _CONTINUED
    if not stops:
        return varint(at, end)
    after = at + (trailing_zeros(stops) >> 3) + 1
    if after > end:
        return np.int64(0), _DOUBT
    word &= (stops ^ (stops - 1)) & _SEVEN_BITS  # the bytes up to the one that ends it
    word = (word & 0x007F007F007F007F) | (word & 0x7F007F007F007F00) >> 1
    word = (word & 0x00003FFF00003FFF) | (word & 0x3FFF00003FFF0000) >> 2
    word = (word & 0x000000000FFFFFFF) | (word & 0x0FFFFFFF00000000) >> 4
    return (word >> 1) ^ -(word & 1), after


@kernel
def _little_endian(at: int, size: int) -> Any:
    value = np.int64(0)
    for i in range(size):
        value |= load_uint8(at + i) << (8 * i)
    return value


@kernel
def _branch(here: int, stop: int) -> tuple[Any, int]:
    """The branch of a union with null and the position after it, or -1 for it."""
    branch, here = _varint(here, stop)
    if branch < 0 or branch > 1:
        return np.int64(0), _DOUBT
    return branch, here


@kernel
def _number(here: int, stop: int, program: Any, step: int, numbers: Any, row: int) -> Any:
    """Reads an integer; the position after it, or -1."""
    value, here = _varint(here, stop)
    if here < 0 or value < program[step, 2] or value > program[step, 3]:
        return _DOUBT
    if program[step, 1] >= 0:
        numbers[program[step, 1], row] = value
    return here


@kernel
def _text(data: int, here: int, stop: int, slot: int, numbers: Any, row: int) -> Any:
    """Reads a length and as many bytes; the position after them, or -1."""
    byte = load_uint8(here)
    if byte < 0x80 and here < stop:  # nearly always
        size = (byte >> 1) ^ -(byte & 1)
        here += 1
    else:
        size, here = _varint(here, stop)
    if here < 0 or size < 0 or size > stop - here:
        return _DOUBT
    if slot >= 0:
        numbers[slot, row] = here - data
        numbers[slot + 1, row] = size
    return here + size


@kernel
def _bytes(data: int, here: int, stop: int, program: Any, step: int, numbers: Any, row: int) -> Any:
    """Reads what takes a number of bytes that the schema says; the position after it, or -1."""
    kind = program[step, 0]
    slot = program[step, 1]
    size = program[step, 6]
    if size > stop - here or (kind == BOOLEAN and load_uint8(here) > 1):
        return _DOUBT
    if slot >= 0:
        if kind == FIXED:
            numbers[slot, row] = here - data
            numbers[slot + 1, row] = size
        else:
            numbers[slot, row] = _little_endian(here, size)
    return here + size


@kernel
def walk(data: int, at: Any, end: Any, program: Any, numbers: Any, valid: Any, is_sure: Any) -> None:
    """Reads datums from `at` to `end` of the memory at `data`, which is readable for eight bytes more: into
    numbers[slot, row] integers and the bits of floats, or where a text begins and, in the next slot, how
    long it is; into valid[slot, row] whether it is there. A datum with a surprise leaves numbers that may
    be used all the same, and is_sure[row] False."""
    for row in range(len(at)):
        here = data + at[row]
        stop = data + end[row]
        for step in range(program.shape[0]):
            if program[step, 4] >= 0:
                branch, here = _branch(here, stop)
                if here >= 0 and branch == program[step, 4]:
                    if program[step, 5] >= 0:
                        valid[program[step, 5], row] = False
                        continue
                    here = _DOUBT
            if here >= 0:
                kind = program[step, 0]
                if kind == INTEGER:
                    here = _number(here, stop, program, step, numbers, row)
                elif kind == TEXT:
                    here = _text(data, here, stop, program[step, 1], numbers, row)
                else:
                    here = _bytes(data, here, stop, program, step, numbers, row)
            if here < 0:
                break
        is_sure[row] = here == stop


@kernel
def ends(data: int, size: int, program: Any, numbers: Any, found: Any) -> Any:
    """Where each datum ends of those that lie one behind the other in so many bytes at `data`, which is
    readable for eight bytes more: found[row]. Whether they are all whole, and nothing is left over."""
    here = data
    stop = data + size
    for row in range(len(found)):
        for step in range(program.shape[0]):
            if program[step, 4] >= 0:
                branch, here = _branch(here, stop)
                if here >= 0 and branch == program[step, 4]:
                    continue
            if here >= 0:
                kind = program[step, 0]
                if kind == INTEGER:
                    here = _number(here, stop, program, step, numbers, row)
                elif kind == TEXT:
                    here = _text(data, here, stop, -1, numbers, row)
                else:
                    here = _bytes(data, here, stop, program, step, numbers, row)
            if here < 0:
                return False
        found[row] = here - data
    return here == stop


@kernel
def gather(data: int, start: Any, offsets: Any, target: int) -> None:
    """Copies bytes from each start, in the memory at `data`, to the one at `target`: row i to offsets[i]
    and further until offsets[i + 1]."""
    for row in range(len(start)):
        copy_bytes(target + offsets[row], data + start[row], offsets[row + 1] - offsets[row])


# --- Writing --------------------------------------------------------------------------------------

# What a step writes. Its columns: kind, address of the values, address of the offsets (int64) of a text,
# address of the validity (a byte for each row) or 0, index of the branch null (-1: no union), bytes.
VARINTS, PLAIN, TEXTS, CONSTANT = 0, 1, 2, 3
WRITE_WIDTH = 6


@kernel
def measure(program: Any, offsets: Any) -> None:
    """Where each row's value ends: offsets[1:]."""
    total = 0
    for row in range(len(offsets) - 1):
        for step in range(program.shape[0]):
            kind = program[step, 0]
            if program[step, 4] >= 0:
                total += 1
            if program[step, 3] and not load_uint8(program[step, 3] + row):
                continue
            if kind == VARINTS:
                total += varint_bytes(load_int64(program[step, 1] + 8 * row))
            elif kind == TEXTS:
                size = load_int64(program[step, 2] + 8 * row + 8) - load_int64(program[step, 2] + 8 * row)
                total += varint_bytes(size) + size
            else:
                total += program[step, 5]
        offsets[row + 1] = total


@kernel
def write(program: Any, offsets: Any, out_address: int) -> None:
    """Writes each row's value from offsets[row] on."""
    for row in range(len(offsets) - 1):
        at = out_address + offsets[row]
        for step in range(program.shape[0]):
            kind = program[step, 0]
            null = program[step, 4]
            is_there = program[step, 3] == 0 or load_uint8(program[step, 3] + row) != 0
            if null >= 0:
                store_uint8(at, 2 * (1 - null if is_there else null))
                at += 1
            if not is_there:
                continue
            values = program[step, 1]
            if kind == VARINTS:
                at = put_varint(at, load_int64(values + 8 * row))
            elif kind == TEXTS:
                start = load_int64(program[step, 2] + 8 * row)
                size = load_int64(program[step, 2] + 8 * row + 8) - start
                at = put_varint(at, size)
                copy_bytes(at, values + start, size)
                at += size
            else:
                size = program[step, 5]
                copy_bytes(at, values + (0 if kind == CONSTANT else size * row), size)
                at += size
