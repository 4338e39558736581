"""The built-in aggregates as columns: one place per row, a whole batch at a time."""

from __future__ import annotations

from typing import Any, Self

import numpy as np
import pyarrow as pa

from onceflow.runtime.operators.aggregation.accumulator import (
    Accumulator,
    Arrivals,
    OneColumn,
    valid_arrivals,
)
from onceflow.runtime.operators.aggregation.aggregates import BuiltinAggregate, Kind
from onceflow.runtime.operators.aggregation.evicted_rows import EvictedRows
from onceflow.runtime.operators.aggregation.kept_values import DistinctValues, ValueLists
from onceflow.runtime.operators.aggregation.quantiles import Quantiles
from onceflow.runtime.operators.aggregation.sketches import Hll, Kll, Sketches
from onceflow.runtime.operators.aggregation.sums import (
    DecimalSum,
    FloatMean,
    FloatSum,
    IntegerMean,
    IntegerSum,
)
from onceflow.runtime.records import Indices
from onceflow.runtime.state.cells import add_at, count_at
from onceflow.runtime.state.columns import FreezableColumn, is_word
from onceflow.runtime.state.table import Frozen, LiveRows
from onceflow.runtime.state.values import (
    ObjectColumn,
    WordColumn,
    value_column,
    word_dtype,
    words_of,
)

_INT64_MAX = (1 << 63) - 1


def accumulator(aggregate: BuiltinAggregate, argument: pa.DataType | None) -> Accumulator:
    """A built-in aggregate over values of this type."""
    kind = aggregate.kind
    is_float = argument is not None and pa.types.is_floating(argument)
    match kind:
        case Kind.COUNT:
            return Count()
        case Kind.SUM:
            if argument is not None and pa.types.is_decimal(argument):
                return DecimalSum(argument.scale)
            return FloatSum() if is_float else IntegerSum()
        case Kind.MEAN:
            return FloatMean() if is_float else IntegerMean()
        case Kind.MIN | Kind.MAX:
            extreme = WordExtreme if is_word(argument) else ObjectExtreme
            return extreme(argument, is_max=kind is Kind.MAX)
        case Kind.FIRST | Kind.LAST:
            return Outermost(argument, is_last=kind is Kind.LAST)
    return _keeping_values(aggregate, argument)


def _keeping_values(aggregate: BuiltinAggregate, argument: pa.DataType | None) -> Accumulator:
    match aggregate.kind:
        case Kind.COLLECT_LIST:
            return ValueLists(argument)
        case Kind.EVICTED_ROWS:
            assert aggregate.eviction is not None
            return EvictedRows(argument, aggregate.eviction)
        case Kind.COUNT_DISTINCT:
            return DistinctValues(argument)
        case Kind.QUANTILE:
            return Quantiles(aggregate.rank)
        case Kind.APPROX_QUANTILE:
            return Sketches(Kll(aggregate.rank, aggregate.k))
        case Kind.APPROX_COUNT_DISTINCT:
            return Sketches(Hll())
    raise AssertionError(aggregate.kind)


class Count:
    """Records, or values that are not null."""

    def __init__(self) -> None:
        self._count = FreezableColumn(np.int64)

    def grow(self, size: int) -> None:
        self._count.grow(size)

    def update(self, arrivals: Arrivals) -> None:
        count_at(self._count.values, arrivals.rows)

    def merge(self, rows: Indices, other: Self, other_rows: Indices) -> None:
        add_at(self._count.values, rows, other._count.values[other_rows])

    def results(self, rows: Indices) -> pa.Array:
        return pa.array(self._count.values.take(rows))

    def clear(self, rows: Indices) -> None:
        self._count.refill(rows)

    def keep(self, rows: Indices) -> None:
        self._count.keep(rows)

    def freeze(self, live: LiveRows) -> Frozen:
        counts = live.frozen(self._count)
        return lambda rows: pa.array(counts(rows))

    def load(self, rows: Indices, state: pa.Array) -> None:
        self._count.values[rows] = state.to_numpy()


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

    def update(self, arrivals: Arrivals) -> None:
        self._pick.at(self._extremes.values, arrivals.rows, words_of(arrivals.values))
        self._extremes.mark(arrivals.rows, arrivals.all_new)


class ObjectExtreme(OneColumn):
    """The lowest or highest of strings (by code point), bytes and decimals."""

    def __init__(self, arrow: pa.DataType, is_max: bool) -> None:
        self._extremes = ObjectColumn(arrow)
        self._is_max = is_max
        super().__init__(self._extremes)

    def update(self, arrivals: Arrivals) -> None:
        assert arrivals.values is not None
        mine, is_max = self._extremes.values, self._is_max
        for row, value in zip(arrivals.rows.tolist(), arrivals.values.to_pylist(), strict=True):
            current = mine[row]
            if current is None or (current < value if is_max else value < current):
                mine[row] = value


class Outermost:
    """The value with the lowest event time (of several the first that came), or the highest (the last)."""

    def __init__(self, arrow: pa.DataType, is_last: bool) -> None:
        self._is_last = is_last
        self._time = FreezableColumn(np.int64, -(1 << 63) if is_last else _INT64_MAX)
        self._value = value_column(arrow)

    def grow(self, size: int) -> None:
        self._time.grow(size)
        self._value.grow(size)

    def update(self, arrivals: Arrivals) -> None:
        assert arrivals.values is not None
        rows, time = arrivals.rows, arrivals.event_time
        if self._is_last:
            np.maximum.at(self._time.values, rows, time)
            wins = np.flatnonzero(time == self._time.values[rows])
        else:
            before = self._time.values[rows]
            np.minimum.at(self._time.values, rows, time)
            is_earlier = (time == self._time.values[rows]) & (time < before)
            wins = np.flatnonzero(is_earlier)[::-1]  # the first that came is put last, and stays
        self._value.put(rows[wins], arrivals.values.take(pa.array(wins)))

    def merge(self, rows: Indices, other: Self, other_rows: Indices) -> None:
        time = other._time.values[other_rows]
        self.update(valid_arrivals(rows, other._value.take(other_rows), time))

    def results(self, rows: Indices) -> pa.Array:
        return self._value.take(rows)

    def clear(self, rows: Indices) -> None:
        self._time.refill(rows)
        self._value.clear(rows)

    def keep(self, rows: Indices) -> None:
        self._time.keep(rows)
        self._value.keep(rows)

    def freeze(self, live: LiveRows) -> Frozen:
        time, value = live.frozen(self._time), self._value.freeze(live)
        return lambda rows: pa.StructArray.from_arrays(
            [pa.array(time(rows)), value(rows)], ["event_time", "value"]
        )

    def load(self, rows: Indices, state: pa.Array) -> None:
        self._time.values[rows] = state.field("event_time").to_numpy()
        self._value.put(rows, state.field("value"))
