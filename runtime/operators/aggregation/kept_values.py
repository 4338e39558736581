"""Aggregates that keep values: all of them, or each once."""

from __future__ import annotations

from typing import Any, Self

import numpy as np
import pyarrow as pa

from onceflow.runtime.operators.aggregation.accumulator import Arrivals
from onceflow.runtime.records import Indices
from onceflow.runtime.state.table import Frozen, LiveRows

_NAN = float("nan")
"""One object for all of them: as values of a set they are the same only so."""


class ValueLists:
    """All values of each row, in the order in which they came. A row without any is null."""

    def __init__(self, arrow: pa.DataType) -> None:
        self._type = pa.list_(arrow)
        self._lists: list[list[Any] | None] = []
        """A list is only appended to: what a snapshot has of it are its first values."""

    def grow(self, size: int) -> None:
        self._lists.extend([None] * (size - len(self._lists)))

    def update(self, arrivals: Arrivals) -> None:
        assert arrivals.values is not None
        for row, value in zip(arrivals.rows.tolist(), arrivals.values.to_pylist(), strict=True):
            self._append(row, [value])

    def merge(self, rows: Indices, other: Self, other_rows: Indices) -> None:
        for row, other_row in zip(rows.tolist(), other_rows.tolist(), strict=True):
            more = other._lists[other_row]
            if more is not None:
                self._append(row, more)

    def results(self, rows: Indices) -> pa.Array:
        return pa.array([self._lists[row] for row in rows.tolist()], self._type)

    def clear(self, rows: Indices) -> None:
        for row in rows.tolist():
            self._lists[row] = None

    def keep(self, rows: Indices) -> None:
        lists = self._lists
        self._lists = [lists[row] for row in rows.tolist()]

    def freeze(self, live: LiveRows) -> Frozen:
        lists, arrow, of = live.copied(self._lists), self._type, live.all()
        lengths = [0 if (values := self._lists[row]) is None else len(values) for row in of.tolist()]

        def frozen(rows: Indices) -> pa.Array:
            counts = (lengths[place] for place in np.searchsorted(of, rows).tolist())
            pairs = zip(lists(rows), counts, strict=True)
            return pa.array([None if values is None else values[:n] for values, n in pairs], arrow)

        return frozen

    def load(self, rows: Indices, state: pa.Array) -> None:
        for row, values in zip(rows.tolist(), state.to_pylist(), strict=True):
            if values is not None:
                self._append(row, values)

    def _append(self, row: int, values: list[Any]) -> None:
        mine = self._lists[row]
        if mine is None:
            self._lists[row] = values.copy()
        else:
            mine.extend(values)


class DistinctValues(ValueLists):
    """Each value of each row once; the result is how many there are."""

    def __init__(self, arrow: pa.DataType) -> None:
        super().__init__(arrow)
        self._seen: list[set[Any] | None] = []

    def grow(self, size: int) -> None:
        super().grow(size)
        self._seen.extend([None] * (size - len(self._seen)))

    def results(self, rows: Indices) -> pa.Array:
        return pa.array([len(self._seen[row] or ()) for row in rows.tolist()], pa.int64())

    def clear(self, rows: Indices) -> None:
        super().clear(rows)
        for row in rows.tolist():
            self._seen[row] = None

    def keep(self, rows: Indices) -> None:
        super().keep(rows)
        seen = self._seen
        self._seen = [seen[row] for row in rows.tolist()]

    def _append(self, row: int, values: list[Any]) -> None:
        seen = self._seen[row]
        if seen is None:
            seen = self._seen[row] = set()
        new = []
        for value in values:
            value = _NAN if value != value else value
            if value not in seen:
                seen.add(value)
                new.append(value)
        super()._append(row, new)
