"""Raw and Text: a value as it is, in one column."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from onceflow.connectors.formats.format import (
    BadValue,
    Decoded,
    Decoder,
    Encoder,
    Values,
    as_binary,
    as_list,
    rows_without_columns,
)
from onceflow.runtime.errors import GraphError
from onceflow.runtime.explained_calls import explained
from onceflow.runtime.nearest import nearest

_BINARY = (pa.binary(), pa.large_binary())
_TEXT = (pa.string(), pa.large_string())


@explained
@dataclass(frozen=True)
class Raw:
    """The bytes themselves, in one binary column. A missing value (a tombstone) is null, and
    null is written as no value. Writing takes that column of the rows and leaves the others out."""

    column: str = "value"

    @property
    def schema(self) -> pa.Schema:
        return pa.schema([pa.field(self.column, pa.binary())])

    @property
    def record_type(self) -> type | None:
        return None

    def decoder(self, columns: frozenset[str] | None = None) -> Decoder:
        return _RawDecoder(_columns(self.schema, columns))

    def encoder(self, schema: pa.Schema) -> Encoder:
        return _ColumnEncoder(self.column, schema, _BINARY, "Raw")


@explained
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
        return _TextDecoder(_columns(self.schema, columns))

    def encoder(self, schema: pa.Schema) -> Encoder:
        return _ColumnEncoder(self.column, schema, _TEXT, "Text")


def _columns(schema: pa.Schema, wanted: frozenset[str] | None) -> pa.Schema:
    return pa.schema([f for f in schema if wanted is None or f.name in wanted])


def _batch(schema: pa.Schema, values: Values) -> pa.RecordBatch:
    """Raises ArrowInvalid for what is not UTF-8 if the column is text."""
    if not len(schema):
        return rows_without_columns(len(values))
    return pa.RecordBatch.from_arrays([as_binary(values).cast(schema.types[0])], schema=schema)


class _RawDecoder:
    def __init__(self, schema: pa.Schema) -> None:
        self._schema = schema

    @property
    def schema(self) -> pa.Schema:
        return self._schema

    def decode(self, values: Values) -> Decoded:
        return Decoded(_batch(self._schema, values), None)


class _TextDecoder:
    def __init__(self, schema: pa.Schema) -> None:
        self._schema = schema

    @property
    def schema(self) -> pa.Schema:
        return self._schema

    def decode(self, values: Values) -> Decoded:
        """Decode all values at once; one by one only if one of them is bad."""
        try:
            return Decoded(_batch(self._schema, values), None)
        except pa.ArrowInvalid:
            return self._decode_one_by_one(as_list(values))

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
        return Decoded(_batch(self._schema, [values[row] for row in rows]), np.array(rows, np.int64), bad)


class _ColumnEncoder:
    """Encodes one column, as bytes."""

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
        return array.view(
            pa.large_binary() if array.type in (pa.large_string(), pa.large_binary()) else pa.binary()
        )
