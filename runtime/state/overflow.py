"""Overflow: where rows of a table go that have no room in memory, and how they come back.

A slot has one StateBackend. An operator that can let go of rows asks it for the Overflow of its table, and
then finds, restores, removes and freezes rows through it. Between two batches, when it holds no row's number,
it lets it make room. So a key is found again as if its row had never been away. Of a GroupedTable a key goes
and comes back with all its rows.

What is left open for snapshots of only what has changed: `freeze` does not say where the rows come from, so
that an overflow may give those that it wrote down before by the names of their files.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, Protocol

import numpy as np
import pyarrow as pa

from onceflow.runtime.errors import Fatal
from onceflow.runtime.records import WATERMARK_MAX_MS, Indices, Int64s, UInt64s
from onceflow.runtime.state.grouped_table import KeyedGroups, peeked_rows
from onceflow.runtime.state.operator_state import FrozenRows
from onceflow.runtime.state.snapshot_options import WHOLE, SnapshotOptions
from onceflow.runtime.state.table import IncrementalTable, Layout

if TYPE_CHECKING:  # it has kernels beneath it, and who decides knows these protocols
    from onceflow.runtime.state.asked_keys import AskedKeys

BackendName = Literal["heap", "rocksdb"]
BACKENDS: tuple[BackendName, ...] = ("heap", "rocksdb")
MEMORY_BYTES = 512 << 20
"""What the state of a slot may take in memory with rocksdb, if nothing else is said."""
MEMORY_BYTES_MIN = 16 << 20

Wakes = Mapping[int, Int64s]
"""When rows that go have to come back by themselves, in ms, by the kind of time, which their operator
numbers from 0."""
NO_WAKE_MS = WATERMARK_MAX_MS
"""In the place of such a time: not by this kind."""

NO_ROWS: Indices = np.zeros(0, np.int64)


class StateFullError(Fatal):
    """The state has outgrown the memory that it may take, and has no other place."""


@dataclass(frozen=True, slots=True)
class StateOptions:
    """Where a job's state is. `memory_bytes`: what it may take in the memory of a slot; None: with heap as
    much as there is, with rocksdb MEMORY_BYTES."""

    backend: BackendName = "heap"
    memory_bytes: int | None = None
    snapshots: SnapshotOptions = WHOLE


class Overflow(Protocol):
    """Takes the rows of one table that have no room. Row numbers are the table's. One thread.

    Rows come back with `find_or_add` and `wake`; the table's columns are loaded then.
    """

    def find_or_add(self, batch: pa.RecordBatch, key_hash: UInt64s, starts: Int64s | None = None) -> Indices:
        """KeyedTable.find_or_add, and of rows that are away they come back."""
        ...

    def load(self, batch: pa.RecordBatch) -> Indices:
        """KeyedTable.load."""
        ...

    def remove(self, rows: Indices) -> None:
        """KeyedTable.remove."""
        ...

    def compact(self) -> Indices | None:
        """KeyedTable.compact."""
        ...

    def freeze(self, max_parallelism: int) -> FrozenRows:
        """KeyedTable.freeze, with the rows that are away."""
        ...

    def peek(self, asked: AskedKeys, max_parallelism: int) -> list[pa.RecordBatch]:
        """The rows of these keys, with all their starts, as `freeze` would give them now, here and away; in
        no order. No row comes back for it, or counts as used. Raises UsageError if there are too many."""
        ...

    def needs_room(self) -> bool:
        """Whether `make_room` is due. Raises StateFullError if rows can go nowhere."""
        ...

    def going(self) -> Indices:
        """The rows that had better go, lowest first: they were used least lately."""
        ...

    def make_room(self, going: Indices, wakes: Wakes, empty: Indices) -> Indices:
        """Let these rows go, lowest first; `wakes` goes by their places. `empty`, others: forget them.
        Renumbers the rows that stay, in their order: their old numbers."""
        ...

    def first_wake(self, kind: int) -> int | None:
        """No row that is away wakes earlier by this kind of time. None: none does."""
        ...

    def wake(self, kind: int, until_ms: int, rows_max: int) -> tuple[Indices, int]:
        """Bring back about so many rows that wake until this time, the earliest first. Returns them, and a
        time: what wakes earlier than that is in memory. It is `until_ms` if all are that wake until then."""
        ...

    def close(self) -> None:
        """Let go of files, if there are any."""
        ...


class GroupedOverflow(Protocol):
    """Takes the keys of one GroupedTable that have no room, each with all its rows. Numbers of keys and rows
    are the table's. One thread.

    What is not here is the table's own: of keys that were found all rows are in it. Rows that come back are
    those that the table has more, at its end.
    """

    def find_keys(self, batch: pa.RecordBatch, key_hash: UInt64s) -> Indices:
        """GroupedTable.find_keys, and of keys that are away the rows come back."""
        ...

    def load(self, batch: pa.RecordBatch) -> Indices:
        """Add rows that `freeze` gave; what it returns means nothing. The rows of a key may be in several
        batches, with others between them."""
        ...

    def compact(self) -> Indices | None:
        """GroupedTable.compact."""
        ...

    def freeze(self, max_parallelism: int) -> FrozenRows:
        """GroupedTable.freeze, with the rows that are away."""
        ...

    def peek(self, asked: AskedKeys, max_parallelism: int) -> list[pa.RecordBatch]:
        """All rows of these keys; as Overflow.peek."""
        ...

    def needs_room(self) -> bool:
        """Overflow.needs_room."""
        ...

    def going(self) -> Indices:
        """The keys that had better go, lowest number first: they were used least lately."""
        ...

    def make_room(self, going: Indices, wakes: Wakes) -> Indices:
        """Let these keys go; `wakes` goes by their places. Keys without rows are forgotten. Renumbers keys
        and rows: the old numbers of the rows that stay."""
        ...

    def first_wake(self, kind: int) -> int | None:
        """No key that is away wakes earlier by this kind of time. None: none does."""
        ...

    def wake(self, kind: int, until_ms: int, keys_max: int) -> int:
        """Bring back about so many keys that wake until this time, the earliest first. Returns a time: what
        wakes earlier than that is in memory. It is `until_ms` if all are that wake until then."""
        ...

    def close(self) -> None:
        """Let go of files, if there are any."""
        ...


class _NothingAway:
    """What an overflow says where all is in memory."""

    def needs_room(self) -> bool:
        return False

    def going(self) -> Indices:
        raise AssertionError("rows stay")

    def first_wake(self, kind: int) -> int | None:
        return None

    def close(self) -> None:
        pass


class InMemory(_NothingAway):
    """Overflow of a table whose rows stay: the table itself."""

    def __init__(self, table: IncrementalTable) -> None:
        self.find_or_add, self.load, self.remove = table.find_or_add, table.load, table.remove
        self.compact, self.freeze = table.compact, table.freeze
        self._peek = table.peek

    def peek(self, asked: AskedKeys, max_parallelism: int) -> list[pa.RecordBatch]:
        return [self._peek(asked, max_parallelism)]

    def make_room(self, going: Indices, wakes: Wakes, empty: Indices) -> Indices:
        raise AssertionError("rows stay")

    def wake(self, kind: int, until_ms: int, rows_max: int) -> tuple[Indices, int]:
        raise AssertionError("no row is away")


class GroupsInMemory(_NothingAway):
    """GroupedOverflow of a table whose keys stay: the table itself."""

    def __init__(self, table: KeyedGroups) -> None:
        self.find_keys, self.load = table.find_keys, table.load
        self.compact, self.freeze = table.compact, table.freeze
        self._groups = table

    def peek(self, asked: AskedKeys, max_parallelism: int) -> list[pa.RecordBatch]:
        return [peeked_rows(self._groups, asked, max_parallelism)]

    def make_room(self, going: Indices, wakes: Wakes) -> Indices:
        raise AssertionError("keys stay")

    def wake(self, kind: int, until_ms: int, keys_max: int) -> int:
        raise AssertionError("no key is away")


def make_room(overflow: Overflow, wakes: Callable[[Indices], Wakes] = lambda going: {}) -> None:
    """Make room, if it is needed, in a table of which no row is empty. `wakes`: when rows that go have to
    come back. Not while the number of a row is still needed."""
    while overflow.needs_room():
        going = overflow.going()
        overflow.make_room(going, wakes(going), NO_ROWS)


class StateBackend(Protocol):
    """Where the state of one slot is kept. One thread."""

    @property
    def snapshots(self) -> SnapshotOptions: ...

    @property
    def is_unlimited(self) -> bool:
        """Whether state takes as much memory as there is."""
        ...

    def overflow(self, table: IncrementalTable, layout: Layout) -> Overflow:
        """The overflow of this table, which is empty. Raises Retryable or Fatal if it can't be opened."""
        ...

    def grouped_overflow(self, table: KeyedGroups, columns: Sequence[str]) -> GroupedOverflow:
        """The same for a table with any number of rows for a key. `columns`: all that a snapshot of it may
        have beside the key."""
        ...

    def queue_bytes(self) -> Callable[[], int] | None:
        """Called once for a queue of rows: says how many bytes of it may be in memory, at any time. None: it
        stays there."""
        ...


class Unlimited:
    """StateBackend: all in memory, as much as there is."""

    is_unlimited = True

    def __init__(self, snapshots: SnapshotOptions = WHOLE) -> None:
        self.snapshots = snapshots

    def overflow(self, table: IncrementalTable, layout: Layout) -> Overflow:
        return InMemory(table)

    def grouped_overflow(self, table: KeyedGroups, columns: Sequence[str]) -> GroupedOverflow:
        return GroupsInMemory(table)

    def queue_bytes(self) -> Callable[[], int] | None:
        return None


UNLIMITED = Unlimited()
