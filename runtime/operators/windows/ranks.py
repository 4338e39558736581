"""Where a batch's rows lie among those that have the same row of a table."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from onceflow.runtime.arrays.sorting import stable_order
from onceflow.runtime.records import Indices, Int64s, Mask


def rank(rows: Indices) -> Int64s:
    """How many of the places before have the same row, for each place."""
    return sum_before(rows, np.ones(len(rows), np.int64))


def sum_before(rows: Indices, numbers: Int64s) -> Int64s:
    """The sum of the numbers at the places before that have the same row, for each place."""
    order = stable_order(rows)
    in_order = rows[order]
    begins = np.ones(len(rows), np.bool_)
    begins[1:] = in_order[1:] != in_order[:-1]
    first = np.flatnonzero(begins)
    before = np.cumsum(numbers[order]) - numbers[order]
    summed = np.empty(len(rows), np.int64)
    summed[order] = before - np.repeat(before[first], np.diff(np.append(first, len(rows))))
    return summed


def is_last(rows: Indices) -> Mask:
    """Whether no place behind has the same row, for each place."""
    last = np.zeros(len(rows), np.bool_)
    last[len(rows) - 1 - np.unique(rows[::-1], return_index=True)[1]] = True
    return last


def places_by_number(numbers: Int64s) -> Sequence[Indices]:
    """The places of each number that there is, lowest number first; those of one number in their order."""
    order = stable_order(numbers)
    return np.split(order, np.flatnonzero(np.diff(numbers[order])) + 1)
