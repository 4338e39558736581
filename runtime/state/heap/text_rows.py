"""TextRows: rows of texts that are appended and read by number, end to end in memory of their own.

The fast twin of ArrowRows, for keys that are texts only. Needs kernels. A text is copied once, when it comes,
and once for each time that it is asked for, if not with many of its neighbours; growing copies few of them,
and freezing none: what lies there stays as it is until `keep`, which leaves alone what somebody can see.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from onceflow.runtime.arrays.offsets import offsets_of
from onceflow.runtime.records import Indices, Int64s, Mask
from onceflow.runtime.state.columns import GrowableColumn, null_mask
from onceflow.runtime.state.heap.row_runs import run_of

_PIECE_ROWS = 1 << 18
_VIEW_ROWS_MIN = 4_096
"""The fewest neighbours of which there is a view instead of a copy: a view keeps all memory of its column
from being used again."""
_TEXT_BYTES_MAX = (1 << 31) - 1


def are_texts(schema: pa.Schema) -> bool:
    """Whether TextRows can hold such rows."""
    return all(_is_text(field.type) for field in schema)


@dataclass(frozen=True, slots=True)
class _Texts:
    """Texts of one column. Those that are there do not change."""

    arrow: pa.DataType
    bounds: Int64s
    """Text i lies between the i-th and the next."""
    memory: Any
    """uint8; 32 more bytes than texts."""
    is_null: Mask | None

    def take(self, rows: Indices) -> pa.Array:
        """These texts, in this order; of many neighbours a view."""
        run = run_of(rows) if len(rows) >= _VIEW_ROWS_MIN else None
        return self.copy(rows) if run is None else self._view(run)

    def copy(self, rows: Indices) -> pa.Array:
        """Take these texts as `take` does, in memory of their own."""
        from onceflow.runtime.kernels import taking

        offsets = np.zeros(len(rows) + 1, self._offset_type)
        total = taking.measure_texts(self.bounds, rows, offsets)
        self._check(total)
        texts = np.empty(total + taking.SLACK, np.uint8)
        data, data_end = self.memory.ctypes.data, self.memory.ctypes.data + len(self.memory)
        taking.copy_texts(self.bounds, data, data_end, rows, offsets, texts.ctypes.data)
        return self._array(offsets, texts, None if self.is_null is None else self.is_null.take(rows))

    def _view(self, run: slice) -> pa.Array:
        from onceflow.runtime.kernels import taking

        bounds = self.bounds[run.start : run.stop + 1]
        first, end = int(bounds[0]), int(bounds[-1])
        self._check(end - first)
        offsets = (bounds - first).astype(self._offset_type, copy=False)
        texts = self.memory[first : end + taking.SLACK]
        return self._array(offsets, texts, None if self.is_null is None else self.is_null[run])

    def _array(self, offsets: npt.NDArray[Any], texts: npt.NDArray[np.uint8], nulls: Mask | None) -> pa.Array:
        validity = None if nulls is None or not nulls.any() else pa.array(~nulls).buffers()[1]
        buffers = [validity, pa.py_buffer(offsets), pa.py_buffer(texts)]
        return pa.Array.from_buffers(self.arrow, len(offsets) - 1, buffers)

    @property
    def _offset_type(self) -> type[np.int64] | type[np.int32]:
        return np.int64 if _is_large(self.arrow) else np.int32

    def _check(self, total: int) -> None:
        assert _is_large(self.arrow) or total <= _TEXT_BYTES_MAX, "more than 2 GiB of keys at once"


class _TextColumn:
    """The texts of one column, and room for more."""

    def __init__(self, arrow: pa.DataType) -> None:
        self._arrow = arrow
        self._bounds = GrowableColumn(np.int64, is_overwritten=True)
        self._bounds.grow(1)
        self._memory = GrowableColumn(np.uint8, is_overwritten=True)
        self._is_null: GrowableColumn | None = None
        """None as long as there was no null."""

    def __len__(self) -> int:
        return len(self._bounds) - 1

    def append(self, array: pa.Array, rows: Indices) -> None:
        from onceflow.runtime.kernels import taking

        before, after = len(self), len(self) + len(rows)
        data, bounds = array.buffers()[2], offsets_of(array)
        self._bounds.grow(after + 1)
        new_bounds = self._bounds.values[before : after + 1]
        address, size = (0, 0) if data is None else (data.address, data.size)

        def placed(room: int) -> int:
            self._memory.reserve(room + taking.SLACK)
            target = self._memory.values.ctypes.data
            return int(taking.place_texts(bounds, address, address + size, rows, new_bounds, target, room))

        end = placed(len(self._memory) + int(bounds[-1] - bounds[0]))
        if end < 0:  # rows that come twice need more than the batch has
            end = placed(taking.measure_texts(bounds, rows, new_bounds))
        self._memory.grow(end)
        self._append_nulls(array, rows)

    def texts(self) -> _Texts:
        """What is there now."""
        is_null = None if self._is_null is None else self._is_null.used()
        return _Texts(self._arrow, self._bounds.used(), self._memory.values[:], is_null)

    def keep(self, rows: Indices) -> None:
        texts = self.texts()
        kept = [texts.copy(rows[i : i + _PIECE_ROWS]) for i in range(0, len(rows), _PIECE_ROWS)]
        del texts
        self._bounds.clear(len(rows) + 1)
        self._bounds.grow(1)
        self._bounds.values[0] = 0
        self._memory.clear(sum(array.nbytes for array in kept))
        self._is_null = None
        for array in kept:
            self.append(array, np.arange(len(array)))

    def _append_nulls(self, array: pa.Array, rows: Indices) -> None:
        nulls = null_mask(array)
        if nulls is None and self._is_null is None:
            return
        if self._is_null is None:
            self._is_null = GrowableColumn(np.bool_)
        self._is_null.grow(len(self))
        if nulls is not None:
            self._is_null.values[len(self) - len(rows) : len(self)] = nulls.take(rows)


class FrozenTextRows:
    """Rows as they were."""

    def __init__(self, schema: pa.Schema, columns: list[_Texts]) -> None:
        self._schema = schema
        self._columns = columns

    def take(self, rows: Indices) -> pa.RecordBatch:
        """These rows, in this order."""
        return pa.RecordBatch.from_arrays([c.take(rows) for c in self._columns], schema=self._schema)


class TextRows:
    """See above. One thread; what is frozen, any."""

    def __init__(self, schema: pa.Schema) -> None:
        self._schema = schema
        self._columns = [_TextColumn(field.type) for field in schema]
        if len(schema):  # have the kernels for these columns ready, so that no record waits for the compiler
            texts = [pa.array([""], field.type) for field in schema]
            self.append(pa.RecordBatch.from_arrays(texts, schema=schema), np.zeros(1, np.int64))
            self.take(np.zeros(1, np.int64))
            self.keep(np.zeros(0, np.int64))

    def __len__(self) -> int:
        return len(self._columns[0])

    def append(self, batch: pa.RecordBatch, rows: Indices) -> None:
        """Add these rows of the batch, which has more columns and others, at the end."""
        if len(rows):
            for field, column in zip(self._schema, self._columns, strict=True):
                column.append(batch.column(field.name), rows)

    def frozen(self) -> FrozenTextRows:
        """These rows as they are now, for another thread; nothing is copied."""
        return FrozenTextRows(self._schema, [column.texts() for column in self._columns])

    def take(self, rows: Indices) -> pa.RecordBatch:
        """These rows, in this order."""
        return self.frozen().take(rows)

    def keep(self, rows: Indices) -> None:
        """Keep these rows only, in this order."""
        for column in self._columns:
            column.keep(rows)


def _is_text(arrow: pa.DataType) -> bool:
    return bool(pa.types.is_string(arrow) or pa.types.is_binary(arrow) or _is_large(arrow))


def _is_large(arrow: pa.DataType) -> bool:
    return bool(pa.types.is_large_string(arrow) or pa.types.is_large_binary(arrow))
