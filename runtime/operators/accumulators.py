"""The built-in aggregates as columns: one place per slot, a whole batch at a time.

An accumulator's state is one Arrow column (a struct where it has parts); `freeze` is what a snapshot
keeps of it, `load` takes it back.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from onceflow.runtime.operators.aggregates import Kind
from onceflow.runtime.records import Indices, Int64s
from onceflow.runtime.state.columns import GrowableColumn, is_word
from onceflow.runtime.state.values import (
    Frozen,
    ObjectColumn,
    WordColumn,
    value_column,
    without_nulls,
    word_dtype,
    words_of,
)

_INT64_MAX = (1 << 63) - 1
_LOW = np.int64(0xFFFFFFFF)
_WORD = np.int64(32)


@dataclass(frozen=True, slots=True)
class Rows:
    """What a batch brings to one aggregate: a slot, a value and an event time per row, none null."""

    slots: Indices
    values: pa.Array | None
    """None for count(), which takes no column."""
    event_time: Int64s


def valid_rows(slots: Indices, values: pa.Array | None, event_time: Int64s) -> Rows:
    """The rows without those whose value is null: all aggregates skip them."""
    if values is None:
        return Rows(slots, None, event_time)
    valid, kept = without_nulls(values)
    return Rows(slots, valid, event_time) if kept is None else Rows(slots[kept], valid, event_time[kept])


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
        """Take in a batch; `grow` was called for its slots."""
        ...

    def results(self, slots: Indices) -> pa.Array: ...

    def keep(self, slots: Indices) -> None:
        """Renumber: keep these slots only, in this order."""
        ...

    def freeze(self) -> Frozen: ...

    def load(self, slots: Indices, state: pa.Array) -> None:
        """Restore these empty slots from what `freeze` gave."""
        ...


def accumulator(kind: Kind, argument: pa.DataType | None) -> Accumulator:
    """A built-in aggregate over values of this type."""
    is_float = argument is not None and pa.types.is_floating(argument)
    match kind:
        case Kind.COUNT:
            return Count()
        case Kind.SUM:
            return FloatSum() if is_float else IntegerSum()
        case Kind.MEAN:
            return FloatMean() if is_float else IntegerMean()
        case Kind.MIN | Kind.MAX:
            extreme = WordExtreme if is_word(argument) else ObjectExtreme
            return extreme(argument, is_max=kind is Kind.MAX)
        case Kind.FIRST | Kind.LAST:
            return Outermost(argument, is_last=kind is Kind.LAST)


class Count:
    """Rows, or values that are not null."""

    def __init__(self) -> None:
        self._count = GrowableColumn(np.int64)

    def grow(self, size: int) -> None:
        self._count.grow(size)

    def update(self, rows: Rows) -> None:
        np.add.at(self._count.values, rows.slots, 1)

    def results(self, slots: Indices) -> pa.Array:
        return pa.array(self._count.values[slots])

    def keep(self, slots: Indices) -> None:
        self._count.keep(slots)

    def freeze(self) -> Frozen:
        counts = self._count.used().copy()
        return lambda slots: pa.array(counts[slots])

    def load(self, slots: Indices, state: pa.Array) -> None:
        self._count.values[slots] = state.to_numpy()


class _OneColumn:
    """What aggregates with a single column share: everything but `update`."""

    def __init__(self, column: WordColumn | ObjectColumn) -> None:
        self._column = column

    def grow(self, size: int) -> None:
        self._column.grow(size)

    def results(self, slots: Indices) -> pa.Array:
        return self._column.take(slots)

    def keep(self, slots: Indices) -> None:
        self._column.keep(slots)

    def freeze(self) -> Frozen:
        return self._column.freeze()

    def load(self, slots: Indices, state: pa.Array) -> None:
        self._column.put(slots, state)


class IntegerSum(_OneColumn):
    """An exact int64 sum. A total that does not fit at the end of a batch raises SumOverflow.

    `_bound` is at least the absolute value of every total. Only when it could pass 2^63 are the true
    totals looked at, and only if those are too large as well does a batch go the long way.
    """

    def __init__(self) -> None:
        self._sums = WordColumn(pa.int64())
        self._bound = 0
        super().__init__(self._sums)

    def update(self, rows: Rows) -> None:
        values = words_of(rows.values)
        added = _magnitude(values) * len(values)
        if self._bound + added > _INT64_MAX:
            self._bound = _magnitude(self._sums.values)
        if self._bound + added > _INT64_MAX:
            self._add_in_halves(rows.slots, values)
            self._bound = _magnitude(self._sums.values)
        else:
            np.add.at(self._sums.values, rows.slots, values.astype(np.int64, copy=False))
            self._bound += added
        self._sums.mark(rows.slots)

    def load(self, slots: Indices, state: pa.Array) -> None:
        super().load(slots, state)
        self._bound = _magnitude(self._sums.values)

    def _add_in_halves(self, slots: Indices, values: npt.NDArray[Any]) -> None:
        """Add in two halves of 32 bits, which can't overflow, and put them together if they fit."""
        touched, place = np.unique(slots, return_inverse=True)
        high, low = _halves(self._sums.values[touched])
        more_high, more_low = _halves(values)
        np.add.at(high, place, more_high)
        np.add.at(low, place, more_low)
        high += low >> _WORD
        low &= _LOW
        wrong = np.flatnonzero((high < -(1 << 31)) | (high >= 1 << 31))
        if len(wrong):
            at = int(wrong[0])
            raise SumOverflow(int(touched[at]), (int(high[at]) << 32) + int(low[at]))
        self._sums.values[touched] = (high << _WORD) | low


