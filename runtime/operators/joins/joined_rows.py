"""JoinedRows: the rows of both sides of a regular join as one table by key, whose keys can go elsewhere."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from onceflow.runtime.operators.joins.frozen_sides import FrozenSides, restored_parts
from onceflow.runtime.operators.joins.joined_columns import JoinedColumns, null_keys
from onceflow.runtime.operators.joins.key_numbers import KeyNumbers
from onceflow.runtime.operators.joins.meetings import PARTNERS, SINCE, Arrivals, FrozenKept, Meetings
from onceflow.runtime.operators.joins.runs import FrozenRun, Run
from onceflow.runtime.records import WATERMARK_MAX_MS, WATERMARK_MIN_MS, Indices, Int64s, UInt64s
from onceflow.runtime.state.hashing import hash_keys
from onceflow.runtime.state.increments import FrozenIncrement, Identities, Increments
from onceflow.runtime.state.operator_state import FrozenRows
from onceflow.runtime.state.overflow import NO_ROWS
from onceflow.runtime.state.snapshot_options import SnapshotOptions
from onceflow.runtime.state.table import LiveRows

COLUMNS = ("is_right", "event_time", "is_matched", SINCE, PARTNERS, "left", "right")
"""What a snapshot has of a row, beside its key."""


class _Part(NamedTuple):
    """A run, and the number of its first row."""

    side: int
    run: Run
    first: int


class JoinedRows:
    """KeyedGroups; numbers of rows are their places in the runs of both sides, one behind the other."""

    def __init__(
        self,
        columns: JoinedColumns,
        schemas: tuple[pa.Schema, pa.Schema],
        meetings: Meetings,
        has_event_time: bool,
    ) -> None:
        self._columns = columns
        self._schemas = schemas
        self._meetings = meetings
        self._has_event_time = has_event_time
        self._keys = KeyNumbers(columns.keys, schemas)
        self.kept_keys: Indices | None = None
        self.increments: Increments | None = None

    def __len__(self) -> int:
        return self.size

    @property
    def size(self) -> int:
        return sum(map(len, self._meetings.sides))

    @property
    def key_count(self) -> int:
        return len(self._keys)

    def arrivals(
        self, side: int, batch: pa.RecordBatch, row: Indices, time: Int64s | None, since: Int64s
    ) -> Arrivals:
        """Rows with these numbers of keys."""
        no_key = null_keys(batch, self._columns.keys[side])
        event_time = time if self._has_event_time else None
        return Arrivals(side, batch, event_time, since, row, None if no_key is None else ~no_key)

    def keys_of(self, side: int, batch: pa.RecordBatch) -> pa.RecordBatch:
        """The key columns of rows of a side, as `find_keys` takes them."""
        return self._keys.columns(side, batch)

    # --- Keys ---

    @property
    def identities(self) -> Identities:
        return self._keys.table.identities

    def identities_of(self, batch: pa.RecordBatch, key_hash: UInt64s) -> Identities:
        return self._keys.table.identities_of(batch, key_hash)

    def identities_in(self, batch: pa.RecordBatch) -> Identities:
        found = [
            self.identities_of(self.keys_of(side, rows), hash_keys(rows, self._columns.keys[side]))
            for side, rows, _ in restored_parts(iter([batch]), self._schemas)
        ]
        return np.concatenate(found)

    def find_identities(self, identities: Identities) -> Indices:
        return self._keys.table.find_identities(identities)

    def find_keys(self, batch: pa.RecordBatch, key_hash: UInt64s) -> Indices:
        numbers = self._keys.table.find_or_add(batch, key_hash)
        if self.increments is not None:
            self.increments.grow(self.key_count)
            self.increments.note(numbers)
        return numbers

    def live_keys(self) -> LiveRows:
        has_some = self.row_counts() > 0
        return LiveRows(self.key_count, None if has_some.all() else np.flatnonzero(has_some))

    def row_counts(self) -> Indices:
        return np.bincount(self.key_numbers(self.live_rows().all()), minlength=self.key_count)

    # --- Rows ---

    def live_rows(self) -> LiveRows:
        limits = [side.limit for side in self._meetings.sides]
        live = [part.first + part.run.live(limits[part.side]) for part in self._parts()]
        return LiveRows(self.size, np.concatenate(live) if live else NO_ROWS)

    def key_numbers(self, rows: Indices) -> Indices:
        numbers = [part.run.row for part in self._parts()]
        return np.concatenate(numbers)[rows] if numbers else NO_ROWS

    def rows_of_live(self, keys: LiveRows) -> LiveRows:
        return LiveRows(self.size, self.rows_of_keys(keys.all()))

    def rows_of_keys(self, numbers: Indices) -> Indices:
        is_asked = np.zeros(self.key_count, np.bool_)
        is_asked[numbers] = True
        rows = self.live_rows().all()
        return np.asarray(rows[is_asked[self.key_numbers(rows)]])

    def expire_ms(self, keys: Indices, ttl_ms: int) -> Int64s:
        """When the last row of each of these keys, which have some, expires."""
        rows = self.rows_of_keys(keys)
        times = np.concatenate([part.run.time for part in self._parts()] or [NO_ROWS])[rows]
        last = np.full(self.key_count, WATERMARK_MIN_MS)
        np.maximum.at(last, self.key_numbers(rows), np.minimum(times, WATERMARK_MAX_MS - 1 - ttl_ms) + ttl_ms)
        return np.asarray(last[keys])

    def load(self, batch: pa.RecordBatch) -> Indices:
        self.load_keys(batch)
        return NO_ROWS

    def load_keys(self, batch: pa.RecordBatch) -> Indices:
        found = [NO_ROWS]
        for side, rows, its in restored_parts(iter([batch]), self._schemas):
            numbers = self.find_keys(self.keys_of(side, rows), hash_keys(rows, self._columns.keys[side]))
            time, since = (its.column(name).to_numpy() for name in ("event_time", SINCE))
            partners = np.array(its.column(PARTNERS).fill_null(0))  # they will change
            self._meetings.load(self.arrivals(side, rows, numbers, time, since), partners)
            found.append(numbers)
        return np.concatenate(found)

    def let_go(self, keys: Indices) -> None:
        is_going = np.zeros(self.key_count, np.bool_)
        is_going[keys] = True
        for side in self._meetings.sides:
            side.keep(~is_going)

    # --- Keys without rows ---

    def compact(self) -> Indices | None:
        return self._forget_keys(is_asked=False)

    def renumber(self) -> Indices:
        self._forget_keys(is_asked=True)
        return NO_ROWS

    def note_gone(self) -> None:
        if self.increments is not None:
            self._note_gone(np.flatnonzero(self.row_counts() == 0))

    def _note_gone(self, keys: Indices) -> None:
        if self.increments is not None and len(gone := self.increments.stored(keys)):
            identities = self.identities[gone]
            self.increments.remove(identities, identities[:, 0])

    def _forget_keys(self, is_asked: bool) -> Indices | None:
        sides = self._meetings.sides
        kept = self._keys.forget([run.row for side in sides for run in side.runs], is_asked)
        if kept is None:
            return None
        for side in sides:
            side.renumber(kept)
        if self.increments is not None:
            self.increments.keep(kept)
        self.kept_keys = kept
        return NO_ROWS

    # --- Snapshots ---

    def build_on_snapshots(self, key_groups: range, max_parallelism: int, options: SnapshotOptions) -> None:
        assert not self.key_count, "called before the first key"
        self.increments = Increments(key_groups, max_parallelism, None, options)

    def freeze(self, max_parallelism: int) -> FrozenRows:
        live = self.live_rows()
        if self.increments is None:
            return self.freeze_rows(live, max_parallelism)
        self.note_gone()
        keys, increment = self.increments.next(self.live_keys(), self.identities[:, 0])
        rows = self.freeze_rows(self.rows_of_live(keys), max_parallelism)
        return FrozenIncrement(rows, replace(increment, table_rows=len(live)))

    def freeze_rows(self, live: LiveRows, max_parallelism: int) -> FrozenSides:
        numbers = live.all()
        sides: list[list[FrozenKept]] = [[], []]
        for part in self._parts():
            first, end = np.searchsorted(numbers, [part.first, part.first + len(part.run)])
            if first < end:
                beside = {name: values.copy() for name, values in part.run.beside.items()}
                places = numbers[first:end] - part.first
                sides[part.side].append(FrozenKept(FrozenRun(part.run, 0, None, places, None, beside)))
        # What changes by itself is read by key: see checkpoint/increments.py.
        key_schema = None if self.increments is None else self._keys.schema
        keys = self._columns.keys
        return FrozenSides(sides, self._schemas, keys, max_parallelism, (SINCE, PARTNERS), key_schema)

    def _parts(self) -> Iterator[_Part]:
        first = 0
        for number, side in enumerate(self._meetings.sides):
            for run in side.runs:
                yield _Part(number, run, first)
                first += len(run)
