"""Loops over the rows of a state: their order when a window fires, and their texts. Needs numba: see
kernels/compiled.py."""

from __future__ import annotations

from typing import Any

import numpy as np

from onceflow.runtime.kernels.compiled import kernel
from onceflow.runtime.kernels.memory import copy_bytes

_DIGITS = 1 << 11
_LOW_DIGIT, _HIGH_DIGIT = np.uint64(42), np.uint64(53)
_MOVES_MAX = 16


@kernel
def _sort_by_digit(hashes: Any, rows: Any, to_hashes: Any, to_rows: Any, shift: np.uint64) -> None:
    """By 11 bits from `shift` on; what has the same stays in its order."""
    mask = np.uint64(_DIGITS - 1)
    ends = np.zeros(_DIGITS + 1, np.int64)
    for i in range(len(hashes)):
        ends[int((hashes[i] >> shift) & mask) + 1] += 1
    ends = np.cumsum(ends)
    for i in range(len(hashes)):
        digit = int((hashes[i] >> shift) & mask)
        to_hashes[ends[digit]], to_rows[ends[digit]] = hashes[i], rows[i]
        ends[digit] += 1


@kernel
def sort_by_hash(hashes: Any, rows: Any) -> bool:
    """Sort both, in place, by the hash: by its highest 22 bits, then by insertion, which has little left
    to do if hashes are evenly spread. False: they are not; both are in no particular order."""
    other_hashes, other_rows = np.empty_like(hashes), np.empty_like(rows)
    _sort_by_digit(hashes, rows, other_hashes, other_rows, _LOW_DIGIT)
    _sort_by_digit(other_hashes, other_rows, hashes, rows, _HIGH_DIGIT)
    moves_left = _MOVES_MAX * len(hashes)
    for i in range(1, len(hashes)):
        hash_here, row = hashes[i], rows[i]
        j = int(i)
        while j > 0 and hashes[j - 1] > hash_here:
            hashes[j], rows[j] = hashes[j - 1], rows[j - 1]
            j -= 1
        hashes[j], rows[j] = hash_here, row
        moves_left -= i - j
        if moves_left < 0:
            return False
    return True


@kernel
def measure_texts(ends: Any, slots: Any, new_ends: Any) -> int:
    """Into `new_ends`, one more than slots, where these texts begin and end when they lie one after the
    other; returns the bytes of all. If that is more than the type of `new_ends` holds, they are wrong."""
    total = 0
    new_ends[0] = 0
    for i in range(len(slots)):
        total += int(ends[slots[i] + 1]) - int(ends[slots[i]])
        new_ends[i + 1] = total
    return total


@kernel
def copy_texts(ends: Any, data: int, slots: Any, new_ends: Any, new_data: int) -> None:
    """Copy these texts from the address `data` to `new_data`."""
    for i in range(len(slots)):
        length = int(new_ends[i + 1]) - int(new_ends[i])
        copy_bytes(new_data + int(new_ends[i]), data + int(ends[slots[i]]), length)
