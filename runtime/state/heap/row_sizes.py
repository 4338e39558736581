"""RowSizes: about how much memory a row of a table takes, from a sample of its rows."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from onceflow.runtime.state.columns import is_word
from onceflow.runtime.state.grouped_table import KeyedGroups
from onceflow.runtime.state.heap.heap_table import HeapTable
from onceflow.runtime.state.operator_state import KEY_GROUP_COLUMN
from onceflow.runtime.state.plain_values import plain_values
from onceflow.runtime.state.table import CompactColumn, LiveRows

SAMPLE_ROWS = 128
_ROW_BYTES = 160
"""What a row takes beside its values: in the index, in the columns, and in the copy that a snapshot makes of
them (measured with benchmarks/state_backends.py)."""
_GROWTH = 8
"""A new sample when there is so much more: one part of so many."""
_CALLS_MAX = 256
"""A new sample after so many questions at the latest: rows may grow that are there."""


class RowSizes:
    """Asked after every batch; looks at rows now and then."""

    def __init__(self, table: HeapTable | KeyedGroups, of_objects: float = 1.0) -> None:
        """`of_objects`: how much memory Python objects take, for each byte of theirs."""
        self._table = table
        self._of_objects = of_objects
        self._row_bytes = 0
        self._next_rows = SAMPLE_ROWS
        self._calls = 0
        self._random = np.random.default_rng(0)

    def memory_bytes(self) -> int:
        """What all rows take, about."""
        rows = len(self._table)
        self._calls += 1
        if rows and (rows >= self._next_rows or self._calls >= _CALLS_MAX or not self._row_bytes):
            self._next_rows = max(SAMPLE_ROWS, rows + rows // _GROWTH)
            self._calls = 0
            self._row_bytes = self._sampled()
        return rows * self._row_bytes

    def rows_in(self, memory_bytes: int) -> int:
        """How many rows take so much, about; at least one."""
        return max(1, memory_bytes // max(_ROW_BYTES, self._row_bytes))

    def _sampled(self) -> int:
        live = self._table.live_rows().all()
        count = min(SAMPLE_ROWS, len(live))
        if not count:
            return _ROW_BYTES
        sample = np.sort(self._random.choice(live, count, replace=False))
        batch = self._table.freeze_rows(LiveRows(self._table.size, sample), 1).piece(0, count)
        taken = 0
        for field, array in zip(batch.schema, batch.columns, strict=True):
            if field.name != KEY_GROUP_COLUMN:
                lies_in_arrow = self._lies_in_arrow(field.name, field.type)
                in_objects = 0 if lies_in_arrow else deep_bytes(plain_values(array))
                taken += array.nbytes if lies_in_arrow else int(in_objects * self._of_objects)
        return _ROW_BYTES + taken // count

    def _lies_in_arrow(self, name: str, of: pa.DataType) -> bool:
        """Whether a column of a snapshot is as large as what the table has in memory. Keys and starts are."""
        column = self._table.columns.get(name)
        if column is None:
            return True
        return isinstance(column, CompactColumn) and column.has_numbers_only and _is_of_words(of)


def _is_of_words(of: pa.DataType) -> bool:
    return all(_is_of_words(field.type) for field in of) if pa.types.is_struct(of) else is_word(of)


def deep_bytes(values: Sequence[Any]) -> int:
    """What plain values take, and what is in them; the sequence itself left out."""
    total = 0
    for value in values:
        total += sys.getsizeof(value) if value is not None else 0
        if isinstance(value, list | tuple):
            total += deep_bytes(value)
    return total
