"""The loops of KeyIndex, compiled. Needs numba: see kernels/compiled.py.

A place of the table and the identity of a key are two accesses to memory that no cache holds. So the
places of a block of rows are asked for while the block before is worked on, and the identities of all its
rows before the first of them is compared: what is waited for is the memory's throughput, not its latency.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from onceflow.runtime.kernels.compiled import kernel
from onceflow.runtime.kernels.memory import prefetch

NO_NUMBER = np.int64((1 << 63) - 1)
BLOCK_ROWS = 16
"""How many rows are looked for at a time. With more, some of what is asked for is asked for in vain: a core
can wait for a few lines of memory only."""
_BUILD_AHEAD = 32
_ONE = np.uint64(1)
_NUMBER = np.uint64(0xFFFFFFFF)
_TAG = np.uint64(0xFFFFFFFF00000000)


@kernel
def _ask_for_places(table: Any, hashes: Any, first: int) -> None:
    """Ask ahead for the places of the block that begins with this row."""
    mask, table_at = np.uint64(len(table) - 1), np.int64(table.ctypes.data)
    for row in range(first, min(first + BLOCK_ROWS, len(hashes))):
        prefetch(table_at + 8 * np.int64(hashes[row] & mask))


@kernel
def _guess(table: Any, keys: Any, hashes: Any, first: int, end: int, slots: Any, places: Any) -> None:
    """Write for each row of a block the first slot that has its tag, or -1, and the place where the search
    ended; the identities of these slots are asked for."""
    mask, keys_at = np.uint64(len(table) - 1), np.int64(keys.ctypes.data)
    for row in range(first, end):
        place = hashes[row] & mask
        entry = table[place]
        while entry != 0 and ((entry ^ hashes[row]) & _TAG) != 0:
            place = (place + _ONE) & mask
            entry = table[place]
        slot = np.int64(entry & _NUMBER) - 1
        slots[row], places[row - first] = slot, place
        prefetch(keys_at + 16 * slot)


@kernel
def _search(table: Any, keys: Any, key_hash: Any, check: Any, place: Any) -> tuple[Any, Any]:
    """The slot of a key, looked for from this place on, or -1, and the place where the search ended."""
    mask = np.uint64(len(table) - 1)
    while True:
        entry = table[place]
        slot = np.int64(entry & _NUMBER) - 1
        if slot < 0:
            return slot, place
        if ((entry ^ key_hash) & _TAG) == 0 and keys[slot, 0] == key_hash and keys[slot, 1] == check:
            return slot, place
        place = (place + _ONE) & mask


@kernel
def find_or_add(
    table: Any, keys: Any, size: int, hashes: Any, checks: Any, slots: Any, new_rows: Any, places: Any
) -> int:
    """Write into `slots` the slot of each row, and into `new_rows` the rows whose keys were added; returns
    their number. `keys` and `new_rows` have room for them all; the table has an empty place left. `places`:
    BLOCK_ROWS of uint64, to work in."""
    added, rows = 0, len(hashes)
    _ask_for_places(table, hashes, 0)
    for first in range(0, rows, BLOCK_ROWS):
        end = min(first + BLOCK_ROWS, rows)
        _ask_for_places(table, hashes, end)
        _guess(table, keys, hashes, first, end, slots, places)
        for row in range(first, end):
            slot = slots[row]
            if slot >= 0 and keys[slot, 0] == hashes[row] and keys[slot, 1] == checks[row]:
                continue
            # Not found, another key with this tag, or a new key of this block: on from where it ended.
            slot, place = _search(table, keys, hashes[row], checks[row], places[row - first])
            if slot < 0:
                slot = np.int64(size + added)
                table[place] = (hashes[row] & _TAG) | np.uint64(slot + 1)
                keys[slot, 0], keys[slot, 1] = hashes[row], checks[row]
                new_rows[added] = row
                added += 1
            slots[row] = slot
    return added


@kernel
def split(is_removed: Any, numbers: Any, limit: int, within: Any) -> tuple[Any, Any]:
    """Write into `within`, which has room for all keys there are, the slots of those whose number is at most
    `limit`; returns how many, and the lowest number of the other keys, or NO_NUMBER."""
    found, lowest = 0, NO_NUMBER
    for slot in range(len(numbers)):
        if is_removed[slot]:
            continue
        if numbers[slot] <= limit:
            within[found] = slot
            found += 1
        else:
            lowest = min(lowest, numbers[slot])
    return found, lowest


@kernel
def build(table: Any, keys: Any) -> None:
    """Put all keys into an empty table, each at the next free place."""
    mask = np.uint64(len(table) - 1)
    table_at, slots = np.int64(table.ctypes.data), len(keys)
    for slot in range(slots):
        ahead = min(slot + _BUILD_AHEAD, slots - 1)
        prefetch(table_at + 8 * np.int64(keys[ahead, 0] & mask))
        place = keys[slot, 0] & mask
        while table[place] != 0:
            place = (place + _ONE) & mask
        table[place] = (keys[slot, 0] & _TAG) | np.uint64(slot + 1)
