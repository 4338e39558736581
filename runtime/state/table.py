"""KeyedTable: keyed state as operators see it, whatever keeps it.

A table has a row for each key, or for each key and start (of a window or a pane). A row is a number, by which
the operator's columns go: it changes them in place, a batch at a time. The table numbers the rows, and keeps
its columns in step: it grows, renumbers, empties, freezes and restores them. So an operator never asks which
rows there are, and what keeps them can change behind this line.

A row's number is good until `compact`. Everything is called by one thread; what `freeze` gives is read by
another one.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from onceflow.runtime.records import Indices, Int64s, UInt64s
from onceflow.runtime.state.operator_state import FrozenRows
from onceflow.runtime.state.snapshot_options import SnapshotOptions

if TYPE_CHECKING:  # they have kernels beneath them, and who decides knows these protocols
    from onceflow.runtime.state.asked_keys import AskedKeys
    from onceflow.runtime.state.columns import FreezableColumn

Frozen = Callable[[Indices], pa.Array]
"""What a column was at a barrier: makes Arrow of some of the rows, lowest first, on any thread."""

_COPY_PART = 8
"""A list of Python objects is copied as quickly as one of so many of them is picked."""
NOT_THERE = -1
"""In the place of a row: there is none."""


class LiveRows:
    """The rows in use at some time, lowest first; made for those that are asked for only."""

    __slots__ = ("_size", "_some")

    def __init__(self, size: int, some: Indices | None = None) -> None:
        """`some` of `size` rows; None: all."""
        self._size = size if some is None else len(some)
        self._some = some

    def __len__(self) -> int:
        return self._size

    def piece(self, first: int, end: int) -> Indices:
        """The rows from the `first` of them to the one before `end`."""
        return np.arange(first, min(end, self._size)) if self._some is None else self._some[first:end]

    def all(self) -> Indices:
        return self.piece(0, self._size)

    def copied(self, values: list[Any]) -> Callable[[Indices], list[Any]]:
        """What is in a list by row now, for these rows; later, and on any thread."""
        some = self._some
        if some is None or len(values) < _COPY_PART * len(some):
            frozen = values.copy()
            return lambda rows: [frozen[row] for row in rows.tolist()]
        picked = [values[row] for row in some.tolist()]
        return lambda rows: [picked[place] for place in np.searchsorted(some, rows).tolist()]

    def frozen(self, column: FreezableColumn) -> Callable[[Indices], npt.NDArray[Any]]:
        """What is in a column now, for these rows; later, and on any thread. Few rows are picked, and the
        column is not copied."""
        some = self._some
        if some is None or len(column) < _COPY_PART * len(some):
            return column.frozen().take
        picked = column.values.take(some)
        return lambda rows: picked.take(np.searchsorted(some, rows))


class RowColumn(Protocol):
    """Values by row, of whoever made the column and gave it to the table. The table calls all of this."""

    def grow(self, size: int) -> None:
        """Have this many rows; new ones are empty."""
        ...

    def clear(self, rows: Indices) -> None:
        """Make these rows as empty as new ones."""
        ...

    def keep(self, rows: Indices) -> None:
        """Renumber: keep these rows only, in this order."""
        ...

    def freeze(self, live: LiveRows) -> Frozen | None:
        """Short. It is called with some of these rows. None: nothing is in any row, and a snapshot leaves
        the column out."""
        ...

    def load(self, rows: Indices, values: pa.Array, /) -> None:
        """Restore these rows, which are new, from a snapshot; not called if it has no such column."""
        ...


@runtime_checkable
class CompactColumn(Protocol):
    """A RowColumn that says how its values lie in memory."""

    @property
    def has_numbers_only(self) -> bool:
        """Whether all that it has are arrays of numbers, and no Python objects: so its column of a snapshot
        has its size, too, if there is no text in it."""
        ...


@dataclass(frozen=True, slots=True)
class Layout:
    """What a table is of. `columns`: what it keeps by row, by the name in a snapshot, in that order."""

    key_columns: Sequence[str]
    schema: pa.Schema
    """The schema of the batches that come; the key columns are in it."""
    columns: Mapping[str, RowColumn]
    start_column: str | None = None
    """The name of the starts in a snapshot; None: keys alone."""
    step_ms: int = 1
    """Starts are apart by multiples of it."""

    @property
    def key_schema(self) -> pa.Schema:
        return pa.schema([self.schema.field(name) for name in self.key_columns])


class DueRows(Protocol):
    """Rows that are due, earliest start first, and within a start in the order in which they came."""

    @property
    def is_through(self) -> bool: ...

    def take(self, count: int) -> tuple[Indices, Int64s]:
        """The next so many rows at most, and their starts."""
        ...


class KeyedTable(Protocol):
    """See above. Where it says start, a table of keys alone has 0.

    A batch comes with `key_hash`, which is `hash_keys` of its key columns. What is added has its key columns
    copied.
    """

    def __len__(self) -> int:
        """How many rows are in use."""
        ...

    @property
    def size(self) -> int:
        """Numbers of rows are below it."""
        ...

    def find(self, batch: pa.RecordBatch, key_hash: UInt64s, starts: Int64s | None = None) -> Indices:
        """The row of each key (and start), or NOT_THERE. Adds nothing."""
        ...

    def find_or_add(self, batch: pa.RecordBatch, key_hash: UInt64s, starts: Int64s | None = None) -> Indices:
        """The row of each key (and start). What is not there is added, at its first place in the batch. The
        columns have grown when it returns."""
        ...

    def keys(self, rows: Indices) -> pa.RecordBatch:
        """The key columns of these rows, in this order."""
        ...

    def starts(self, rows: Indices) -> Int64s: ...

    def reset(self, rows: Indices) -> None:
        """Empty the columns of these rows, which stay."""
        ...

    def remove(self, rows: Indices) -> None:
        """Forget these rows, each in use and given once. None of them may be looked for again before
        `compact`: a window that has fired is not. For what comes back there is `reset`."""
        ...

    def due(self, limit: int) -> DueRows | None:
        """The rows that start at this time or before; None: there are none. They stay until they are removed;
        the rows of one answer are removed before the next one is asked for."""
        ...

    def compact(self) -> Indices | None:
        """Renumber the rows in use, in their order, if it pays; their old numbers, or None if it was left.
        Not while rows that are due, or numbers from before, are still needed."""
        ...

    def freeze(self, max_parallelism: int, beside: Mapping[str, Int64s] | None = None) -> FrozenRows:
        """The rows as they are now, for a snapshot; short. Columns: key_group, key (struct), the start, then
        `beside` (numbers by row that this snapshot has), then the table's: names of users never meet ours."""
        ...

    def load(self, batch: pa.RecordBatch) -> Indices:
        """Add rows that `freeze` gave, here or in another table; no row of them is there."""
        ...


