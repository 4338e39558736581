"""Raw and Text: a value as it is, in one column."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from onceflow.connectors.formats.format import BadValue, Decoded, Decoder, Encoder
from onceflow.runtime.errors import GraphError
from onceflow.runtime.types import nearest

_BINARY = (pa.binary(), pa.large_binary())
_TEXT = (pa.string(), pa.large_string())


@dataclass(frozen=True)
class Raw:
    """The bytes themselves, in one binary column. A value that is not there (a tombstone) is null, and
    null is written as no value. Writing takes that column of the rows and leaves the others out."""

    column: str = "value"

    @property
    def schema(self) -> pa.Schema:
        return pa.schema([pa.field(self.column, pa.binary())])

    @property
    def record_type(self) -> type | None:
        return None

    def decoder(self, columns: frozenset[str] | None = None) -> Decoder:
        return _RawDecoder(self.schema)

    def encoder(self, schema: pa.Schema) -> Encoder:
        return _ColumnEncoder(self.column, schema, _BINARY, "Raw")


@dataclass(frozen=True)
class Text:
    """UTF-8 text in one string column; bytes that are not UTF-8 are a bad value. Null as in Raw."""

    column: str = "value"

    @property
    def schema(self) -> pa.Schema:
        return pa.schema([pa.field(self.column, pa.string())])

    @property
    def record_type(self) -> type | None:
        return None

    def decoder(self, columns: frozenset[str] | None = None) -> Decoder:
        return _TextDecoder(self.schema)

    def encoder(self, schema: pa.Schema) -> Encoder:
        return _ColumnEncoder(self.column, schema, _TEXT, "Text")


class _RawDecoder:
    def __init__(self, schema: pa.Schema) -> None:
        self._schema = schema

    @property
    def schema(self) -> pa.Schema:
        return self._schema

    def decode(self, values: Sequence[bytes | None]) -> Decoded:
        return Decoded(pa.RecordBatch.from_arrays([pa.array(values, pa.binary())], schema=self._schema), None)


class _TextDecoder:
    def __init__(self, schema: pa.Schema) -> None:
        self._schema = schema

    @property
    def schema(self) -> pa.Schema:
        return self._schema

    def decode(self, values: Sequence[bytes | None]) -> Decoded:
        try:  # the cast checks that it is UTF-8
            return Decoded(self._batch(values), None)
        except pa.ArrowInvalid:
            return self._decode_one_by_one(values)

    def _decode_one_by_one(self, values: Sequence[bytes | None]) -> Decoded:
        rows: list[int] = []
        bad: list[BadValue] = []
        for row, value in enumerate(values):
            try:
                if value is not None:
                    value.decode()
            except UnicodeDecodeError as error:
                bad.append(BadValue(row, f"it is not UTF-8: {error.reason} at byte {error.start}"))
            else:
                rows.append(row)
        return Decoded(self._batch([values[row] for row in rows]), np.array(rows, np.int64), bad)

    def _batch(self, values: Sequence[bytes | None]) -> pa.RecordBatch:
        return pa.RecordBatch.from_arrays(
            [pa.array(values, pa.binary()).cast(pa.string())], schema=self._schema
        )


class _ColumnEncoder:
    """One column, as bytes."""

    def __init__(self, column: str, schema: pa.Schema, types: tuple[pa.DataType, ...], name: str) -> None:
        if column not in schema.names:
            raise GraphError(
                f"{name}({column!r}) writes the column {column!r}, which the rows don't have"
                f"{nearest(column, schema.names)}; they have {', '.join(schema.names)}"
            )
        arrow = schema.field(column).type
        if arrow not in types:
            raise GraphError(f"{name} writes {types[0]} columns; {column!r} is {arrow}")
        self._column = column

    def encode(self, batch: pa.RecordBatch) -> pa.Array:
        array = batch.column(self._column)
        return array.cast(
            pa.large_binary() if array.type in (pa.large_string(), pa.large_binary()) else pa.binary()
        )
