"""GroupedTable: keyed state with any number of rows for a key; see `table.py`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import pyarrow as pa

from onceflow.runtime.records import Indices, UInt64s
from onceflow.runtime.state.operator_state import FrozenRows
from onceflow.runtime.state.snapshot_options import SnapshotOptions


class GroupedTable(Protocol):
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

    @property
    def size(self) -> int:
        """Numbers of rows are below it."""
        ...

    @property
    def key_count(self) -> int:
        """Numbers of keys are below it."""
        ...

    def find_keys(self, batch: pa.RecordBatch, key_hash: UInt64s) -> Indices:
        """The number of each row's key; what is not there is added."""
        ...

    def rows_of_keys(self, numbers: Indices) -> Indices:
        """All rows of these keys, each given once; in no order."""
        ...

    def rows(self) -> Indices:
        """All rows in use, lowest first."""
        ...

    def add(self, numbers: Indices) -> Indices:
        """A new row for each of these keys, of which equal ones are neighbours. The columns have grown when
        it returns."""
        ...

    def key_numbers(self, rows: Indices) -> Indices: ...

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

    def build_on_snapshots(self, key_groups: range, max_parallelism: int, options: SnapshotOptions) -> None:
        """IncrementalTable.build_on_snapshots."""
        ...

    def remove(self, rows: Indices) -> None:
        """Forget these rows, each in use and given once."""
        ...

    def compact(self) -> Indices | None:
        """Renumber rows and keys if it pays; the old numbers of the rows, or None if rows were left."""
        ...

    def freeze(self, max_parallelism: int) -> FrozenRows: ...

    def load(self, batch: pa.RecordBatch) -> Indices:
        """Add rows that `freeze` gave."""
        ...