class IncrementalTable(KeyedTable, Protocol):
    """A KeyedTable that knows which rows have changed: those that `find_or_add` gave, or that were loaded,
    reset or noted. So its snapshots can build on each other (`increments.py`)."""

    def note_changed(self, rows: Indices) -> None:
        """The columns of these rows are changed, though nobody looked for them since the latest snapshot."""
        ...

    def peek(self, asked: AskedKeys, max_parallelism: int) -> pa.RecordBatch:
        """The rows of these keys, with all their starts, as `freeze` would give them now; in no order.
        Nothing changes, and no row counts as used. Raises UsageError if there are too many."""
        ...

    def build_on_snapshots(self, key_groups: range, max_parallelism: int, options: SnapshotOptions) -> None:
        """Called at most once, before the first row: from now on `freeze` gives a FrozenIncrement, with the
        rows that a snapshot needs which builds on the latest one that is durable. `key_groups`: of all keys
        that there will be."""
        ...


class IdentifiedTable(IncrementalTable, Protocol):
    """An IncrementalTable that tells by what its rows are known."""

    @property
    def identities(self) -> npt.NDArray[np.uint64]:
        """Both hashes of each row's key, side by side, by row. Never changed in place."""
        ...

    def identities_of(self, batch: pa.RecordBatch, key_hash: UInt64s) -> npt.NDArray[np.uint64]:
        """Both hashes of each key of a batch."""
        ...

    def find_identities(self, identities: npt.NDArray[np.uint64]) -> Indices:
        """The row of each, or NOT_THERE."""
        ...

    def renumber(self) -> Indices:
        """Do what `compact` does, whether or not it pays."""
        ...


class TrackedTable(IncrementalTable, Protocol):
    """An IncrementalTable that can be asked."""

    def take_changed(self) -> Indices:
        """The rows that have changed since the last call and are in use, lowest first."""
        ...


class PaneTable(KeyedTable, Protocol):
    """A KeyedTable whose rows are also found by their start, and whose keys are numbered: several rows of one
    key, one for each pane, have the same key number. Key numbers are good until `compact`."""

    @property
    def key_count(self) -> int:
        """Numbers of keys are below it."""
        ...

    def peek(
        self, asked: AskedKeys, max_parallelism: int, beside: Mapping[str, Int64s] | None = None
    ) -> pa.RecordBatch:
        """IncrementalTable.peek; `beside` as for `freeze`."""
        ...

    def panes(self) -> Int64s:
        """The starts there are, earliest first."""
        ...

    def rows_of(self, panes: Int64s) -> Indices:
        """The rows with these starts, each of which is there: start by start, within one in their order."""
        ...

    def key_numbers(self, rows: Indices) -> Indices:
        """The number of each row's key."""
        ...

    def keys_by_number(self, numbers: Indices) -> pa.RecordBatch:
        """The key columns of these keys."""
        ...

    def key_hashes(self, numbers: Indices) -> UInt64s:
        """The hashes of these keys."""
        ...
