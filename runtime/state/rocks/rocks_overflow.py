"""RocksOverflow: the rows of a table that were used least lately lie in RocksDB, as bytes.

Memory is a write-back cache: a row that is in it is the truth, whatever RocksDB has of it. A row that came
back stays in RocksDB, too, and is written over when it goes again. So reading deletes nothing.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from onceflow.runtime.records import WATERMARK_MIN_MS, Indices, Int64s, UInt64s
from onceflow.runtime.state.columns import GrowableColumn
from onceflow.runtime.state.heap.frozen import FrozenTable
from onceflow.runtime.state.heap.heap_table import HeapTable
from onceflow.runtime.state.heap.memory_share import MemoryShare
from onceflow.runtime.state.heap.row_sizes import RowSizes
from onceflow.runtime.state.increments import NO_IDENTITIES, FrozenIncrement
from onceflow.runtime.state.operator_state import FrozenRows
from onceflow.runtime.state.overflow import NO_WAKE_MS, Wakes
from onceflow.runtime.state.rocks.away import AllAway, Away, SomeAway
from onceflow.runtime.state.rocks.database import WRITE_ROWS, Database, Wake
from onceflow.runtime.state.rocks.frozen_tiers import FrozenTiers
from onceflow.runtime.state.rocks.row_codec import RowCodec
from onceflow.runtime.state.rocks.row_ids import Identities, identities_of, last_places, row_ids
from onceflow.runtime.state.table import NOT_THERE, Layout, LiveRows

_GOING_PART = 16
"""One part of so many goes at once: were it less, rows would be renumbered more often, were it more, it would
take longer at a time."""


class _Went(NamedTuple):
    """Rows that went to RocksDB, or were forgotten there, and the first snapshot that has it, by row."""

    identities: Identities
    changed_in: npt.NDArray[np.int32]
    is_there: bool


class RocksOverflow:
    """Overflow."""

    def __init__(
        self, table: HeapTable, layout: Layout, share: MemoryShare, database: Database, rows_min: int
    ) -> None:
        self._table = table
        self._share = share
        self._rows_min = rows_min
        self._sizes = RowSizes(table)
        self._database = database
        self._start_column = layout.start_column
        starts = [] if layout.start_column is None else [layout.start_column]
        self._codec = RowCodec(["key", *starts, *layout.columns])
        self._stored = 0
        """How many rows RocksDB has."""
        self._is_stored = GrowableColumn(np.bool_)
        """Whether RocksDB has the row, too, by row."""
        self._used = GrowableColumn(np.int64)
        """When it was used last, by row, counted in calls."""
        self._now = 0
        self._first: dict[int, int | None] = {}
        """For each kind the earliest time that RocksDB may have."""
        self._passed: dict[int, int] = {}
        """For each kind: no earlier time is in RocksDB, though some may have been deleted there."""
        self._went: list[_Went] = []
        """What became, one after the other, of rows with changes that no durable snapshot has."""
        share.join()

    def find_or_add(self, batch: pa.RecordBatch, key_hash: UInt64s, starts: Int64s | None = None) -> Indices:
        if self._stored:
            identities = self._table.identities_of(batch, key_hash, starts)
            missing = self._table.find_identities(identities) == NOT_THERE
            if missing.any():
                self._bring(sorted(set(row_ids(identities[missing]))))
        rows = self._table.find_or_add(batch, key_hash, starts)
        self._use(rows)
        return rows

    def load(self, batch: pa.RecordBatch) -> Indices:
        self._codec.learn(batch.schema)
        rows = self._table.load(batch)
        self._use(rows)
        return rows

    def remove(self, rows: Indices) -> None:
        self._forget(rows)
        self._table.remove(rows)

    def compact(self) -> Indices | None:
        kept = self._table.compact()
        return kept if kept is None else self._keep(kept)

    def freeze(self, max_parallelism: int) -> FrozenRows:
        live, increments = self._table.live_rows(), self._table.increments
        there = live.all()
        twice = self._table.identities[there[self._flags()[there]]]
        away = self._stored - len(twice)
        if increments is None:
            return self._frozen(live, AllAway(self._database, away), twice, max_parallelism)
        went = self._away_changed(increments.base)
        rows, increment = increments.next(live, self._table.identities[:, 0], away, len(went))
        if increment.is_whole:
            below: Away = AllAway(self._database, away)
        else:
            below = SomeAway(self._database, went, increment.covers)
        return FrozenIncrement(self._frozen(rows, below, twice, max_parallelism), increment)

    def needs_room(self) -> bool:
        return len(self._table) > self._rows_min and self._sizes.memory_bytes() > self._share.of_a_table

    def going(self) -> Indices:
        live = self._table.live_rows().all()
        count = min(len(live), max(self._rows_min, len(live) // _GOING_PART))
        used = self._used.used()[live]
        return np.sort(live[np.argpartition(used, count - 1)[:count]])

    def make_room(self, going: Indices, wakes: Wakes, empty: Indices) -> Indices:
        self._write(going)
        for kind, times in wakes.items():
            self._put_wakes(kind, going, times)
        self._forget(empty)
        self._table.remove(empty)
        self._table.let_go(going)
        return self._keep(self._table.renumber())

    def first_wake(self, kind: int) -> int | None:
        return self._first.get(kind)

    def wake(self, kind: int, until_ms: int, rows_max: int) -> tuple[Indices, int]:
        due: list[Wake] = []
        self._first[kind], reached_ms = None, until_ms
        for wake in self._database.wakes(kind, self._passed.get(kind, WATERMARK_MIN_MS)):
            if wake.time_ms > until_ms or len(due) == rows_max:
                self._first[kind] = wake.time_ms
                reached_ms = min(until_ms, wake.time_ms)
                break
            due.append(wake)
        rows = self._bring([wake.row_id for wake in due])
        self._database.delete_wakes(kind, due)
        if due:
            self._passed[kind] = due[-1].time_ms
        return rows, reached_ms

    def close(self) -> None:
        self._database.close()

    # --- Rows that go and come ---

    def _bring(self, ids: list[bytes]) -> Indices:
        """Load those of these rows that are away: their numbers."""
        known = self._table.find_identities(identities_of(ids)) if ids else np.zeros(0, np.int64)
        ids = [row_id for row_id, row in zip(ids, known.tolist(), strict=True) if row == NOT_THERE]
        # A row may have two times, one of which it had before it was here last.
        found = [content for content in self._database.get(sorted(set(ids))) if content is not None]
        if not found:
            return np.zeros(0, np.int64)
        rows = self._table.load(pa.RecordBatch.from_pydict(self._codec.decode(found)))
        self._use(rows)
        self._is_stored.values[rows] = True
        if self._table.increments is not None:
            self._table.increments.came_back(rows)
        return rows

    def _write(self, rows: Indices) -> None:
        """Write these rows to RocksDB."""
        frozen = self._table.freeze_rows(LiveRows(self._table.size, rows), 1)
        ids = row_ids(self._table.identities[rows])
        for first in range(0, len(rows), WRITE_ROWS):
            contents = self._codec.encode(frozen.piece(first, min(first + WRITE_ROWS, len(rows))))
            piece = zip(ids[first : first + WRITE_ROWS], contents, strict=True)
            self._database.put(sorted(piece))
        self._stored += int(np.count_nonzero(~self._flags()[rows]))
        if (increments := self._table.increments) is not None:
            is_unwritten, changed_in = increments.unwritten(rows)
            if is_unwritten.any():
                went = self._table.identities[rows[is_unwritten]]
                self._went.append(_Went(went, changed_in[is_unwritten], is_there=True))

    def _away_changed(self, base: int) -> Identities:
        """The rows that are away with changes that the snapshot `base` has not, in the order of their ids."""
        # Without a snapshot to build on the next one is whole, and none will ever ask for what it has.
        self._went = [went for went in self._went if base >= 0 and (went.changed_in > base).any()]
        if not self._went:
            return NO_IDENTITIES
        ids = np.concatenate([went.identities for went in self._went])
        is_there = np.concatenate([np.full(len(went.identities), went.is_there) for went in self._went])
        is_new = np.concatenate([went.changed_in for went in self._went]) > base
        last = last_places(ids)
        ids = ids[last[is_there[last] & is_new[last]]]
        return np.asarray(ids[self._table.find_identities(ids) == NOT_THERE])

    def _frozen(
        self, rows: LiveRows, away: Away, twice: Identities, max_parallelism: int
    ) -> FrozenTable | FrozenTiers:
        hot = self._table.freeze_rows(rows, max_parallelism)
        if away.is_empty:
            return hot
        return FrozenTiers(hot, away, twice, self._codec.frozen(), max_parallelism, self._start_column)

    def _put_wakes(self, kind: int, rows: Indices, times: Int64s) -> None:
        has_one = times != NO_WAKE_MS
        if has_one.any():
            ids, at = row_ids(self._table.identities[rows[has_one]]), times[has_one].tolist()
            self._database.put_wakes(kind, map(Wake, at, ids))
            first = self._first.get(kind)
            self._first[kind] = min(at) if first is None else min(first, *at)
            self._passed[kind] = min(self._passed.get(kind, WATERMARK_MIN_MS), *at)

    def _forget(self, rows: Indices) -> None:
        """RocksDB is to have these rows, which are in memory, no longer."""
        stored = rows[self._flags()[rows]]
        identities = self._table.identities[stored]
        self._database.delete(sorted(row_ids(identities)))
        if self._went and (increments := self._table.increments) is not None:
            changed_in = np.full(len(stored), increments.number, np.int32)
            self._went.append(_Went(identities, changed_in, is_there=False))
        self._stored -= len(stored)

    def _keep(self, kept: Indices) -> Indices:
        """The table was renumbered."""
        for column in (self._is_stored, self._used):
            column.grow(int(kept[-1]) + 1 if len(kept) else 0)
            column.keep(kept)
        return kept

    def _use(self, rows: Indices) -> None:
        self._now += 1
        self._is_stored.grow(self._table.size)
        self._used.grow(self._table.size)
        self._used.values[rows] = self._now

    def _flags(self) -> np.ndarray[tuple[int], np.dtype[np.bool_]]:
        self._is_stored.grow(self._table.size)
        return self._is_stored.used()
