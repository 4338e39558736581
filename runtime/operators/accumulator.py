"""What the built-in aggregates have in common: their protocol, their input, their columns.

An accumulator's state is one Arrow column (a struct where it has parts); `freeze` is what a snapshot
keeps of it, `load` takes it back.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol, Self

import pyarrow as pa

from onceflow.runtime.records import Indices, Int64s
from onceflow.runtime.state.cells import add_at
from onceflow.runtime.state.columns import FreezableColumn
from onceflow.runtime.state.values import Frozen, ObjectColumn, WordColumn, without_nulls


@dataclass(frozen=True, slots=True)
class Rows:
    """What a batch brings to one aggregate: a slot, a value and an event time per row, none null."""

    slots: Indices
    values: pa.Array | None
    """None for count(), which takes no column."""
    event_time: Int64s
    all_new: bool = False
    """Whether all slots that came with the last `grow` are among these; if not, they may be."""


def valid_rows(slots: Indices, values: pa.Array | None, event_time: Int64s, all_new: bool = False) -> Rows:
    """The rows without those whose value is null: all aggregates skip them. `all_new`: see Rows, of these."""
    if values is None:
        return Rows(slots, None, event_time, all_new)
    valid, kept = without_nulls(values)
    if kept is None:
        return Rows(slots, valid, event_time, all_new)
    return Rows(slots[kept], valid, event_time[kept])


class SumOverflow(Exception):
    """A sum left the range of int64; `slot` is whose."""

    def __init__(self, slot: int, total: int) -> None:
        super().__init__(f"the sum {total} does not fit 64 bits")
        self.slot = slot
        self.column = ""
        """The output column: filled in by who knows it."""


class Accumulator(Protocol):
    """One aggregate of all slots. A slot that has seen no value has a null result (a count: 0)."""

    def grow(self, size: int) -> None:
        """Have this many slots."""
        ...

    def update(self, rows: Rows) -> None:
        """Take in a batch; `grow` was called for its slots before, once."""
        ...

    def merge(self, slots: Indices, other: Self, other_slots: Indices) -> None:
        """Take in, for each of these slots, what `other` has in the other one; in this order."""
        ...

    def results(self, slots: Indices) -> pa.Array: ...

    def keep(self, slots: Indices) -> None:
        """Renumber: keep these slots only, in this order."""
        ...

    def freeze(self) -> Frozen: ...

    def load(self, slots: Indices, state: pa.Array) -> None:
        """Restore these empty slots from what `freeze` gave."""
        ...


class OneColumn:
    """What aggregates with a single column share: everything but `update`. A value that was aggregated
    is to `update` like one that comes in."""

    def __init__(self, column: WordColumn | ObjectColumn) -> None:
        self._column = column

    def grow(self, size: int) -> None:
        self._column.grow(size)

    def update(self, rows: Rows) -> None:
        raise NotImplementedError

    def merge(self, slots: Indices, other: Self, other_slots: Indices) -> None:
        self.update(valid_rows(slots, other._column.take(other_slots), slots))

    def results(self, slots: Indices) -> pa.Array:
        return self._column.take(slots)

    def keep(self, slots: Indices) -> None:
        self._column.keep(slots)

    def freeze(self) -> Frozen:
        return self._column.freeze()

    def load(self, slots: Indices, state: pa.Array) -> None:
        self._column.put(slots, state)


class Parts:
    """What aggregates with several columns share. Their state is a struct of the columns, in order."""

    def __init__(self, **columns: FreezableColumn) -> None:
        self._columns = columns

    def grow(self, size: int) -> None:
        for column in self._columns.values():
            column.grow(size)

    def keep(self, slots: Indices) -> None:
        for column in self._columns.values():
            column.keep(slots)

    def merge(self, slots: Indices, other: Self, other_slots: Indices) -> None:
        for name, column in self._columns.items():
            add_at(column.values, slots, other._columns[name].values[other_slots])

    def freeze(self) -> Frozen:
        frozen = {name: column.frozen() for name, column in self._columns.items()}
        return lambda slots: pa.StructArray.from_arrays(
            [pa.array(c.take(slots)) for c in frozen.values()], [*frozen]
        )

    def load(self, slots: Indices, state: pa.Array) -> None:
        for name, column in self._columns.items():
            column.values[slots] = state.field(name).to_numpy()
