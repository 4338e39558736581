"""NumberColumn and FlagColumn: numbers and flags by row that an operator keeps beside its values."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from onceflow.runtime.records import Indices, Int64s, Mask
from onceflow.runtime.state.columns import FreezableColumn
from onceflow.runtime.state.table import Frozen, LiveRows


class NumberColumn:
    """A RowColumn of int64, changed in place. A row that was just added, or cleared, has 0."""

    has_numbers_only = True

    def __init__(self) -> None:
        self._column = FreezableColumn(np.int64)

    def of(self, rows: Indices) -> Int64s:
        return self._column.used().take(rows)

    def put(self, rows: Indices, numbers: Int64s | int) -> None:
        self._column.values[rows] = numbers

    def add(self, rows: Indices, numbers: Int64s) -> None:
        """Add to each of these rows, none of which comes twice."""
        self._column.values[rows] += numbers

    def add_each(self, rows: Indices, numbers: Int64s | int) -> None:
        """Add to these rows, some of which may come more than once."""
        np.add.at(self._column.values, rows, numbers)

    def lower(self, rows: Indices, numbers: Int64s) -> None:
        """Make each of these rows the lowest of what it is and what is given for it."""
        np.minimum.at(self._column.values, rows, numbers)

    def used(self) -> Int64s:
        """A view of all rows, those that were removed among them."""
        return self._column.used()

    def grow(self, size: int) -> None:
        self._column.grow(size)

    def clear(self, rows: Indices) -> None:
        self._column.refill(rows)

    def keep(self, rows: Indices) -> None:
        self._column.keep(rows)

    def freeze(self, live: LiveRows) -> Frozen:
        frozen = live.frozen(self._column)
        return lambda rows: pa.array(frozen(rows))

    def load(self, rows: Indices, values: pa.Array) -> None:
        self._column.values[rows] = values.to_numpy()


class FlagColumn:
    """A RowColumn of flags. A snapshot leaves it out where none is set."""

    has_numbers_only = True

    def __init__(self) -> None:
        self._column = FreezableColumn(np.bool_)

    def of(self, rows: Indices) -> Mask:
        return self._column.used().take(rows)

    def put(self, rows: Indices, flags: npt.NDArray[np.bool_] | bool) -> None:
        self._column.values[rows] = flags

    def used(self) -> Mask:
        """A view of all rows, those that were removed among them."""
        return self._column.used()

    def grow(self, size: int) -> None:
        self._column.grow(size)

    def clear(self, rows: Indices) -> None:
        self._column.refill(rows)

    def keep(self, rows: Indices) -> None:
        self._column.keep(rows)

    def freeze(self, live: LiveRows) -> Frozen | None:
        if not self._column.used().any():
            return None
        frozen = live.frozen(self._column)
        return lambda rows: pa.array(frozen(rows))

    def load(self, rows: Indices, values: pa.Array) -> None:
        self._column.values[rows] = values.to_numpy(zero_copy_only=False)
