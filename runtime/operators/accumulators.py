"""The built-in aggregates as columns: one place per slot, a whole batch at a time."""

from __future__ import annotations

from typing import Any, Self

import numpy as np
import pyarrow as pa

from onceflow.runtime.operators.accumulator import Accumulator, OneColumn, Rows, valid_rows
from onceflow.runtime.operators.aggregates import Kind
from onceflow.runtime.operators.sums import FloatMean, FloatSum, IntegerMean, IntegerSum
from onceflow.runtime.records import Indices
from onceflow.runtime.state.cells import add_at, count_at
from onceflow.runtime.state.columns import FreezableColumn, is_word
from onceflow.runtime.state.values import (
    Frozen,
    ObjectColumn,
    WordColumn,
    value_column,
    word_dtype,
    words_of,
)

_INT64_MAX = (1 << 63) - 1


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
        self._count = FreezableColumn(np.int64)

    def grow(self, size: int) -> None:
        self._count.grow(size)

    def update(self, rows: Rows) -> None:
        count_at(self._count.values, rows.slots)

    def merge(self, slots: Indices, other: Self, other_slots: Indices) -> None:
        add_at(self._count.values, slots, other._count.values[other_slots])

    def results(self, slots: Indices) -> pa.Array:
        return pa.array(self._count.values.take(slots))

    def keep(self, slots: Indices) -> None:
        self._count.keep(slots)

    def freeze(self) -> Frozen:
        counts = self._count.frozen()
        return lambda slots: pa.array(counts.take(slots))

    def load(self, slots: Indices, state: pa.Array) -> None:
        self._count.values[slots] = state.to_numpy()


class WordExtreme(OneColumn):
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
        self._extremes.mark(rows.slots, rows.all_new)


class ObjectExtreme(OneColumn):
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


class Outermost:
    """The value with the lowest event time (of several the first that came), or the highest (the last)."""

    def __init__(self, arrow: pa.DataType, is_last: bool) -> None:
        self._is_last = is_last
        self._time = FreezableColumn(np.int64, -(1 << 63) if is_last else _INT64_MAX)
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

    def merge(self, slots: Indices, other: Self, other_slots: Indices) -> None:
        time = other._time.values[other_slots]
        self.update(valid_rows(slots, other._value.take(other_slots), time))

    def results(self, slots: Indices) -> pa.Array:
        return self._value.take(slots)

    def keep(self, slots: Indices) -> None:
        self._time.keep(slots)
        self._value.keep(slots)

    def freeze(self) -> Frozen:
        time, value = self._time.frozen(), self._value.freeze()
        return lambda slots: pa.StructArray.from_arrays(
            [pa.array(time.take(slots)), value(slots)], ["event_time", "value"]
        )

    def load(self, slots: Indices, state: pa.Array) -> None:
        self._time.values[slots] = state.field("event_time").to_numpy()
        self._value.put(slots, state.field("value"))
