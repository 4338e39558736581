"""The loops of KeyIndex, compiled. Needs numba: see kernels/compiled.py.

An item is a key of the batch that is looked for, by its number there; a row is where it is found.

A place of the table and the identity of a key are two accesses to memory that no cache holds. So the
places of a block of items are asked for while the block before is worked on, and the identities of all its
items before the first of them is compared: what is waited for is the memory's throughput, not its latency.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from onceflow.runtime.kernels.compiled import kernel
from onceflow.runtime.kernels.memory import prefetch

NO_NUMBER = np.int64((1 << 63) - 1)
BLOCK_KEYS = 16
"""How many items are looked for at a time. With more, some of what is asked for is asked for in vain: a core
can wait for a few lines of memory only."""
_BUILD_AHEAD = 32
_ONE = np.uint64(1)
_NUMBER = np.uint64(0xFFFFFFFF)
_TAG = np.uint64(0xFFFFFFFF00000000)


@kernel
def _ask_for_places(table: Any, hashes: Any, first: int) -> None:
    """Ask ahead for the places of the block that begins with this item."""
    mask, table_at = np.uint64(len(table) - 1), np.int64(table.ctypes.data)
    for item in range(first, min(first + BLOCK_KEYS, len(hashes))):
        prefetch(table_at + 8 * np.int64(hashes[item] & mask))


@kernel
def _guess(table: Any, keys: Any, hashes: Any, first: int, end: int, rows: Any, places: Any) -> None:
    """Write for each item of a block the first row that has its tag, or -1, and the place where the search
    ended; the identities of these rows are asked for."""
    mask, keys_at = np.uint64(len(table) - 1), np.int64(keys.ctypes.data)
    for item in range(first, end):
        place = hashes[item] & mask
        entry = table[place]
        while entry != 0 and ((entry ^ hashes[item]) & _TAG) != 0:
            place = (place + _ONE) & mask
            entry = table[place]
        row = np.int64(entry & _NUMBER) - 1
        rows[item], places[item - first] = row, place
        prefetch(keys_at + 16 * row)


@kernel
def _search(table: Any, keys: Any, key_hash: Any, check: Any, place: Any) -> tuple[Any, Any]:
    """The row of a key, looked for from this place on, or -1, and the place where the search ended."""
    mask = np.uint64(len(table) - 1)
    while True:
        entry = table[place]
        row = np.int64(entry & _NUMBER) - 1
        if row < 0:
            return row, place
        if ((entry ^ key_hash) & _TAG) == 0 and keys[row, 0] == key_hash and keys[row, 1] == check:
            return row, place
        place = (place + _ONE) & mask


@kernel
def find_or_add(
    table: Any, keys: Any, size: int, hashes: Any, checks: Any, rows: Any, new: Any, places: Any
) -> int:
    """Write into `rows` the row of each item, and into `new` the items whose keys were added; returns
    their number. `keys` and `new` have room for them all; the table has an empty place left. `places`:
    BLOCK_KEYS of uint64, to work in."""
    added, items = 0, len(hashes)
    _ask_for_places(table, hashes, 0)
    for first in range(0, items, BLOCK_KEYS):
        end = min(first + BLOCK_KEYS, items)
        _ask_for_places(table, hashes, end)
        _guess(table, keys, hashes, first, end, rows, places)
        for item in range(first, end):
            row = rows[item]
            if row >= 0 and keys[row, 0] == hashes[item] and keys[row, 1] == checks[item]:
                continue
            # Not found, another key with this tag, or a new key of this block: on from where it ended.
            row, place = _search(table, keys, hashes[item], checks[item], places[item - first])
            if row < 0:
                row = np.int64(size + added)
                table[place] = (hashes[item] & _TAG) | np.uint64(row + 1)
                keys[row, 0], keys[row, 1] = hashes[item], checks[item]
                new[added] = item
                added += 1
            rows[item] = row
    return added


@kernel
def find(table: Any, keys: Any, hashes: Any, checks: Any, rows: Any) -> None:
    """Write into `rows` the row of each item, or -1."""
    mask = np.uint64(len(table) - 1)
    for item in range(len(hashes)):
        row, _ = _search(table, keys, hashes[item], checks[item], hashes[item] & mask)
        rows[item] = row


@kernel
def split(is_removed: Any, numbers: Any, limit: int, within: Any) -> tuple[Any, Any]:
    """Write into `within`, which has room for all keys there are, the rows of those whose number is at most
    `limit`; returns how many, and the lowest number of the other keys, or NO_NUMBER."""
    found, lowest = 0, NO_NUMBER
    for row in range(len(numbers)):
        if is_removed[row]:
            continue
        if numbers[row] <= limit:
            within[found] = row
            found += 1
        else:
            lowest = min(lowest, numbers[row])
    return found, lowest


@kernel
def build(table: Any, keys: Any) -> None:
    """Put all keys into an empty table, each at the next free place."""
    mask = np.uint64(len(table) - 1)
    table_at, rows = np.int64(table.ctypes.data), len(keys)
    for row in range(rows):
        ahead = min(row + _BUILD_AHEAD, rows - 1)
        prefetch(table_at + 8 * np.int64(keys[ahead, 0] & mask))
        place = keys[row, 0] & mask
        while table[place] != 0:
            place = (place + _ONE) & mask
        table[place] = (keys[row, 0] & _TAG) | np.uint64(row + 1)
