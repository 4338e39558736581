"""RowCopies: a row of columns that is kept beside each window, if one was put there."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from onceflow.runtime.records import Indices, Mask
from onceflow.runtime.state.number_columns import FlagColumn
from onceflow.runtime.state.table import Frozen, LiveRows
from onceflow.runtime.state.values import value_column


class RowCopies:
    """A RowColumn: in a snapshot a struct of these columns, null where nothing was put."""

    def __init__(self, schema: pa.Schema) -> None:
        self._schema = schema
        self._fields = [field.with_nullable(True) for field in schema]
        self._has = FlagColumn()
        self._values = [value_column(field.type) for field in schema]

    def has(self, rows: Indices) -> Mask:
        """Whether something was put there."""
        return self._has.of(rows)

    def put(self, rows: Indices, batch: pa.RecordBatch) -> None:
        """Keep these, each row given once, in the place of what is there."""
        self._has.put(rows, True)
        for values, column in zip(self._values, batch.columns, strict=True):
            values.clear(rows)
            values.put(rows, column)

    def take(self, rows: Indices) -> pa.RecordBatch:
        """What is kept there; asked for rows that have something."""
        return pa.RecordBatch.from_arrays([values.take(rows) for values in self._values], schema=self._schema)

    def take_column(self, place: int, rows: Indices) -> pa.Array:
        """One column of what is kept there, by its place in the schema."""
        return self._values[place].take(rows)

    def to_list(self, rows: Indices) -> list[dict[str, Any] | None]:
        """The same as dictionaries; None where nothing was put."""
        kept = pa.RecordBatch.from_arrays(
            [values.take(rows) for values in self._values], schema=pa.schema(self._fields)
        )
        has = self.has(rows).tolist()
        return [row if is_there else None for row, is_there in zip(kept.to_pylist(), has, strict=True)]

    def grow(self, size: int) -> None:
        self._has.grow(size)
        for values in self._values:
            values.grow(size)

    def clear(self, rows: Indices) -> None:
        self._has.clear(rows)
        for values in self._values:
            values.clear(rows)

    def keep(self, rows: Indices) -> None:
        self._has.keep(rows)
        for values in self._values:
            values.keep(rows)

    def freeze(self, live: LiveRows) -> Frozen | None:
        has = self._has.freeze(live)
        if has is None:
            return None
        frozen = [values.freeze(live) for values in self._values]

        def struct(rows: Indices) -> pa.Array:
            arrays = [values(rows) for values in frozen]
            is_null = pc.invert(has(rows))
            return pa.StructArray.from_arrays(arrays, fields=self._fields, mask=is_null)

        return struct

    def load(self, rows: Indices, values: pa.Array) -> None:
        is_there = values.is_valid()
        batch = pa.RecordBatch.from_struct_array(values.filter(is_there))
        self.put(rows[is_there.to_numpy(zero_copy_only=False)], batch)
