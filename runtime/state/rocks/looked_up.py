"""Rows in RocksDB that a live question looks up: they are read, and stay where they are."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import numpy as np

from onceflow.runtime.errors import UsageError
from onceflow.runtime.records import UInt64s
from onceflow.runtime.state.asked_keys import AskedKeys
from onceflow.runtime.state.hashing import with_start
from onceflow.runtime.state.rocks.away import Split
from onceflow.runtime.state.rocks.database import GET_ROWS, Database
from onceflow.runtime.state.rocks.row_ids import Identities, row_ids

LOOKUPS_MAX = 1 << 15
"""How many pairs of a key and a start are looked up for one question at most: most are not there, and each
takes some microseconds."""


def with_starts(
    database: Database, from_ms: Mapping[int, int], asked: AskedKeys, lookups_max: int = LOOKUPS_MAX
) -> Identities:
    """Each asked key with each start that rows in RocksDB have. `from_ms`: no row wakes earlier, by the kind
    of time. Raises UsageError if that is too much to look up."""
    starts: set[int] = set()
    for kind, first_ms in from_ms.items():
        for start in database.wake_times(kind, first_ms):
            starts.add(start)
            if len(starts) * len(asked) > lookups_max:
                raise UsageError(
                    f"this state has {len(starts):,} starts of windows or more on disk, and a live answer "
                    f"looks for {lookups_max:,} at most, of all its keys together: ask for fewer keys, or "
                    "without --live for the last completed checkpoint"
                )
    at = np.repeat(np.array(sorted(starts), np.int64), len(asked))
    hashes = with_start(np.tile(asked.hashes, len(starts)), at)
    return np.stack((hashes, np.tile(asked.checks, len(starts))), axis=1)


def looked_up(
    database: Database, units: Identities, split: Split | None, asked: AskedKeys, rows_here: int
) -> tuple[list[bytes], UInt64s]:
    """The rows of these units, which are in the order of their ids, and the first hash of the unit of each.
    Raises UsageError if they are too many with those that are in memory."""
    rows: list[bytes] = []
    hashes: list[int] = []
    for first in range(0, len(units), GET_ROWS):
        some = units[first : first + GET_ROWS]
        for unit, content in zip(some[:, 0].tolist(), database.get(row_ids(some)), strict=True):
            its: Iterable[bytes] = () if content is None else [content] if split is None else split(content)
            rows += its
            hashes += [unit] * (len(rows) - len(hashes))
        asked.check_count(rows_here + len(rows))
    return rows, np.array(hashes, np.uint64)
