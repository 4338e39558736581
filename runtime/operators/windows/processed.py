"""What a function of a whole window is called with: the key, the window, and the window's records."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pyarrow as pa

from onceflow.runtime.operators.stateless import FlatMapRecords
from onceflow.runtime.operators.triggers.bounds import WindowBounds
from onceflow.runtime.types.records_of_columns import RecordReader


class WindowReader:
    """Reads rows of a window's collected records as (key, window, records). Made when the graph is built."""

    def __init__(self, keys: Sequence[str], bounds: Sequence[str], rows: str, reader: RecordReader) -> None:
        """`keys`: the key columns; `bounds`: those of the window's start and end, none if it has no bounds;
        `rows`: the column that is the list of the window's rows, as structs; `reader`: makes records."""
        self._keys, self._bounds, self._rows, self._reader = keys, bounds, rows, reader

    @property
    def columns(self) -> tuple[str, ...]:
        return (*self._keys, *self._bounds, self._rows)

    @property
    def type_name(self) -> str:
        return self._reader.type_name

    def read(self, batch: pa.RecordBatch) -> list[tuple[Any, WindowBounds | None, list[Any]]]:
        """One for each row. The key is the value of the only key column, a tuple of the values of several,
        None without any."""
        nothing = [None] * batch.num_rows
        lists = batch.column(self._rows)
        flat = self._reader.read(pa.RecordBatch.from_struct_array(lists.flatten()))
        ends = lists.value_lengths().to_numpy(zero_copy_only=False).cumsum().tolist()
        records = [flat[start:end] for start, end in zip([0, *ends], ends, strict=False)]
        columns = [batch.column(name).to_pylist() for name in self._keys]
        keys = columns[0] if len(columns) == 1 else zip(*columns, strict=True) if columns else nothing
        bounds = [batch.column(name).to_pylist() for name in self._bounds]
        windows = map(WindowBounds, *bounds) if bounds else nothing
        return list(zip(keys, windows, records, strict=True))


class ProcessWindows(FlatMapRecords):
    """Any number of records out for each window that fires: `fn(key, window, records)`."""

    @property
    def _call(self) -> Callable[[Any], Any]:
        fn = self._fn
        return lambda fired: fn(*fired)
