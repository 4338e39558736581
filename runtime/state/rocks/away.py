"""Away: which rows of RocksDB a snapshot has, as they were at the barrier; read by another thread."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import chain, islice
from typing import Protocol

import numpy as np

from onceflow.runtime.state.increments import HASH_MAX, NO_IDENTITIES, Slice
from onceflow.runtime.state.rocks.database import Database, FrozenSlice
from onceflow.runtime.state.rocks.row_ids import Identities, are_among, identities_of, row_ids
from onceflow.runtime.state.rocks.went import FrozenWent

_COUNTED_ROWS = 1 << 13

Split = Callable[[bytes], Sequence[bytes]]
"""The rows that are one in RocksDB, of its content."""


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

    def __init__(self, database: Database, count: int, split: Split | None) -> None:
        """`count`: of rows, without those that are twice."""
        self._count = count
        self._rows = _split_rows(database.freeze() if count else iter(()), split)

    @property
    def is_empty(self) -> bool:
        return not self._count

    def count(self, twice: Identities) -> int:
        return self._count

    def rows(self) -> Iterator[tuple[bytes, bytes]]:
        return self._rows


class SomeAway:
    """Away: these rows, and those of a slice."""

    def __init__(self, database: Database, went: FrozenWent, covers: Slice, split: Split | None) -> None:
        """`went`: the rows, of which some may be in memory, too."""
        self._went, self._covers, self._twice = went, covers, NO_IDENTITIES
        [first_id, last_id] = row_ids(np.array([[covers.first, 0], [covers.last, (1 << 64) - 1]], np.uint64))
        self._split = split
        # Two, since what is counted is not to be kept in memory until it is written.
        self._counted, self._read = (database.freeze_slice(first_id, last_id) for _ in range(2))

    @property
    def is_empty(self) -> bool:
        return False

    def count(self, twice: Identities) -> int:
        found, self._twice = 0, twice
        counted = self._counted_ids()
        while ids := list(islice(counted, _COUNTED_ROWS)):
            found += len(ids) - int(np.count_nonzero(are_among(identities_of(ids), twice)))
        return found

    def rows(self) -> Iterator[tuple[bytes, bytes]]:
        return self._rows_of(self._read)

    def _counted_ids(self) -> Iterator[bytes]:
        """The id of each row."""
        if self._split is None:
            return chain(self._before(), self._counted.ids(), self._behind())
        return (row_id for row_id, _ in self._rows_of(self._counted))

    def _rows_of(self, frozen: FrozenSlice) -> Iterator[tuple[bytes, bytes]]:
        found = chain(frozen.of(self._before()), frozen.rows(), frozen.of(self._behind()))
        return _split_rows(found, self._split)

    def _before(self) -> Iterator[bytes]:
        """The ids of those that went, before the slice."""
        return self._ids(self._went.between(0, self._covers.first - 1))

    def _behind(self) -> Iterator[bytes]:
        return self._ids(self._went.between(self._covers.last + 1, HASH_MAX))

    def _ids(self, found: Iterator[Identities]) -> Iterator[bytes]:
        for identities in found:
            yield from row_ids(identities[~are_among(identities, self._twice)])


def _split_rows(found: Iterator[tuple[bytes, bytes]], split: Split | None) -> Iterator[tuple[bytes, bytes]]:
    if split is None:
        return found
    return ((row_id, row) for row_id, content in found for row in split(content))
