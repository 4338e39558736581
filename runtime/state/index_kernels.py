"""The loops of KeyIndex, compiled. Needs numba: see kernels/compiled.py.

A block of rows is looked at three times: where its places in the table are, which keys those hold, and
only then row by row, so that the memory of all its rows is on its way at once.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from onceflow.runtime.kernels.compiled import kernel

_BLOCK_ROWS = 64


@kernel
def find_or_add(table: Any, keys: Any, size: int, hashes: Any, checks: Any, slots: Any, new_rows: Any) -> int:
    """Into `slots` the slot of each row; into `new_rows` the rows whose keys were added, whose number it
    returns. `keys` and `new_rows` have room for them all; the table has an empty place left."""
    mask = np.uint64(len(table) - 1)
    step = np.int64(mask)
    places, there = np.empty(_BLOCK_ROWS, np.int64), np.empty(_BLOCK_ROWS, np.int64)
    is_match = np.empty(_BLOCK_ROWS, np.bool_)
    added = 0
    for first in range(0, len(hashes), _BLOCK_ROWS):
        rows = min(_BLOCK_ROWS, len(hashes) - first)
        for i in range(rows):
            places[i] = np.int64(hashes[first + i] & mask)
            there[i] = table[places[i]]
        for i in range(rows):
            key = max(there[i], 0)
            row = first + i
            is_match[i] = (keys[key, 0] == hashes[row]) & (keys[key, 1] == checks[row]) & (there[i] >= 0)
        for i in range(rows):
            row = first + i
            if is_match[i]:
                slots[row] = there[i]
                continue
            place = np.int64(places[i])  # the block's own new keys may have come there since
            while True:
                slot = np.int64(table[place])
                if slot < 0:
                    slot = np.int64(size + added)
                    table[place] = slot
                    keys[slot, 0], keys[slot, 1] = hashes[row], checks[row]
                    new_rows[added] = row
                    added += 1
                    break
                if keys[slot, 0] == hashes[row] and keys[slot, 1] == checks[row]:
                    break
                place = (place + 1) & step
            slots[row] = slot
    return added


@kernel
def build(table: Any, keys: Any) -> None:
    """Put all keys into an empty table, each at the next free place."""
    mask = np.uint64(len(table) - 1)
    step = np.int64(mask)
    for slot in range(len(keys)):
        place = np.int64(keys[slot, 0] & mask)
        while table[place] >= 0:
            place = (place + 1) & step
        table[place] = slot
