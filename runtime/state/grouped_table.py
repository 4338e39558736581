"""GroupedTable: keyed state with any number of rows for a key; see `table.py`. And what an overflow needs to
know of such a table."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Protocol

import numpy as np
import pyarrow as pa

from onceflow.runtime.records import Indices, UInt64s
from onceflow.runtime.state.operator_state import FrozenRows
from onceflow.runtime.state.snapshot_options import SnapshotOptions
from onceflow.runtime.state.table import NOT_THERE, LiveRows, RowColumn

if TYPE_CHECKING:  # it has kernels beneath it, and who decides knows this protocol
    from onceflow.runtime.state.asked_keys import AskedKeys
    from onceflow.runtime.state.increments import Identities, Increments


class KeyedGroups(Protocol):
    """Rows in memory, any number for a key, of which a key with all its rows can go elsewhere: what a
    GroupedOverflow is of. Numbers of keys and rows are good until something is added, or goes."""

    kept_keys: Indices | None
    """The old numbers of the keys that were kept when keys were renumbered last; None: all were."""

    @property
    def increments(self) -> Increments | None:
        """Which keys have changed since which snapshot, if these build on each other."""
        ...

    def __len__(self) -> int:
        """How many rows there are; it may count some that are not any more."""
        ...

    @property
    def columns(self) -> Mapping[str, RowColumn]:
        """What it keeps by row for others, by the name in a snapshot. All else lies in Arrow or in arrays."""
        ...

    @property
    def size(self) -> int:
        """Numbers of rows are below it."""
        ...

    @property
    def key_count(self) -> int:
        """Numbers of keys are below it."""
        ...

    @property
    def identities(self) -> Identities:
        """Both hashes of each key, side by side, by its number. Never changed in place."""
        ...

    def identities_of(self, batch: pa.RecordBatch, key_hash: UInt64s) -> Identities:
        """Both hashes of each key of a batch, as `find_keys` takes it."""
        ...

    def identities_in(self, batch: pa.RecordBatch) -> Identities:
        """Both hashes of the keys of rows that `freeze` gave, in any order."""
        ...

    def find_identities(self, identities: Identities) -> Indices:
        """The number of each key, or NOT_THERE."""
        ...

    def find_keys(self, batch: pa.RecordBatch, key_hash: UInt64s) -> Indices:
        """The number of each row's key; what is not there is added."""
        ...

    def live_rows(self) -> LiveRows:
        """The rows in use."""
        ...

    def live_keys(self) -> LiveRows:
        """The keys that have rows."""
        ...

    def rows_of_live(self, keys: LiveRows) -> LiveRows:
        """The rows of these keys."""
        ...

    def rows_of_keys(self, numbers: Indices) -> Indices:
        """All rows of these keys, each given once; in no order."""
        ...

    def row_counts(self) -> Indices:
        """How many rows each key has, by its number."""
        ...

    def key_numbers(self, rows: Indices) -> Indices: ...

    def load(self, batch: pa.RecordBatch) -> Indices:
        """Add rows that `freeze` gave."""
        ...

    def load_keys(self, batch: pa.RecordBatch) -> Indices:
        """Do what `load` does; the number of the key of each row, in any order."""
        ...

    def let_go(self, keys: Indices) -> None:
        """Have no rows of these keys any more, which are kept elsewhere."""
        ...

    def compact(self) -> Indices | None:
        """GroupedTable.compact."""
        ...

    def renumber(self) -> Indices:
        """Do what `compact` does, whether or not it pays; keys without rows are forgotten."""
        ...

    def note_gone(self) -> None:
        """Have in `increments` what is gone, before a snapshot."""
        ...

    def build_on_snapshots(self, key_groups: range, max_parallelism: int, options: SnapshotOptions) -> None:
        """IncrementalTable.build_on_snapshots."""
        ...

    def freeze(self, max_parallelism: int) -> FrozenRows:
        """The rows as they are now, for a snapshot; short."""
        ...

    def freeze_rows(self, live: LiveRows, max_parallelism: int) -> FrozenRows:
        """Do what `freeze` does, for some of the rows in use."""
        ...


class GroupedTable(KeyedGroups, Protocol):
    """A table with any number of rows for a key, which are found by it: windows whose bounds change. Keys are
    numbered. The numbers of keys and of rows are good until `compact`; a row that was removed is not in use
    again, while its key may get new ones at any time.

    Its snapshots can build on each other, as those of an IncrementalTable: a key has changed that was looked
    for or loaded, or of which a row was reset, removed or noted.

    Columns, starts among them, are given in the layout; the table knows of none that it would go by.
    """

    def __len__(self) -> int:
        """How many rows are in use."""
        ...

    def rows(self) -> Indices:
        """All rows in use, lowest first."""
        ...

    def add(self, numbers: Indices) -> Indices:
        """A new row for each of these keys, of which equal ones are neighbours. The columns have grown when
        it returns."""
        ...

    def key_hashes(self, numbers: Indices) -> UInt64s: ...

    def keys(self, rows: Indices) -> pa.RecordBatch:
        """The key columns of these rows, in this order."""
        ...

    def reset(self, names: Sequence[str], rows: Indices) -> None:
        """Empty these columns of these rows, which stay."""
        ...

    def note_changed(self, rows: Indices) -> None:
        """The columns of these rows are changed, though nobody looked for their keys since the latest
        snapshot."""
        ...

    def remove(self, rows: Indices) -> None:
        """Forget these rows, each in use and given once."""
        ...

    def compact(self) -> Indices | None:
        """Renumber rows and keys if it pays; the old numbers of the rows, or None if rows were left."""
        ...


def peeked_rows(table: KeyedGroups, asked: AskedKeys, max_parallelism: int) -> pa.RecordBatch:
    """The rows of these keys that are in memory, as `freeze` would give them now; in no order. Nothing
    changes. Raises UsageError if there are too many."""
    found = table.find_identities(asked.identities)
    rows = np.sort(table.rows_of_keys(np.unique(found[found != NOT_THERE])))
    asked.check_count(len(rows))
    return table.freeze_rows(LiveRows(table.size, rows), max_parallelism).piece(0, len(rows))
