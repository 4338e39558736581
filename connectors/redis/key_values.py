"""Rows as values of Redis keys: a hash with a field for each column, or one JSON text. Pure."""

from __future__ import annotations

from typing import Any, Literal

import msgspec
import pyarrow as pa

from onceflow.connectors.versioned_upserts.backend import Piece
from onceflow.connectors.versioned_upserts.documents import Documents

Form = Literal["hash", "json"]


class RowValues:
    """Makes values of rows of one schema."""

    def __init__(self, schema: pa.Schema, form: Form) -> None:
        """Raises GraphError if a column can't be written."""
        self._documents = Documents(schema)
        self._columns = [_Column(field) for field in schema] if form == "hash" else None

    def of(self, piece: Piece) -> tuple[list[list[Any]], dict[int, str]]:
        """What each key gets, and why rows can't be written, by their places: a name and a value for each
        field of a hash that is not null, or one JSON text; nothing where the row is to be deleted."""
        bad: dict[int, str] = {}
        if self._columns is None:
            documents, bad = self._documents.of(piece.rows)
            values: list[list[Any]] = [[document] for document in documents]
        else:
            values = [[] for _ in range(len(piece))]
            for n, column in enumerate(self._columns):
                texts, why = column.texts(piece.rows.column(n))
                bad.update(why)
                for row, text in zip(values, texts, strict=True):
                    if text is not None:
                        row += (column.name, text)
        for gone in piece.is_gone.nonzero()[0].tolist():
            values[gone] = []
            bad.pop(gone, None)
        return values, bad


class _Column:
    """A column as fields of hashes."""

    def __init__(self, field: pa.Field) -> None:
        self.name = field.name.encode()
        self._is_as_it_is = _holds_text(field.type)
        self._is_number = pa.types.is_integer(field.type) or pa.types.is_floating(field.type)
        self._json = pa.schema([pa.field("v", field.type, metadata=field.metadata)])
        self._documents = Documents(self._json)

    def texts(self, column: pa.Array) -> tuple[list[Any], dict[int, str]]:
        """Text and bytes as they are, numbers in digits, all else as JSON writes it, a text without quotes;
        None for null."""
        if self._is_as_it_is:
            return column.to_pylist(), {}
        if self._is_number:
            return column.cast(pa.string()).to_pylist(), {}
        documents, bad = self._documents.of(pa.record_batch([column], schema=self._json))
        return [_value(document) for document in documents], bad


def _value(document: bytes) -> Any:
    """What stands behind the name in `{"v":...}`."""
    value = document[5:-1]
    if value == b"null" or not value:
        return None
    return msgspec.json.decode(value) if value.startswith(b'"') else value


def _holds_text(of: pa.DataType) -> bool:
    is_ = pa.types
    return bool(is_.is_string(of) or is_.is_large_string(of) or is_.is_binary(of) or is_.is_large_binary(of))
