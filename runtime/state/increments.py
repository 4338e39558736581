"""Increments: snapshots of a table that hold what has changed, and build on an earlier one.

A snapshot is whole, or an increment: the rows that changed since the one that it builds on, those that were
removed since, and, changed or not, all rows of a slice of the table. Slices are ranges of the rows' hashes
and go round: so what an increment of long ago holds is in later ones, it is needed no more, and there is
never a moment at which all has to be written again. A restore reads about twice the rows that there are, at
most.

With a share c of the rows changed from one snapshot to the next, and slices of the share s = max(1/80, c), a
snapshot writes c + s; where that would be half of the table or more, it is whole.

One thread, but for `Increment.written`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from onceflow.runtime.records import Indices, Mask, UInt64s
from onceflow.runtime.state.columns import GrowableColumn
from onceflow.runtime.state.key_groups import key_groups_of
from onceflow.runtime.state.operator_state import KEY_GROUP_COLUMN, FrozenRows
from onceflow.runtime.state.snapshot_options import SnapshotOptions
from onceflow.runtime.state.table import LiveRows

SLICES = 80
"""A slice has at least one of so many parts of the rows."""
HASH_MAX = (1 << 64) - 1

Identities = npt.NDArray[np.uint64]
"""Both hashes by row: shape (rows, 2)."""
NO_IDENTITIES: Identities = np.zeros((0, 2), np.uint64)
HASH, CHECK = "hash", "check"
"""The columns of RemovedRows, behind the key group."""


class Slice(NamedTuple):
    """The rows whose (first) hash is in this range."""

    first: int
    last: int

    def holds(self, hashes: UInt64s) -> Mask:
        return np.asarray((hashes >= np.uint64(self.first)) & (hashes <= np.uint64(self.last)))


ALL_ROWS = Slice(0, HASH_MAX)


@dataclass(frozen=True, slots=True)
class RemovedRows:
    """FrozenRows of rows that are gone: key group, and both hashes."""

    key_groups: npt.NDArray[np.uint16]
    identities: Identities

    def __len__(self) -> int:
        return len(self.key_groups)

    def piece(self, first: int, end: int) -> pa.RecordBatch:
        hashes, checks = self.identities[first:end].T
        return pa.RecordBatch.from_pydict(
            {
                KEY_GROUP_COLUMN: pa.array(self.key_groups[first:end]),
                HASH: pa.array(np.ascontiguousarray(hashes)),
                CHECK: pa.array(np.ascontiguousarray(checks)),
            }
        )


@dataclass(frozen=True, slots=True)
class Increment:
    """What a snapshot of a table is, beside its rows."""

    number: int
    base: int
    """The latest snapshot that was durable when this one was made, -1 if none was. This one builds on it
    unless it is whole, and no later one builds on an earlier one."""
    is_whole: bool
    covers: Slice
    """All rows of it are in this snapshot: those in earlier ones count no more."""
    removed: RemovedRows
    """The rows of earlier snapshots that are gone. One of them may be among the rows of this one, if it came
    again."""
    table_rows: int
    """How many rows the table has, in all."""
    start_column: str | None
    """See Layout."""
    written: Callable[[], None]
    """Whoever writes its rows calls it once they are durable, on any thread: later snapshots may build on it
    from now on, whether or not a checkpoint is ever made of it."""


@dataclass(frozen=True, slots=True)
class FrozenIncrement:
    """FrozenRows of one snapshot of a table whose snapshots build on each other."""

    rows: FrozenRows
    increment: Increment

    def __len__(self) -> int:
        return len(self.rows)

    def piece(self, first: int, end: int) -> pa.RecordBatch:
        return self.rows.piece(first, end)


class Increments:
    """Which rows of a table have changed since which of its snapshots."""

    def __init__(
        self, key_groups: range, max_parallelism: int, start_column: str | None, options: SnapshotOptions
    ) -> None:
        """`key_groups`: of the table's keys."""
        self._max_parallelism = max_parallelism
        # Where the hashes of rows are. With starts they are spread over all that there are.
        self._hashes = hashes_of(key_groups, max_parallelism) if start_column is None else ALL_ROWS
        self._start_column = start_column
        self._options = options
        self.number = 0
        """The next snapshot has it."""
        self._written: int | None = None
        """The latest snapshot that is durable."""
        self._changed_in = GrowableColumn(np.int32)
        """The first snapshot that has the latest change of each row, by row."""
        self._is_stored = GrowableColumn(np.bool_)
        """Whether a snapshot has the row, by row."""
        self._removed: list[tuple[int, RemovedRows]] = []
        """The rows that were removed and which a snapshot has, and the first one that is without them."""
        self._next_first = self._hashes.first
        """Where the next slice begins."""

    def grow(self, size: int) -> None:
        self._changed_in.grow(size)
        self._is_stored.grow(size)

    def note(self, rows: Indices) -> None:
        """These rows have changed, or are about to."""
        self._changed_in.values[rows] = self.number

    def keep(self, kept: Indices) -> None:
        """Renumber: keep these rows only, in this order."""
        self._changed_in.keep(kept)
        self._is_stored.keep(kept)

    def stored(self, rows: Indices) -> Indices:
        """Pick those of these rows that a snapshot may have."""
        return np.asarray(rows[self._is_stored.used().take(rows)])

    def remove(self, identities: Identities, key_hashes: UInt64s) -> None:
        """These rows are gone, which a snapshot may have."""
        removed = RemovedRows(key_groups_of(key_hashes, self._max_parallelism), identities)
        self._removed.append((self.number, removed))

    def came_back(self, rows: Indices) -> None:
        """These rows, which are new here, were here before: a snapshot may have them."""
        self._is_stored.values[rows] = True

    def unwritten(self, rows: Indices) -> tuple[Mask, npt.NDArray[np.int32]]:
        """Tell whether each row has changed since the latest snapshot that is durable, and the first one that
        has its latest change."""
        changed_in = self._changed_in.used().take(rows)
        return np.asarray(changed_in > self.base), changed_in

    @property
    def base(self) -> int:
        """The snapshot on which the next one would build; -1: on none."""
        return -1 if self._written is None else self._written

    def next(
        self, live: LiveRows, hashes: UInt64s, away: int = 0, away_changed: int = 0
    ) -> tuple[LiveRows, Increment]:
        """The next snapshot, now, and the rows in memory that it has; `hashes` by row. `away`: how many rows
        the table has elsewhere, and how many of them have changed since `base`."""
        base, total = self.base, len(live) + away
        chosen = self._changed_in.used() > base
        is_live = None
        stored = self._is_stored.used()
        if len(live) < len(chosen):
            is_live = np.zeros(len(chosen), np.bool_)
            is_live[live.all()] = True
            chosen &= is_live
        stored[:] = True if is_live is None else is_live
        changed = (int(np.count_nonzero(chosen)) + away_changed) / max(1, total)
        share = min(1.0, max(1 / SLICES, changed))
        is_small = total <= self._options.whole_rows_max
        is_whole = base < 0 or is_small or changed + share >= self._options.whole_share
        covers = ALL_ROWS if is_whole else self._next_slice(share)
        if not is_whole:
            in_slice = covers.holds(hashes)
            chosen |= in_slice if is_live is None else in_slice & is_live
            live = LiveRows(0, np.flatnonzero(chosen))
        # Without a snapshot to build on this one is whole, and none will ever ask for what was before it.
        self._removed = [] if base < 0 else [(n, gone) for n, gone in self._removed if n > base]
        number, self.number = self.number, self.number + 1
        return live, Increment(
            number,
            base,
            is_whole,
            covers,
            _one([] if is_whole else [gone for _, gone in self._removed]),
            total,
            self._start_column,
            partial(self._note_written, number),
        )

    def _next_slice(self, share: float) -> Slice:
        """The slice whose turn it is. What lies before and behind the table's hashes, where no row is,
        belongs to the first and the last one."""
        first, hashes = self._next_first, self._hashes
        behind = first + max(1, int((hashes.last - hashes.first + 1) * share))
        is_last = behind > hashes.last
        self._next_first = hashes.first if is_last else behind
        return Slice(0 if first == hashes.first else first, HASH_MAX if is_last else behind - 1)

    def _note_written(self, number: int) -> None:
        if number > self.base:
            self._written = number


def _one(removed: Sequence[RemovedRows]) -> RemovedRows:
    groups = [np.zeros(0, np.uint16), *(rows.key_groups for rows in removed)]
    return RemovedRows(
        np.concatenate(groups), np.concatenate([NO_IDENTITIES, *(rows.identities for rows in removed)])
    )


def hashes_of(key_groups: range, max_parallelism: int) -> Slice:
    """Where the hashes of the keys in these key groups are; the inverse of `key_groups_of`."""
    first, behind = (-(-(group << 32) // max_parallelism) for group in (key_groups.start, key_groups.stop))
    return Slice(first << 32, (behind << 32) - 1)
