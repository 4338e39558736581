"""Rows as text for people: JSON lines, or a table on a terminal. Values are what the user's types say, not
how columns keep them: a union is the one record that it is, a tuple a list, `Any` the value itself."""

from __future__ import annotations

import datetime as dt
import json
from collections.abc import Iterator, Sequence
from decimal import Decimal
from typing import Any

import msgspec
import pyarrow as pa

from onceflow.connectors.formats import EncodeError, Json
from onceflow.runtime.errors import GraphError
from onceflow.runtime.types import column_forms
from onceflow.runtime.types.column_forms import form_of
from onceflow.runtime.types.decoding import without_zeros

CELL_WIDTH_MAX = 60
"""A longer value is cut in a table: JSON lines have all of it."""


def json_lines(batch: pa.RecordBatch) -> Iterator[str]:
    """A JSON object for each row, as the format Json writes it. Where JSON has no form for a value (NaN, or
    a column of a strange type), the rows of the batch are written as Python shows them."""
    try:
        written = Json().encoder(batch.schema).encode(batch).to_pylist()
    except (EncodeError, GraphError):
        written = None
    if written is None:
        for row in _rows(batch):
            yield json.dumps(row, default=_cell, ensure_ascii=False)
    else:
        for value in written:
            yield msgspec.json.format(value, indent=0).decode()


def table_lines(batch: pa.RecordBatch) -> list[str]:
    """The rows below the names of their columns; numbers to the right."""
    names = batch.schema.names
    columns = [
        [_cell(_value(value, field)) for value in column.to_pylist()]
        for column, field in zip(batch.columns, batch.schema, strict=True)
    ]
    is_number = [
        pa.types.is_integer(t) or pa.types.is_floating(t) or pa.types.is_decimal(t)
        for t in batch.schema.types
    ]
    widths = [max(map(len, [name, *cells])) for name, cells in zip(names, columns, strict=True)]

    def line(cells: Sequence[str]) -> str:
        padded = [
            cell.rjust(width) if right else cell.ljust(width)
            for cell, width, right in zip(cells, widths, is_number, strict=True)
        ]
        return "  ".join(padded).rstrip()

    return [line(names), line(["─" * width for width in widths]), *map(line, zip(*columns, strict=True))]


def _rows(batch: pa.RecordBatch) -> Iterator[dict[str, Any]]:
    columns = [
        [_value(value, field) for value in column.to_pylist()]
        for column, field in zip(batch.columns, batch.schema, strict=True)
    ]
    for values in zip(*columns, strict=True):
        yield dict(zip(batch.schema.names, values, strict=True))


def _value(value: Any, field: pa.Field) -> Any:
    """What a user calls this value, made of lists, dicts and single values."""
    if value is None:
        return None
    arrow = field.type
    match form_of(field):
        case column_forms.JSON:
            return json.loads(value)
        case column_forms.NUMBER:
            return without_zeros(value)
        case column_forms.TUPLE:
            return [_value(value[part.name], part) for part in arrow]
        case column_forms.UNION:
            tag = arrow.field(0).name
            return {tag: value[tag], **_value(value[value[tag]], arrow.field(value[tag]))}
    if pa.types.is_struct(arrow):
        return {part.name: _value(value[part.name], part) for part in arrow}
    if pa.types.is_list(arrow) or pa.types.is_large_list(arrow) or pa.types.is_fixed_size_list(arrow):
        return [_value(each, arrow.value_field) for each in value]
    if pa.types.is_map(arrow):
        return {str(key): _value(each, arrow.item_field) for key, each in value}
    return value


def _cell(value: Any) -> str:
    match value:
        case None:
            text = "null"
        case str():
            text = value
        case dict() | list():
            text = json.dumps(value, default=_inner, ensure_ascii=False)
        case _:
            text = _single(value)
    text = " ".join(text.split()) if "\n" in text else text
    return text if len(text) <= CELL_WIDTH_MAX else text[: CELL_WIDTH_MAX - 1] + "…"


def _inner(value: Any) -> Any:
    """A value inside of another that JSON does not know."""
    is_exact = isinstance(value, Decimal) and Decimal(repr(float(value))) == value
    return float(value) if is_exact else _single(value)


def _single(value: Any) -> str:
    match value:
        case dt.datetime():
            return str(value).replace("+00:00", "Z")
        case bytes():
            return value.decode() if value.isascii() and value.decode().isprintable() else f"0x{value.hex()}"
        case _:
            return str(value)
