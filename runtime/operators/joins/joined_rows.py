"""JoinedRows: the rows of both sides of a join as one table by key, whose keys can go elsewhere."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple, Protocol

import numpy as np
import pyarrow as pa

from onceflow.runtime.operators.joins.frozen_sides import FrozenPart, FrozenSides, restored_parts
from onceflow.runtime.operators.joins.joined_columns import JoinedColumns
from onceflow.runtime.operators.joins.key_numbers import KeyNumbers
from onceflow.runtime.operators.joins.runs import FrozenRun, Run
from onceflow.runtime.records import WATERMARK_MAX_MS, WATERMARK_MIN_MS, Indices, Int64s, Mask, UInt64s
from onceflow.runtime.state.hashing import hash_keys
from onceflow.runtime.state.increments import FrozenIncrement, Identities, Increments
from onceflow.runtime.state.operator_state import FrozenRows
from onceflow.runtime.state.overflow import NO_ROWS
from onceflow.runtime.state.snapshot_options import SnapshotOptions
from onceflow.runtime.state.table import LiveRows, RowColumn

_SEARCHED_PART = 16
"""For one key among so many rows, or fewer keys, rows are searched for: it costs less than a look at all."""


class Side(Protocol):
    """What is kept of one side of a join."""

    runs: list[Run]

    @property
    def limit(self) -> int:
        """Rows up to this time have expired."""
        ...

    def keep(self, keys: Mask) -> None:
        """Keep the rows of these keys only, of those that are there; `keys`: by number."""
        ...

    def renumber(self, kept: Indices) -> None:
        """Keys are numbered anew: the old numbers of those that are kept."""
        ...


@dataclass(frozen=True, slots=True)
class Kept:
    """What a kind of join keeps."""

    sides: Sequence[Side]
    load: Callable[[int, pa.RecordBatch, Indices, pa.RecordBatch], None]
    """Keep rows of a snapshot: (side, its rows, the numbers of their keys, all columns of the table)."""
    freeze: Callable[[FrozenRun], FrozenPart] = lambda run: run
    beside: tuple[str, ...] = ()
    """Further columns of the table."""

    @property
    def table_columns(self) -> tuple[str, ...]:
        """What a snapshot has of a row, beside its key."""
        return ("is_right", "event_time", "is_matched", *self.beside, "left", "right")


class _Part(NamedTuple):
    """A run, and the number of its first row."""

    side: int
    run: Run
    first: int


class JoinedRows:
    """KeyedGroups; numbers of rows are their places in the runs of both sides, one behind the other."""

    def __init__(self, columns: JoinedColumns, schemas: tuple[pa.Schema, pa.Schema], kept: Kept) -> None:
        self._columns = columns
        self._schemas = schemas
        self._kept = kept
        self._keys = KeyNumbers(columns.keys, schemas)
        self.kept_keys: Indices | None = None
        self.increments: Increments | None = None

    def __len__(self) -> int:
        return self.size

    @property
    def columns(self) -> Mapping[str, RowColumn]:
        return {}  # rows are batches

    @property
    def size(self) -> int:
        return sum(len(run) for side in self._kept.sides for run in side.runs)

    @property
    def key_count(self) -> int:
        return len(self._keys)

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
        limits = [side.limit for side in self._kept.sides]
        live = [part.first + part.run.live(limits[part.side]) for part in self._parts()]
        return LiveRows(self.size, np.concatenate(live) if live else NO_ROWS)

    def key_numbers(self, rows: Indices) -> Indices:
        numbers = [part.run.row for part in self._parts()]
        return np.concatenate(numbers)[rows] if numbers else NO_ROWS

    def rows_of_live(self, keys: LiveRows) -> LiveRows:
        return LiveRows(self.size, self.rows_of_keys(keys.all()))

    def rows_of_keys(self, numbers: Indices) -> Indices:
        if len(numbers) * _SEARCHED_PART < self.size:
            limits, keys = [side.limit for side in self._kept.sides], np.unique(numbers)
            found = [part.first + part.run.live_of(keys, limits[part.side]) for part in self._parts()]
            return np.concatenate(found) if found else NO_ROWS
        is_asked = np.zeros(self.key_count, np.bool_)
        is_asked[numbers] = True
        rows = self.live_rows().all()
        return np.asarray(rows[is_asked[self.key_numbers(rows)]])

    def expire_ms(self, keys: Indices, keep_ms: Sequence[int], padded: Sequence[int] = ()) -> Int64s:
        """When each of these keys, which have rows, is to come back: when the first of its rows expires that
        are on the `padded` sides, whose rows are told of; if it has none there, when its last one does. A row
        of each side expires `keep_ms` behind its time."""
        rows = self.rows_of_keys(keys)
        numbers = self.key_numbers(rows)
        parts = list(self._parts())
        ends = [_behind(part.run.time, keep_ms[part.side]) for part in parts]
        times = np.concatenate([NO_ROWS, *ends])[rows]
        is_told = np.repeat([part.side in padded for part in parts], [len(part.run) for part in parts])[rows]
        first = np.full(self.key_count, WATERMARK_MAX_MS)
        np.minimum.at(first, numbers[is_told], times[is_told])
        last = np.full(self.key_count, WATERMARK_MIN_MS)
        np.maximum.at(last, numbers, times)
        return np.asarray(np.where(first < WATERMARK_MAX_MS, first, last)[keys])

    def load(self, batch: pa.RecordBatch) -> Indices:
        self.load_keys(batch)
        return NO_ROWS

    def load_keys(self, batch: pa.RecordBatch) -> Indices:
        found = [NO_ROWS]
        for side, rows, its in restored_parts(iter([batch]), self._schemas):
            numbers = self.find_keys(self.keys_of(side, rows), hash_keys(rows, self._columns.keys[side]))
            self._kept.load(side, rows, numbers, its)
            found.append(numbers)
        return np.concatenate(found)

    def let_go(self, keys: Indices) -> None:
        self.note_gone()  # the next snapshot will not see who had no rows before, once keys are renumbered
        is_going = np.zeros(self.key_count, np.bool_)
        is_going[keys] = True
        for side in self._kept.sides:
            side.keep(~is_going)

    # --- Keys without rows ---

    def compact(self) -> Indices | None:
        return self._forget_keys(is_asked=False)  # none of its keys is elsewhere

    def renumber(self) -> Indices:
        self._forget_keys(is_asked=True)
        return NO_ROWS

    def note_gone(self) -> None:
        if self.increments is not None:
            self._note_gone(np.flatnonzero(self.row_counts() == 0), self.identities)

    def _note_gone(self, keys: Indices, identities: Identities) -> None:
        if self.increments is not None and len(gone := self.increments.stored(keys)):
            self.increments.remove(identities[gone], identities[gone, 0])

    def _forget_keys(self, is_asked: bool) -> Indices | None:
        sides, identities = self._kept.sides, self.identities
        kept = self._keys.forget([run.row for side in sides for run in side.runs], is_asked)
        if kept is None:
            return None
        if not is_asked:
            is_gone = np.ones(len(identities), np.bool_)
            is_gone[kept] = False
            self._note_gone(np.flatnonzero(is_gone), identities)
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
        sides: list[list[FrozenPart]] = [[], []]
        for part in self._parts():
            first, end = np.searchsorted(numbers, [part.first, part.first + len(part.run)])
            if first < end:
                run, places = part.run, numbers[first:end] - part.first
                is_matched = None if run.is_matched is None else run.is_matched.copy()
                beside = {name: values.copy() for name, values in run.beside.items()}
                frozen = FrozenRun(run, 0, is_matched, places, None, beside)
                sides[part.side].append(self._kept.freeze(frozen))
        # What changes by itself is read by key: see checkpoint/increments.py.
        key_schema = None if self.increments is None else self._keys.schema
        keys = self._columns.keys
        return FrozenSides(sides, self._schemas, keys, max_parallelism, self._kept.beside, key_schema)

    def _parts(self) -> Iterator[_Part]:
        first = 0
        for number, side in enumerate(self._kept.sides):
            for run in side.runs:
                yield _Part(number, run, first)
                first += len(run)


def _behind(time: Int64s, keep_ms: int) -> Int64s:
    """The times so far behind these; all of them before the end of time."""
    if keep_ms < 0:
        return np.maximum(time, WATERMARK_MIN_MS - keep_ms) + keep_ms
    return np.minimum(time, WATERMARK_MAX_MS - 1 - keep_ms) + keep_ms
