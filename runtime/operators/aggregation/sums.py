"""Sums and means as columns: exact over integers and decimals, in the order of arrival over floats."""

from __future__ import annotations

from decimal import Decimal
from itertools import pairwise
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from onceflow.runtime.operators.aggregation.accumulator import Arrivals, OneColumn, Parts, SumOverflow
from onceflow.runtime.records import Indices, Int64s
from onceflow.runtime.state.cells import add_at, count_at
from onceflow.runtime.state.columns import DECIMAL_WORDS, FreezableColumn
from onceflow.runtime.state.values import WordColumn, words_of
from onceflow.runtime.types.value_types import DECIMAL_PRECISION

_INT64_MAX = (1 << 63) - 1
_LOW = np.int64(0xFFFFFFFF)
_WORD = np.int64(32)
_SUSPICIOUS = 10**DECIMAL_PRECISION >> 96
"""A decimal whose highest limb is nearer to 0 fits."""


class IntegerSum(OneColumn):
    """An exact int64 sum. A total that does not fit at the end of a batch raises SumOverflow.

    `_bound` is at least the absolute value of every total. Only when it could pass 2^63 are the true
    totals looked at, and only if those are too large as well does a batch go the long way.
    """

    def __init__(self) -> None:
        self._sums = WordColumn(pa.int64())
        self._bound = 0
        super().__init__(self._sums)

    def update(self, arrivals: Arrivals) -> None:
        values = words_of(arrivals.values)
        added = _magnitude(values) * len(values)
        if self._bound + added > _INT64_MAX:
            self._bound = _magnitude(self._sums.used())
        if self._bound + added > _INT64_MAX:
            self._add_in_halves(arrivals.rows, values)
            self._bound = _magnitude(self._sums.used())
        else:
            add_at(self._sums.values, arrivals.rows, values.astype(np.int64, copy=False))
            self._bound += added
        self._sums.mark(arrivals.rows, arrivals.all_new)

    def load(self, rows: Indices, state: pa.Array) -> None:
        super().load(rows, state)
        self._bound = _magnitude(self._sums.used())

    def _add_in_halves(self, rows: Indices, values: npt.NDArray[Any]) -> None:
        """Add in two halves of 32 bits, which can't overflow, and put them together if they fit."""
        touched, place = np.unique(rows, return_inverse=True)
        high, low = _halves(self._sums.values[touched])
        more_high, more_low = _halves(values)
        np.add.at(high, place, more_high)
        np.add.at(low, place, more_low)
        high += low >> _WORD
        low &= _LOW
        wrong = np.flatnonzero((high < -(1 << 31)) | (high >= 1 << 31))
        if len(wrong):
            at = int(wrong[0])
            raise SumOverflow(int(touched[at]), (int(high[at]) << 32) + int(low[at]), "64 bits")
        self._sums.values[touched] = (high << _WORD) | low


class DecimalSum(OneColumn):
    """An exact sum of decimals of one scale. A total of more than 38 digits at the end of a batch raises
    SumOverflow. Adds in four limbs of 32 bits, which can't overflow."""

    def __init__(self, scale: int) -> None:
        self._type = pa.decimal128(DECIMAL_PRECISION, scale)
        self._sums = WordColumn(self._type)
        super().__init__(self._sums)

    def update(self, arrivals: Arrivals) -> None:
        assert arrivals.values is not None
        touched, place = np.unique(arrivals.rows, return_inverse=True)
        totals = _limbs(self._sums.values[touched])
        for limb, more in zip(totals, _limbs(words_of(arrivals.values.cast(self._type))), strict=True):
            add_at(limb, place, more)
        for lower, upper in pairwise(totals):
            upper += lower >> _WORD
            lower &= _LOW
        for at in np.flatnonzero(np.abs(totals[-1]) >= _SUSPICIOUS).tolist():
            whole = sum(int(limb) << 32 * i for i, limb in enumerate(totals[:, at]))
            if abs(whole) >= 10**DECIMAL_PRECISION:
                total = Decimal(f"{whole}E{-self._type.scale}")
                raise SumOverflow(int(touched[at]), total, f"{DECIMAL_PRECISION} digits")
        words = np.ascontiguousarray(totals.T, np.uint32)
        self._sums.values[touched] = words.view(DECIMAL_WORDS)[:, 0]
        self._sums.mark(arrivals.rows, arrivals.all_new)


class FloatSum(OneColumn):
    """A sum of floats, added in the order of arrival."""

    def __init__(self) -> None:
        self._sums = WordColumn(pa.float64())
        super().__init__(self._sums)

    def update(self, arrivals: Arrivals) -> None:
        add_at(self._sums.values, arrivals.rows, words_of(arrivals.values).astype(np.float64, copy=False))
        self._sums.mark(arrivals.rows, arrivals.all_new)


class FloatMean(Parts):
    """The mean of floats."""

    def __init__(self) -> None:
        self._sum, self._count = FreezableColumn(np.float64), FreezableColumn(np.int64)
        super().__init__(sum=self._sum, count=self._count)

    def update(self, arrivals: Arrivals) -> None:
        add_at(self._sum.values, arrivals.rows, words_of(arrivals.values).astype(np.float64, copy=False))
        count_at(self._count.values, arrivals.rows)

    def results(self, rows: Indices) -> pa.Array:
        return _mean(self._sum.values.take(rows), self._count.values.take(rows))


class IntegerMean(Parts):
    """The mean of integers: sums in two halves, which don't overflow and don't depend on the order."""

    def __init__(self) -> None:
        self._high, self._low, self._count = (FreezableColumn(np.int64) for _ in range(3))
        super().__init__(sum_high=self._high, sum_low=self._low, count=self._count)

    def update(self, arrivals: Arrivals) -> None:
        high, low = _halves(words_of(arrivals.values))
        add_at(self._high.values, arrivals.rows, high)
        add_at(self._low.values, arrivals.rows, low)
        count_at(self._count.values, arrivals.rows)

    def results(self, rows: Indices) -> pa.Array:
        total = self._high.values.take(rows) * float(1 << 32) + self._low.values.take(rows)
        return _mean(total, self._count.values.take(rows))


def _limbs(decimals: npt.NDArray[Any]) -> Int64s:
    """Decimals as four rows of 32 bits each, the lowest first, of which the last has the sign."""
    limbs = decimals.view(np.uint32).reshape(-1, 4).T.astype(np.int64)
    limbs[-1] = decimals.view(np.int32)[3::4]
    return limbs


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
