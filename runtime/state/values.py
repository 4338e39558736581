"""Columns of one value per row, null until it is set: machine words in numpy, other values as objects.

`freeze` gives what a snapshot keeps: a function that makes Arrow of some rows as they were, on any thread.
"""

from __future__ import annotations

from typing import Any, Protocol

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from onceflow.runtime.records import Indices, Mask
from onceflow.runtime.state.cells import mark_at
from onceflow.runtime.state.columns import FreezableColumn, bits_of, is_word, numpy_dtype
from onceflow.runtime.state.table import Frozen, LiveRows


class ValueColumn(Protocol):
    """A value of one Arrow type per row; null where none was set."""

    def grow(self, size: int) -> None:
        """Have this many rows; new ones are null."""
        ...

    def put(self, rows: Indices, values: pa.Array) -> None:
        """Set these rows; of several values for a row the last stays. A null leaves it as it is."""
        ...

    def take(self, rows: Indices) -> pa.Array: ...

    def clear(self, rows: Indices) -> None:
        """Make these rows null."""
        ...

    def keep(self, rows: Indices) -> None:
        """Renumber: keep these rows only, in this order."""
        ...

    def freeze(self, live: LiveRows) -> Frozen:
        """RowColumn.freeze."""
        ...


def value_column(arrow: pa.DataType) -> ValueColumn:
    return WordColumn(arrow) if is_word(arrow) else ObjectColumn(arrow)


class WordColumn:
    """Numbers, booleans (as uint8), dates and times (as integers), decimals of 128 bits in a numpy array.

    Most columns have no null, so which rows have a value is not written down as long as all have one.
    """

    def __init__(self, arrow: pa.DataType, fill: Any = 0) -> None:
        self._arrow = arrow
        self._column = FreezableColumn(word_dtype(arrow), fill)
        self._set_to = 0
        """While there are no flags: the rows below have a value, those that were grown since have none."""
        self._flags: FreezableColumn | None = None

    @property
    def values(self) -> npt.NDArray[Any]:
        """All values, to be updated in place; `mark` says which rows were."""
        return self._column.values

    def used(self) -> npt.NDArray[Any]:
        """The values of the rows there are."""
        return self._column.used()

    def grow(self, size: int) -> None:
        flags = self._is_set()
        self._column.grow(size)
        if flags is not None:
            flags.grow(size)

    def mark(self, rows: Indices, all_new: bool = False) -> None:
        """These rows have a value now. `all_new`: among them are all that came with the last `grow`."""
        if self._flags is None and all_new:
            self._set_to = len(self._column)
        elif (flags := self._is_set()) is not None:
            mark_at(flags.values, rows)

    def put(self, rows: Indices, values: pa.Array) -> None:
        valid, kept = without_nulls(values)
        rows = rows if kept is None else rows[kept]
        self._column.values[rows] = words_of(valid)
        self.mark(rows)

    def take(self, rows: Indices) -> pa.Array:
        flags, words = self._is_set(), self._column.values.take(rows)
        return array_of_words(words, self._arrow, None if flags is None else ~flags.values.take(rows))

    def clear(self, rows: Indices) -> None:
        if self._flags is None:
            self._flag(self._set_to)
        assert self._flags is not None
        self._flags.refill(rows)
        self._column.refill(rows)

    def keep(self, rows: Indices) -> None:
        flags = self._is_set()
        self._column.keep(rows)
        self._set_to = len(rows)
        if flags is not None:
            flags.keep(rows)
            if flags.used().all():
                self._flags = None

    def freeze(self, live: LiveRows) -> Frozen:
        flags, values, arrow = self._is_set(), live.frozen(self._column), self._arrow
        if flags is None:
            return lambda rows: array_of_words(values(rows), arrow, None)
        is_set = live.frozen(flags)
        return lambda rows: array_of_words(values(rows), arrow, ~is_set(rows))

    def _is_set(self) -> FreezableColumn | None:
        """Which rows have a value; None: all."""
        if self._flags is None and self._set_to < len(self._column):
            self._flag(self._set_to)
        return self._flags

    def _flag(self, set_to: int) -> None:
        """Write down from now on which rows have a value: until now those below this one."""
        self._flags = FreezableColumn(np.bool_)
        self._flags.grow(len(self._column))
        self._flags.values[:set_to] = True


class ObjectColumn:
    """Values of any Arrow type, as Python objects that nobody changes."""

    def __init__(self, arrow: pa.DataType) -> None:
        self._arrow = arrow
        self.values: list[Any] = []

    def grow(self, size: int) -> None:
        self.values.extend([None] * (size - len(self.values)))

    def put(self, rows: Indices, values: pa.Array) -> None:
        mine = self.values
        for row, value in zip(rows.tolist(), values.to_pylist(), strict=True):
            if value is not None:
                mine[row] = value

    def take(self, rows: Indices) -> pa.Array:
        return _array_of_objects(self.values, rows, self._arrow)

    def clear(self, rows: Indices) -> None:
        for row in rows.tolist():
            self.values[row] = None

    def keep(self, rows: Indices) -> None:
        mine = self.values
        self.values = [mine[row] for row in rows.tolist()]

    def freeze(self, live: LiveRows) -> Frozen:
        values, arrow = live.copied(self.values), self._arrow
        return lambda rows: pa.array(values(rows), type=arrow)


def without_nulls(values: pa.Array) -> tuple[pa.Array, Indices | None]:
    """The values that are not null, and the rows they are in (None: all rows)."""
    if not values.null_count:
        return values, None
    rows = np.flatnonzero(np.asarray(values.is_valid().to_numpy(zero_copy_only=False)))
    return values.take(pa.array(rows)), rows


def word_dtype(arrow: pa.DataType) -> np.dtype[Any]:
    """The numpy type in which words of this Arrow type are kept."""
    return np.dtype(np.uint8) if pa.types.is_boolean(arrow) else numpy_dtype(arrow)


def words_of(values: pa.Array) -> npt.NDArray[Any]:
    """The words of an array without nulls."""
    if pa.types.is_boolean(values.type):
        return np.asarray(values.to_numpy(zero_copy_only=False)).view(np.uint8)
    return bits_of(values)


def array_of_words(words: npt.NDArray[Any], arrow: pa.DataType, nulls: Mask | None) -> pa.Array:
    """The inverse of `words_of`, with nulls."""
    mask = nulls if nulls is not None and nulls.any() else None
    if pa.types.is_decimal(arrow):
        valid = None if mask is None else pa.array(~mask).buffers()[1]
        return pa.Array.from_buffers(arrow, len(words), [valid, pa.py_buffer(words)])
    array = pa.array(words, mask=mask)
    if array.type == arrow:
        return array
    return array.cast(arrow) if pa.types.is_boolean(arrow) else array.view(arrow)


def _array_of_objects(values: list[Any], rows: Indices, arrow: pa.DataType) -> pa.Array:
    return pa.array([values[row] for row in rows.tolist()], type=arrow)