class FloatSum(_OneColumn):
    """A sum of floats, added in the order of arrival."""

    def __init__(self) -> None:
        self._sums = WordColumn(pa.float64())
        super().__init__(self._sums)

    def update(self, rows: Rows) -> None:
        np.add.at(self._sums.values, rows.slots, words_of(rows.values).astype(np.float64, copy=False))
        self._sums.mark(rows.slots)


class WordExtreme(_OneColumn):
    """The lowest or highest of numbers, booleans, dates and times; NaN only if there is nothing else."""

    def __init__(self, arrow: pa.DataType, is_max: bool) -> None:
        dtype = word_dtype(arrow)
        if dtype.kind == "f":
            pick: np.ufunc = np.fmax if is_max else np.fmin
            fill: Any = np.nan
        else:
            limits = np.iinfo(dtype)
            pick, fill = (np.maximum, limits.min) if is_max else (np.minimum, limits.max)
        self._pick = pick
        self._extremes = WordColumn(arrow, fill)
        super().__init__(self._extremes)

    def update(self, rows: Rows) -> None:
        self._pick.at(self._extremes.values, rows.slots, words_of(rows.values))
        self._extremes.mark(rows.slots)


class ObjectExtreme(_OneColumn):
    """The lowest or highest of strings (by code point), bytes and decimals."""

    def __init__(self, arrow: pa.DataType, is_max: bool) -> None:
        self._extremes = ObjectColumn(arrow)
        self._is_max = is_max
        super().__init__(self._extremes)

    def update(self, rows: Rows) -> None:
        assert rows.values is not None
        mine, is_max = self._extremes.values, self._is_max
        for slot, value in zip(rows.slots.tolist(), rows.values.to_pylist(), strict=True):
            current = mine[slot]
            if current is None or (current < value if is_max else value < current):
                mine[slot] = value


class _Parts:
    """What aggregates with several columns share. Their state is a struct of the columns, in order."""

    def __init__(self, **columns: GrowableColumn) -> None:
        self._columns = columns

    def grow(self, size: int) -> None:
        for column in self._columns.values():
            column.grow(size)

    def keep(self, slots: Indices) -> None:
        for column in self._columns.values():
            column.keep(slots)

    def freeze(self) -> Frozen:
        frozen = {name: column.used().copy() for name, column in self._columns.items()}
        return lambda slots: pa.StructArray.from_arrays(
            [pa.array(c[slots]) for c in frozen.values()], [*frozen]
        )

    def load(self, slots: Indices, state: pa.Array) -> None:
        for name, column in self._columns.items():
            column.values[slots] = state.field(name).to_numpy()


