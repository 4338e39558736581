"""Away: which rows of RocksDB a snapshot has, as they were at the barrier; read by another thread."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice
from typing import Protocol

import numpy as np

from onceflow.runtime.state.increments import Slice
from onceflow.runtime.state.rocks.database import Database
from onceflow.runtime.state.rocks.row_ids import Identities, are_among, identities_of, row_ids

_COUNTED_ROWS = 1 << 13


class Away(Protocol):
    """Made by the slot's thread at the barrier, and used by one other."""

    @property
    def is_empty(self) -> bool:
        """It is known that there are no such rows."""
        ...

    def count(self, twice: Identities) -> int:
        """How many of the rows are not among these, which are in order. Called once, before `rows`."""
        ...

    def rows(self) -> Iterator[tuple[bytes, bytes]]:
        """The rows, id and content, in the order of their ids; also those that are twice."""
        ...


class AllAway:
    """Away: all rows that RocksDB has."""

    def __init__(self, database: Database, count: int) -> None:
        """`count`: without those that are twice."""
        self._count = count
        self._rows = database.freeze() if count else iter(())

    @property
    def is_empty(self) -> bool:
        return not self._count

    def count(self, twice: Identities) -> int:
        return self._count

    def rows(self) -> Iterator[tuple[bytes, bytes]]:
        return self._rows


class SomeAway:
    """Away: these rows, and those of a slice."""

    def __init__(self, database: Database, changed: Identities, covers: Slice) -> None:
        """`changed`: in the order of their ids; none of them is in memory."""
        inside = covers.holds(changed[:, 0])
        first = int(np.searchsorted(changed[:, 0], np.uint64(covers.first)))
        self._before = row_ids(changed[:first])
        self._behind = row_ids(changed[first + int(np.count_nonzero(inside)) :])
        [first_id, last_id] = row_ids(np.array([[covers.first, 0], [covers.last, (1 << 64) - 1]], np.uint64))
        # Two, since what is counted is not to be kept in memory until it is written.
        self._counted, self._read = (database.freeze_slice(first_id, last_id) for _ in range(2))

    @property
    def is_empty(self) -> bool:
        return False

    def count(self, twice: Identities) -> int:
        found = len(self._before) + len(self._behind)
        counted = self._counted.ids()
        while ids := list(islice(counted, _COUNTED_ROWS)):
            found += len(ids) - int(np.count_nonzero(are_among(identities_of(ids), twice)))
        return found

    def rows(self) -> Iterator[tuple[bytes, bytes]]:
        yield from self._read.of(self._before)
        yield from self._read.rows()
        yield from self._read.of(self._behind)
