"""Loops over the rows of a state: their order when a window fires, and their texts. Needs numba: see
kernels/compiled.py."""

from __future__ import annotations

from typing import Any

import numpy as np

from onceflow.runtime.kernels.blocks import BLOCK, copy_block
from onceflow.runtime.kernels.compiled import kernel
from onceflow.runtime.kernels.memory import copy_bytes, prefetch

SLACK = BLOCK
_AHEAD = 24
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
def spread(part: Any, slots: Any, starts: Any, in_parts: Any) -> None:
    """Into `in_parts` the slots by the part that each is in, those of a part in their order. A part begins
    where `starts` says, which is changed."""
    for row in range(len(slots)):
        at = starts[part[row]]
        in_parts[at] = slots[row]
        starts[part[row]] = at + 1


@kernel
def measure_texts(bounds: Any, slots: Any, new_bounds: Any) -> int:
    """Into `new_bounds`, one more than slots, where these texts begin and end when they lie one after the
    other, the first where new_bounds[0] says; returns the end of the last. If that is more than the type of
    `new_bounds` holds, they are wrong."""
    bounds_at, last = np.int64(bounds.ctypes.data), len(slots) - 1
    end = int(new_bounds[0])
    for i in range(len(slots)):
        prefetch(bounds_at + bounds.itemsize * slots[min(i + _AHEAD, last)])
        end += int(bounds[slots[i] + 1]) - int(bounds[slots[i]])
        new_bounds[i + 1] = end
    return end


@kernel
def copy_texts(bounds: Any, data: int, slots: Any, new_bounds: Any, new_data: int) -> None:
    """Copy these texts from the address `data` to `new_data`."""
    for i in range(len(slots)):
        length = int(new_bounds[i + 1]) - int(new_bounds[i])
        copy_bytes(new_data + int(new_bounds[i]), data + int(bounds[slots[i]]), length)


@kernel
def copy_short_texts(bounds: Any, data: int, slots: Any, new_bounds: Any, new_data: int) -> None:
    """As copy_texts, where SLACK more bytes than all texts lie at either address, anything behind the texts
    may be overwritten, and texts come from all over the place."""
    last = len(slots) - 1
    for i in range(len(slots)):
        prefetch(data + int(bounds[slots[min(i + _AHEAD, last)]]))
        length = int(new_bounds[i + 1]) - int(new_bounds[i])
        target, source = new_data + int(new_bounds[i]), data + int(bounds[slots[i]])
        if length <= SLACK:
            copy_block(target, source)
        else:
            copy_bytes(target, source, length)