class FloatMean(_Parts):
    """The mean of floats."""

    def __init__(self) -> None:
        self._sum, self._count = GrowableColumn(np.float64), GrowableColumn(np.int64)
        super().__init__(sum=self._sum, count=self._count)

    def update(self, rows: Rows) -> None:
        np.add.at(self._sum.values, rows.slots, words_of(rows.values).astype(np.float64, copy=False))
        np.add.at(self._count.values, rows.slots, 1)

    def results(self, slots: Indices) -> pa.Array:
        return _mean(self._sum.values[slots], self._count.values[slots])


class IntegerMean(_Parts):
    """The mean of integers: sums in two halves, which don't overflow and don't depend on the order."""

    def __init__(self) -> None:
        self._high, self._low, self._count = (GrowableColumn(np.int64) for _ in range(3))
        super().__init__(sum_high=self._high, sum_low=self._low, count=self._count)

    def update(self, rows: Rows) -> None:
        high, low = _halves(words_of(rows.values))
        np.add.at(self._high.values, rows.slots, high)
        np.add.at(self._low.values, rows.slots, low)
        np.add.at(self._count.values, rows.slots, 1)

    def results(self, slots: Indices) -> pa.Array:
        total = self._high.values[slots] * float(1 << 32) + self._low.values[slots]
        return _mean(total, self._count.values[slots])


class Outermost:
    """The value with the lowest event time (of several the first that came), or the highest (the last)."""

    def __init__(self, arrow: pa.DataType, is_last: bool) -> None:
        self._is_last = is_last
        self._time = GrowableColumn(np.int64, -(1 << 63) if is_last else _INT64_MAX)
        self._value = value_column(arrow)

    def grow(self, size: int) -> None:
        self._time.grow(size)
        self._value.grow(size)

    def update(self, rows: Rows) -> None:
        assert rows.values is not None
        slots, time = rows.slots, rows.event_time
        if self._is_last:
            np.maximum.at(self._time.values, slots, time)
            wins = np.flatnonzero(time == self._time.values[slots])
        else:
            before = self._time.values[slots]
            np.minimum.at(self._time.values, slots, time)
            is_earlier = (time == self._time.values[slots]) & (time < before)
            wins = np.flatnonzero(is_earlier)[::-1]  # the first that came is put last, and stays
        self._value.put(slots[wins], rows.values.take(pa.array(wins)))

    def results(self, slots: Indices) -> pa.Array:
        return self._value.take(slots)

    def keep(self, slots: Indices) -> None:
        self._time.keep(slots)
        self._value.keep(slots)

    def freeze(self) -> Frozen:
        time, value = self._time.used().copy(), self._value.freeze()
        return lambda slots: pa.StructArray.from_arrays(
            [pa.array(time[slots]), value(slots)], ["event_time", "value"]
        )

    def load(self, slots: Indices, state: pa.Array) -> None:
        self._time.values[slots] = state.field("event_time").to_numpy()
        self._value.put(slots, state.field("value"))


def _halves(values: npt.NDArray[Any]) -> tuple[Int64s, Int64s]:
    """Integers as high * 2^32 + low with 0 <= low < 2^32."""
    if values.dtype == np.uint64:
        return (values >> np.uint64(32)).astype(np.int64), (values & np.uint64(_LOW)).astype(np.int64)
    wide = values.astype(np.int64, copy=False)
    return wide >> _WORD, wide & _LOW


def _magnitude(values: npt.NDArray[Any]) -> int:
    """The highest absolute value, exactly."""
    return max(abs(int(values.min())), abs(int(values.max()))) if len(values) else 0


def _mean(total: npt.NDArray[np.float64], counts: Int64s) -> pa.Array:
    is_empty = counts == 0
    return pa.array(total / np.where(is_empty, 1, counts), mask=is_empty)
