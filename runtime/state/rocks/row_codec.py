"""RowCodec: rows of a table as bytes, one by one, and back. The bytes never outlive their process."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import pyarrow as pa

from onceflow.runtime.records import UInt64s
from onceflow.runtime.state.hashing import without_start
from onceflow.runtime.state.key_groups import key_groups_of
from onceflow.runtime.state.operator_state import KEY_GROUP_COLUMN
from onceflow.runtime.state.plain_values import column_of_nothing
from onceflow.runtime.state.rocks.packed_rows import NUMBER_BYTES, PackedRows


class RowCodec:
    """Rows as `KeyedTable.freeze` gives them, without the key group, which is in their hash.

    A column may be missing from some batches, since a table leaves out those in which nothing is: it is empty
    in their rows then. What it is of is known from the first batch that has it. A row has the columns that
    were known when it was encoded, and begins with their number.
    """

    def __init__(self, names: Sequence[str], types: Mapping[str, pa.DataType] | None = None) -> None:
        """`names`: of all columns that there can be, in their order."""
        self._names = list(names)
        self._types = dict(types or {})
        self._layouts: dict[int, tuple[list[str], PackedRows]] = {}
        """The columns of rows, by how many were known when these were encoded: none is ever forgotten."""

    def learn(self, schema: pa.Schema) -> None:
        """Take note of what the columns are of."""
        for field in schema:
            if field.name != KEY_GROUP_COLUMN:
                assert field.name in self._names, field.name
                assert self._types.setdefault(field.name, field.type) == field.type, field

    def frozen(self) -> RowCodec:
        """This codec as it is now, for another thread."""
        twin = RowCodec(self._names, self._types)
        twin._layouts = self._layouts.copy()
        return twin

    def encode(self, batch: pa.RecordBatch) -> list[bytes]:
        self.learn(batch.schema)
        names, packed = self._layout()
        there = set(batch.schema.names)
        columns = [
            batch.column(n) if n in there else column_of_nothing(batch.num_rows, self._types[n])
            for n in names
        ]
        return packed.pack(columns)

    def decode(self, rows: Sequence[bytes]) -> dict[str, pa.Array]:
        """The columns that are known, by their names."""
        begins = {row[:NUMBER_BYTES] for row in rows}
        if len(begins) > 1:
            return self._decode_mixed(rows)
        names, packed = self._layouts[_number(begins.pop())] if begins else self._layout()
        found = dict(zip(names, packed.unpack(rows), strict=True))
        return {
            name: found[name] if name in found else column_of_nothing(len(rows), self._types[name])
            for name in self._names
            if name in self._types
        }

    def rows(
        self, rows: Sequence[bytes], hashes: UInt64s, start_column: str | None, max_parallelism: int
    ) -> pa.RecordBatch:
        """The rows as `freeze` gives them, with all columns that are known; `hashes`: the first half of their
        ids."""
        columns = self.decode(rows)
        if start_column is not None:
            hashes = without_start(hashes, columns[start_column].to_numpy())
        groups = pa.array(key_groups_of(hashes, max_parallelism))
        return pa.RecordBatch.from_pydict({KEY_GROUP_COLUMN: groups, **columns})

    def completed(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """The batch with all columns that are known: those it has not are empty."""
        columns = {KEY_GROUP_COLUMN: batch.column(KEY_GROUP_COLUMN)}
        for name in self._names:
            if name in batch.schema.names:
                columns[name] = batch.column(name)
            elif name in self._types:
                columns[name] = column_of_nothing(batch.num_rows, self._types[name])
        return pa.RecordBatch.from_pydict(columns)

    def _layout(self) -> tuple[list[str], PackedRows]:
        """The layout of rows with all columns that are known."""
        known = len(self._types)
        if known not in self._layouts:
            names = [name for name in self._names if name in self._types]
            self._layouts[known] = names, PackedRows(known, [self._types[name] for name in names])
        return self._layouts[known]

    def _decode_mixed(self, rows: Sequence[bytes]) -> dict[str, pa.Array]:
        """Decode rows with other columns each."""
        numbers = np.array([_number(row) for row in rows])
        places = [np.flatnonzero(numbers == number) for number in np.unique(numbers).tolist()]
        parts = [self.decode([rows[place] for place in part.tolist()]) for part in places]
        order = pa.array(np.argsort(np.concatenate(places)))
        return {name: pa.concat_arrays([part[name] for part in parts]).take(order) for name in parts[0]}


def _number(row: bytes) -> int:
    return int.from_bytes(row[:NUMBER_BYTES], "little")
