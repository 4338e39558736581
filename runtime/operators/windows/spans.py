"""Spans: from a batch to the windows that its rows belong to, open ones among them. Pure, in columns.

A span is [start, end) of one key. Spans of new rows and of open windows are given together, and numbered by
the window that they become.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from onceflow.runtime.arrays.sorting import stable_order
from onceflow.runtime.records import Indices, Int64s

_WORD_MAX = 1 << 62


@dataclass(frozen=True, slots=True)
class Grouped:
    """Windows, by key and start."""

    number: Indices
    """The window of each span that was given."""
    key: Indices
    """The key of each window; never falling."""
    start: Int64s
    end: Int64s

    def __len__(self) -> int:
        return len(self.key)


def merge_touching(keys: Indices, starts: Int64s, ends: Int64s) -> Grouped:
    """Spans of a key that overlap or touch are one window, as sessions are."""
    order = _order(keys, starts)
    keys, starts, ends_by_start = keys[order], starts[order], ends[order]
    begins = np.ones(len(order), np.bool_)
    begins[1:] = keys[1:] != keys[:-1]
    reached = _highest_so_far(begins, ends_by_start)
    begins[1:] |= starts[1:] > reached[:-1]
    at = np.flatnonzero(begins)
    return Grouped(_numbers(order, begins), keys[at], starts[at], np.maximum.reduceat(ends_by_start, at))


def join_equal(keys: Indices, starts: Int64s, ends: Int64s) -> Grouped:
    """Spans of a key that end at the same time are one window: those of one kind of fixed windows."""
    order = _order(keys, ends)
    keys, starts, ends = keys[order], starts[order], ends[order]
    begins = np.ones(len(order), np.bool_)
    begins[1:] = (keys[1:] != keys[:-1]) | (ends[1:] != ends[:-1])
    at = np.flatnonzero(begins)
    return Grouped(_numbers(order, begins), keys[at], starts[at], ends[at])


def join_same(keys: Indices, starts: Int64s, ends: Int64s) -> Grouped:
    """Spans of a key with the same start and the same end are one window: whatever windows the user makes."""
    order = np.lexsort((ends, starts, keys))
    keys, starts, ends = keys[order], starts[order], ends[order]
    begins = np.ones(len(order), np.bool_)
    begins[1:] = (keys[1:] != keys[:-1]) | (starts[1:] != starts[:-1]) | (ends[1:] != ends[:-1])
    at = np.flatnonzero(begins)
    return Grouped(_numbers(order, begins), keys[at], starts[at], ends[at])


def _order(keys: Indices, times: Int64s) -> Indices:
    """The order by key, then time; found by one number if that fits."""
    lowest = int(times.min())
    width = int(times.max()) - lowest + 1
    if (int(keys.max()) + 1) * width < _WORD_MAX:
        return stable_order(keys * width + (times - lowest))
    return np.lexsort((times, keys))


def _highest_so_far(is_first_of_key: npt.NDArray[np.bool_], ends: Int64s) -> Int64s:
    """The running maximum within each key: that of all, where each key's numbers are above the last one's."""
    key = np.cumsum(is_first_of_key)
    lowest = int(ends.min())
    width = int(ends.max()) - lowest + 1
    if (int(key[-1]) + 1) * width < _WORD_MAX:
        return np.asarray(np.maximum.accumulate(key * width + (ends - lowest)) - key * width + lowest)
    distinct, place = np.unique(ends, return_inverse=True)
    width = len(distinct)
    return np.asarray(distinct[np.maximum.accumulate(key * width + place) - key * width])


def _numbers(order: Indices, begins: npt.NDArray[np.bool_]) -> Indices:
    numbers = np.empty(len(order), np.int64)
    numbers[order] = np.cumsum(begins) - 1
    return numbers
