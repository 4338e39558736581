"""RowCodec: rows of a table as bytes, one by one, and back. The bytes never outlive their process."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec
import pyarrow as pa

from onceflow.runtime.state.operator_state import KEY_GROUP_COLUMN
from onceflow.runtime.state.plain_values import array_of_plain, plain_values


class RowCodec:
    """Rows as `KeyedTable.freeze` gives them, without the key group, which is in their hash.

    A column may be missing from some batches, since a table leaves out those in which nothing is: it is empty
    in their rows then. What it is of is known from the first batch that has it.
    """

    def __init__(self, names: Sequence[str], types: Mapping[str, pa.DataType] | None = None) -> None:
        """`names`: of all columns that there can be, in their order."""
        self._names = list(names)
        self._types = dict(types or {})
        self._encoder = msgspec.msgpack.Encoder()
        self._decoder = msgspec.msgpack.Decoder(list[Any])

    def learn(self, schema: pa.Schema) -> None:
        """Take note of what the columns are of."""
        for field in schema:
            if field.name != KEY_GROUP_COLUMN:
                assert field.name in self._names, field.name
                assert self._types.setdefault(field.name, field.type) == field.type, field

    def frozen(self) -> RowCodec:
        """This codec as it is now, for another thread."""
        return RowCodec(self._names, self._types)

    def encode(self, batch: pa.RecordBatch) -> list[bytes]:
        self.learn(batch.schema)
        encode = self._encoder.encode
        return [encode(row) for row in self.plain_rows(batch)]

    def plain_rows(self, batch: pa.RecordBatch) -> list[tuple[Any, ...]]:
        """The rows before they are bytes."""
        there = set(batch.schema.names)
        nothing = [None] * batch.num_rows
        columns = [plain_values(batch.column(n)) if n in there else nothing for n in self._names]
        return list(zip(*columns, strict=True))

    def decode(self, rows: Sequence[bytes]) -> dict[str, pa.Array]:
        """The columns that are known, by their names."""
        decode = self._decoder.decode
        columns = list(zip(*map(decode, rows), strict=True)) if rows else [()] * len(self._names)
        return {
            name: array_of_plain(_filled(values, self._types[name]), self._types[name])
            for name, values in zip(self._names, columns, strict=True)
            if name in self._types
        }

    def completed(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """The batch with all columns that are known: those it has not are empty."""
        columns = {KEY_GROUP_COLUMN: batch.column(KEY_GROUP_COLUMN)}
        for name in self._names:
            if name in batch.schema.names:
                columns[name] = batch.column(name)
            elif name in self._types:
                of = self._types[name]
                columns[name] = array_of_plain(_filled([None] * batch.num_rows, of), of)
        return pa.RecordBatch.from_pydict(columns)


def _filled(values: Sequence[Any], of: pa.DataType) -> Sequence[Any]:
    """A column that was left out is one of empty lists, if it is one of lists."""
    if pa.types.is_list(of):
        return [() if value is None else value for value in values]
    return values
