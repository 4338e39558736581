"""Exact quantiles: all values are kept, and sorted when a window fires."""

from __future__ import annotations

from itertools import chain
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from onceflow.runtime.arrays.sorting import stable_order
from onceflow.runtime.operators.aggregation.accumulator import Arrivals
from onceflow.runtime.operators.aggregation.kept_values import ValueLists
from onceflow.runtime.records import Indices, Int64s
from onceflow.runtime.state.values import words_of

Floats = npt.NDArray[np.float64]


class Quantiles(ValueLists):
    """A quantile of each row's numbers, as doubles; null if there are none."""

    def __init__(self, rank: float) -> None:
        """`rank`: from 0 to 1."""
        super().__init__(pa.float64())
        self._rank = rank

    def update(self, arrivals: Arrivals) -> None:
        rows, numbers = numbers_of(arrivals)
        order = stable_order(rows)
        rows, numbers = rows[order], numbers[order]
        for row, values in zip(*pieces(rows, numbers), strict=True):
            self._append(row, values.tolist())

    def results(self, rows: Indices) -> pa.Array:
        kept = [self._lists[row] or () for row in rows.tolist()]
        counts = np.fromiter(map(len, kept), np.int64, len(kept))
        numbers = np.fromiter(chain.from_iterable(kept), np.float64, int(counts.sum()))
        found = quantiles(numbers, counts, self._rank)
        return pa.array(found, mask=counts == 0)


def numbers_of(arrivals: Arrivals) -> tuple[Indices, Floats]:
    """The rows and values that are numbers, as doubles: without NaN."""
    numbers = words_of(arrivals.values).astype(np.float64)
    is_number = ~np.isnan(numbers)
    return arrivals.rows[is_number], numbers[is_number]


def pieces(rows: Indices, values: npt.NDArray[Any]) -> tuple[list[int], list[npt.NDArray[Any]]]:
    """Each row once, and its values; `rows` never fall."""
    if not len(rows):
        return [], []
    cuts = np.flatnonzero(np.diff(rows)) + 1
    return rows[np.append(0, cuts)].tolist(), np.split(values, cuts)


def quantiles(numbers: Floats, counts: Int64s, rank: float) -> Floats:
    """The quantile of each group of numbers, which lie one behind the other, each `counts` long; anything
    where a group is empty. Computed as NumPy does, to the last bit."""
    group = np.repeat(np.arange(len(counts)), counts)
    in_order = numbers[np.lexsort((numbers, group))]
    if not len(in_order):
        return np.zeros(len(counts))
    first = np.cumsum(counts) - counts
    place = np.maximum(counts - 1, 0) * rank
    below = np.floor(place).astype(np.int64)
    above = np.minimum(below + 1, np.maximum(counts - 1, 0))
    last = len(in_order) - 1
    low, high = in_order[np.minimum(first + below, last)], in_order[np.minimum(first + above, last)]
    share = place - below
    with np.errstate(invalid="ignore", over="ignore"):  # between infinities there is nothing
        step = high - low
        return np.asarray(np.where(share < 0.5, low + step * share, high - step * (1 - share)))
