"""What the built-in aggregates have in common: their protocol, their input, their columns.

An accumulator's state is one Arrow column (a struct where it has parts); `freeze` is what a snapshot
keeps of it, `load` takes it back.
"""

from __future__ import annotations

from dataclasses import dataclass
from decimal import Decimal
from typing import Protocol, Self

import pyarrow as pa

from onceflow.runtime.records import Indices, Int64s
from onceflow.runtime.state.cells import add_at
from onceflow.runtime.state.columns import FreezableColumn
from onceflow.runtime.state.table import Frozen, LiveRows
from onceflow.runtime.state.values import ObjectColumn, WordColumn, without_nulls


@dataclass(frozen=True, slots=True)
class Arrivals:
    """What a batch brings to one aggregate: of each record its row in the table, its value and its event
    time, none of them null."""

    rows: Indices
    values: pa.Array | None
    """None for count(), which takes no column."""
    event_time: Int64s
    all_new: bool = False
    """Whether all rows that came with the last `grow` are among these; if not, they may be."""


def valid_arrivals(
    rows: Indices, values: pa.Array | None, event_time: Int64s, all_new: bool = False
) -> Arrivals:
    """The records without those whose value is null: all aggregates skip them. `all_new`: as in Arrivals."""
    if values is None:
        return Arrivals(rows, None, event_time, all_new)
    valid, kept = without_nulls(values)
    if kept is None:
        return Arrivals(rows, valid, event_time, all_new)
    return Arrivals(rows[kept], valid, event_time[kept])


class SumOverflow(Exception):
    """A sum left the range of its type; `row` is whose."""

    def __init__(self, row: int, total: int | Decimal, room: str) -> None:
        super().__init__(f"the sum {total} does not fit {room}")
        self.row = row
        self.column = ""
        """The output column: filled in by who knows it."""


class Accumulator(Protocol):
    """One aggregate of all rows. A row that has seen no value has a null result (a count: 0)."""

    def grow(self, size: int) -> None:
        """Have this many rows."""
        ...

    def update(self, arrivals: Arrivals) -> None:
        """Take in a batch; `grow` was called for its rows before, once."""
        ...

    def merge(self, rows: Indices, other: Self, other_rows: Indices) -> None:
        """Take in, for each of these rows, what `other` has in the other one; in this order."""
        ...

    def results(self, rows: Indices) -> pa.Array: ...

    def clear(self, rows: Indices) -> None:
        """Make these rows as new ones: they have seen no value."""
        ...

    def keep(self, rows: Indices) -> None:
        """Renumber: keep these rows only, in this order."""
        ...

    def freeze(self, live: LiveRows) -> Frozen:
        """RowColumn.freeze."""
        ...

    def load(self, rows: Indices, state: pa.Array) -> None:
        """Restore these empty rows from what `freeze` gave."""
        ...


class OneColumn:
    """What aggregates with a single column share: everything but `update`. A value that was aggregated
    is to `update` like one that comes in."""

    def __init__(self, column: WordColumn | ObjectColumn) -> None:
        self._column = column

    def grow(self, size: int) -> None:
        self._column.grow(size)

    def update(self, arrivals: Arrivals) -> None:
        raise NotImplementedError

    def merge(self, rows: Indices, other: Self, other_rows: Indices) -> None:
        self.update(valid_arrivals(rows, other._column.take(other_rows), rows))

    def results(self, rows: Indices) -> pa.Array:
        return self._column.take(rows)

    def clear(self, rows: Indices) -> None:
        self._column.clear(rows)

    def keep(self, rows: Indices) -> None:
        self._column.keep(rows)

    def freeze(self, live: LiveRows) -> Frozen:
        return self._column.freeze(live)

    def load(self, rows: Indices, state: pa.Array) -> None:
        self._column.put(rows, state)


class Parts:
    """What aggregates with several columns share. Their state is a struct of the columns, in order."""

    def __init__(self, **columns: FreezableColumn) -> None:
        self._columns = columns

    def grow(self, size: int) -> None:
        for column in self._columns.values():
            column.grow(size)

    def clear(self, rows: Indices) -> None:
        for column in self._columns.values():
            column.refill(rows)

    def keep(self, rows: Indices) -> None:
        for column in self._columns.values():
            column.keep(rows)

    def merge(self, rows: Indices, other: Self, other_rows: Indices) -> None:
        for name, column in self._columns.items():
            add_at(column.values, rows, other._columns[name].values[other_rows])

    def freeze(self, live: LiveRows) -> Frozen:
        frozen = {name: live.frozen(column) for name, column in self._columns.items()}
        return lambda rows: pa.StructArray.from_arrays(
            [pa.array(values(rows)) for values in frozen.values()], [*frozen]
        )

    def load(self, rows: Indices, state: pa.Array) -> None:
        for name, column in self._columns.items():
            column.values[rows] = state.field(name).to_numpy()
