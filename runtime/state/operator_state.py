"""What an operator leaves at a barrier, and what it is restored from. The two are never the same object."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Protocol

import numpy as np
import pyarrow as pa

from onceflow.runtime.contracts import Json
from onceflow.runtime.records import WATERMARK_MAX_MS, WATERMARK_MIN_MS

KEY_GROUP_COLUMN = "key_group"

Batches = Callable[[], Iterator[pa.RecordBatch]]
"""Reads the rows of a table, piece by piece; each call from the beginning."""


class FrozenRows(Protocol):
    """A table's rows as they were at a barrier. Nothing in it changes; used by one thread, whichever."""

    def __len__(self) -> int: ...

    def piece(self, first: int, end: int) -> pa.RecordBatch:
        """The rows [first, end) in columns; the first is the key group. Gives the schema also of no rows."""
        ...


@dataclass(frozen=True, slots=True)
class FrozenState:
    """The state of one operator subtask, frozen at a barrier by the task's thread. Another thread writes it
    while the operator goes on, so nothing in it changes.

    The first column of each table is `key_group` (uint16, not null). `meta` is small and JSON, the same for
    all key groups of the state.
    """

    key_groups: range
    tables: Mapping[str, FrozenRows] = field(default_factory=dict)
    meta: Mapping[str, Json] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class RestoredState:
    """What one earlier subtask left, cut down to the key groups that the new subtask owns.

    `meta` is as it was frozen. The rows of a table are read in pieces, in no particular order, and are
    never in memory as a whole; a table that had no rows may be missing.
    """

    key_groups: range
    tables: Mapping[str, Batches] = field(default_factory=dict)
    meta: Mapping[str, Json] = field(default_factory=dict)

    def batches(self, table: str) -> Iterator[pa.RecordBatch]:
        """The rows of this table in pieces, none of them empty. A piece that was let go of is out of memory
        when the next one comes. Raises CorruptCheckpointError as `StateFiles.read` does."""
        read = self.tables.get(table)
        return iter(()) if read is None else read()


def of_key_groups(batches: Iterable[pa.RecordBatch], key_groups: range) -> Iterator[pa.RecordBatch]:
    """The rows of these key groups, piece by piece; no empty pieces."""
    for batch in batches:
        groups = batch.column(KEY_GROUP_COLUMN).to_numpy()
        is_mine = np.asarray((groups >= key_groups.start) & (groups < key_groups.stop))
        kept = batch if is_mine.all() else batch.filter(pa.array(is_mine))
        if kept.num_rows:
            yield kept


def restored_watermark(time_ms: int) -> int:
    """How far event time has come for state that was kept when it had come this far. At its end all has
    fired, and nothing that comes later is late: it is another job's, started from a drained savepoint."""
    return WATERMARK_MIN_MS if time_ms == WATERMARK_MAX_MS else time_ms
