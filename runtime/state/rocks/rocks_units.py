"""RocksUnits: what was used least lately of a table lies in RocksDB, as bytes.

A unit is what goes and comes back as one: a row, or a key with all its rows. Memory is a write-back cache: a
unit that is in it is the truth, whatever RocksDB has of it. What came back stays in RocksDB, too, and is
written over when it goes again. So reading deletes nothing.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from dataclasses import replace

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from onceflow.runtime.records import WATERMARK_MIN_MS, Indices, Int64s
from onceflow.runtime.state.asked_keys import AskedKeys
from onceflow.runtime.state.columns import GrowableColumn
from onceflow.runtime.state.grouped_table import KeyedGroups
from onceflow.runtime.state.heap.heap_table import HeapTable
from onceflow.runtime.state.heap.memory_share import MemoryShare
from onceflow.runtime.state.heap.row_sizes import RowSizes
from onceflow.runtime.state.increments import FrozenIncrement
from onceflow.runtime.state.operator_state import FrozenRows
from onceflow.runtime.state.overflow import NO_ROWS, NO_WAKE_MS
from onceflow.runtime.state.rocks.away import AllAway, Away, SomeAway, Split
from onceflow.runtime.state.rocks.database import WRITE_ROWS, Database, Wake
from onceflow.runtime.state.rocks.frozen_tiers import FrozenTiers
from onceflow.runtime.state.rocks.kept_memory import KeptMemory
from onceflow.runtime.state.rocks.looked_up import looked_up, with_starts
from onceflow.runtime.state.rocks.row_codec import RowCodec
from onceflow.runtime.state.rocks.row_ids import (
    Identities,
    distinct,
    identities_of,
    order_of,
    row_ids,
)
from onceflow.runtime.state.rocks.went import Went
from onceflow.runtime.state.table import NOT_THERE, LiveRows

_GOING_PART = 16
"""One part of so many goes at once: were it less, rows would be renumbered more often, were it more, it would
take longer at a time."""
_OF_OBJECTS = 4 / 3
"""What values that are Python objects take, with the holes that those leave which went (measured with
benchmarks/state_backends.py)."""
_PIECE_BYTES = 1 << 21
"""About so much of the rows that go or come back becomes bytes, or columns, at once: it is in memory several
times meanwhile."""


class RocksUnits(ABC):
    """What an Overflow and a GroupedOverflow have in common."""

    split: Split | None = None
    """The rows of a unit, of its content; None: a unit is a row."""

    def __init__(
        self,
        table: HeapTable | KeyedGroups,
        columns: Sequence[str],
        share: MemoryShare,
        database: Database,
        rows_min: int,
        start_column: str | None = None,
    ) -> None:
        """`columns`: all that a snapshot of the table may have, beside the key and the start."""
        self._in_memory = table
        self._share = share
        self._rows_min = rows_min
        self._sizes = RowSizes(table, _OF_OBJECTS)
        self._database = database
        self._start_column = start_column
        starts = [] if start_column is None else [start_column]
        self._codec = RowCodec(["key", *starts, *columns])
        self._rows = self._units = 0
        """How many rows and units RocksDB has."""
        self._stored_rows = GrowableColumn(np.int32)
        """How many rows RocksDB has of each unit in memory, by unit."""
        self._used = GrowableColumn(np.int64)
        """When it was used last, by unit, counted in calls."""
        self._now = 0
        self._is_awaited = GrowableColumn(np.bool_)
        """Whether RocksDB has the time at which it wakes, by unit, so that it is not written again. Known of
        tables with starts only, whose rows wake at their start."""
        self._first: dict[int, int | None] = {}
        """The earliest time that RocksDB may have, by kind."""
        self._passed: dict[int, int] = {}
        """For each kind: no earlier time is in RocksDB, though some may have been deleted there."""
        self._went = Went()
        self._kept_memory = KeptMemory()
        share.join()

    # --- What a unit is ---

    @property
    @abstractmethod
    def _size(self) -> int:
        """Numbers of units are below it."""

    @abstractmethod
    def _live_units(self) -> LiveRows:
        """The units in memory that have rows."""

    @abstractmethod
    def _rows_of(self, units: LiveRows) -> LiveRows:
        """Their rows."""

    @abstractmethod
    def _load(self, contents: Sequence[bytes]) -> tuple[Indices, Indices | int]:
        """Have these units in memory, which are not there: their numbers, and how many rows each has."""

    @abstractmethod
    def _contents(self, units: Indices) -> Iterator[list[bytes]]:
        """What RocksDB is to have of these units, in their order, some at a time."""

    @abstractmethod
    def _peek(self, asked: AskedKeys, max_parallelism: int) -> pa.RecordBatch:
        """The rows of these keys in memory."""

    @abstractmethod
    def _note_gone(self) -> None:
        """Have in the increments of the table what is gone."""

    # --- What both do ---

    def freeze(self, max_parallelism: int) -> FrozenRows:
        """Freeze the table, with the rows that are away."""
        stored, table = self._stored(), self._in_memory
        live = table.live_rows()
        both = np.flatnonzero(stored)
        twice, away = table.identities[both], self._rows - int(stored.sum())
        if (increments := table.increments) is None:
            below: Away = AllAway(self._database, away, self.split)
            return self._frozen(live, below, twice, max_parallelism)
        self._note_gone()
        went = self._went.freeze(increments.base)
        units_away = self._units - len(both)
        changed = min(len(went), units_away)
        units, increment = increments.next(self._live_units(), table.identities[:, 0], units_away, changed)
        increment = replace(increment, table_rows=len(live) + away)
        if increment.is_whole:
            below = AllAway(self._database, away, self.split)
        else:
            below = SomeAway(self._database, went, increment.covers, self.split)
        frozen = self._frozen(self._rows_of(units), below, twice, max_parallelism)
        return FrozenIncrement(frozen, increment)

    def peek(self, asked: AskedKeys, max_parallelism: int) -> list[pa.RecordBatch]:
        here = self._peek(asked, max_parallelism)
        if not self._units:
            return [here]
        kinds = {kind: self._passed.get(kind, WATERMARK_MIN_MS) for kind in self._first}
        units = asked.identities if self._start_column is None else with_starts(self._database, kinds, asked)
        units = distinct(units[self._in_memory.find_identities(units) == NOT_THERE])
        rows, hashes = looked_up(self._database, units, self.split, asked, here.num_rows)
        if not rows:
            return [here]
        away = self._codec.rows(rows, hashes, self._start_column, max_parallelism)
        return [self._codec.completed(here), away]

    def needs_room(self) -> bool:
        share = self._share.of_a_table
        # What is noted of changes is state in memory, too. There is room for rows in any case.
        most = share - min(self._went.nbytes, share // 2)
        return len(self._in_memory) > self._rows_min and self._sizes.memory_bytes() > most

    def going(self) -> Indices:
        live = self._live_units().all()
        count = min(len(live), max(self._rows_min, len(live) // _GOING_PART))
        used = self._used.used()[live]
        return np.sort(live[np.argpartition(used, count - 1)[:count]])

    def first_wake(self, kind: int) -> int | None:
        return self._first.get(kind)

    def close(self) -> None:
        self._database.close()

    def _wake(self, kind: int, until_ms: int, units_max: int) -> tuple[Indices, int]:
        """Bring back units that wake; as `Overflow.wake`."""
        due: list[Wake] = []
        self._first[kind], reached_ms = None, until_ms
        for wake in self._database.wakes(kind, self._passed.get(kind, WATERMARK_MIN_MS)):
            if wake.time_ms > until_ms or len(due) == units_max:
                self._first[kind] = wake.time_ms
                reached_ms = min(until_ms, wake.time_ms)
                break
            due.append(wake)
        if not due:
            return NO_ROWS, reached_ms
        identities = identities_of([wake.row_id for wake in due])
        units = self._bring(identities)
        self._database.delete_wakes(kind, due)
        here = self._in_memory.find_identities(identities)
        self._is_awaited.values[here[here != NOT_THERE]] = False
        self._passed[kind] = due[-1].time_ms
        return units, reached_ms

    def _found(self, identities: Identities) -> list[bytes]:
        """What RocksDB has of these units, which are in the order of their ids."""
        return [content for content in self._database.get(row_ids(identities)) if content is not None]

    def _bring(self, identities: Identities) -> Indices:
        """Load those of these units that are away: their numbers."""
        missing = self._in_memory.find_identities(identities) == NOT_THERE
        if not missing.any():
            return NO_ROWS
        # A unit may have two times, and has come back at the first.
        away, brought, step = distinct(identities[missing]), [NO_ROWS], self._sizes.rows_in(_PIECE_BYTES)
        for first in range(0, len(away), step):
            if found := self._found(away[first : first + step]):
                brought.append(self._load_found(found))
        return np.concatenate(brought)

    def _load_found(self, found: Sequence[bytes]) -> Indices:
        """Load units that are away, of what RocksDB has of them: their numbers."""
        units, rows = self._load(found)
        self._use(units)
        self._stored_rows.values[units] = rows
        self._is_awaited.values[units] = self._start_column is not None
        if self._in_memory.increments is not None:
            self._in_memory.increments.came_back(units)
        return units

    def _write(self, units: Indices, counts: Indices | int) -> None:
        """Write these units to RocksDB; `counts`: how many rows each has."""
        first = 0
        for contents in self._contents(units):
            identities = self._in_memory.identities[units[first : first + len(contents)]]
            order = order_of(identities)
            in_order = [contents[place] for place in order.tolist()]
            self._database.put(zip(row_ids(identities[order]), in_order, strict=True))
            first += len(contents)
        self._kept_memory.give_back()
        before = self._stored()[units]
        self._units += int(np.count_nonzero(before == 0))
        self._rows += int(np.sum(counts - before))
        if (increments := self._in_memory.increments) is not None:
            is_unwritten, changed_in = increments.unwritten(units)
            if is_unwritten.any():
                went = self._in_memory.identities[units[is_unwritten]]
                self._went.note(went, changed_in[is_unwritten], is_there=True)

    def _encoded(self, rows: Indices) -> Iterator[list[bytes]]:
        """These rows, lowest first, as bytes, some at a time."""
        frozen = self._in_memory.freeze_rows(LiveRows(self._in_memory.size, rows), 1)
        step = min(WRITE_ROWS, self._sizes.rows_in(_PIECE_BYTES))
        for first in range(0, len(rows), step):
            yield self._codec.encode(frozen.piece(first, min(first + step, len(rows))))

    def _frozen(self, rows: LiveRows, away: Away, twice: Identities, max_parallelism: int) -> FrozenRows:
        hot = self._in_memory.freeze_rows(rows, max_parallelism)
        if away.is_empty:
            return hot
        return FrozenTiers(hot, away, twice, self._codec.frozen(), max_parallelism, self._start_column)

    def _put_wakes(self, kind: int, units: Indices, times: Int64s) -> None:
        has_one = (times != NO_WAKE_MS) & ~self._is_awaited.used()[units]
        if has_one.any():
            at = times[has_one]
            self._database.put_wakes(kind, at, self._in_memory.identities[units[has_one]])
            first, earliest = self._first.get(kind), int(at.min())
            self._first[kind] = earliest if first is None else min(first, earliest)
            self._passed[kind] = min(self._passed.get(kind, WATERMARK_MIN_MS), earliest)

    def _forget(self, units: Indices, identities_by_unit: Identities | None = None) -> None:
        """RocksDB is to have these units, which are in memory, no longer."""
        stored = self._stored_rows.used() if identities_by_unit is not None else self._stored()
        units = units[stored[units] > 0]
        by_unit = self._in_memory.identities if identities_by_unit is None else identities_by_unit
        identities = by_unit[units]
        self._database.delete(sorted(row_ids(identities)))
        if self._went and (increments := self._in_memory.increments) is not None:
            changed_in = np.full(len(units), increments.number, np.int32)
            self._went.note(identities, changed_in, is_there=False)
        self._rows -= int(stored[units].sum())
        self._units -= len(units)
        stored[units] = 0

    def _keep(self, kept: Indices) -> None:
        """Units were renumbered."""
        for column in (self._stored_rows, self._used, self._is_awaited):
            column.grow(int(kept[-1]) + 1 if len(kept) else 0)
            column.keep(kept)

    def _use(self, units: Indices) -> None:
        self._now += 1
        for column in (self._stored_rows, self._used, self._is_awaited):
            column.grow(self._size)
        self._used.values[units] = self._now

    def _stored(self) -> npt.NDArray[np.int32]:
        self._stored_rows.grow(self._size)
        return self._stored_rows.used()
