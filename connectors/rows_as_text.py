"""Rows as text for people: JSON lines, or a table on a terminal."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from typing import Any

import pyarrow as pa

CELL_WIDTH_MAX = 60
"""A longer value is cut in a table: JSON lines have all of it."""


def json_lines(batch: pa.RecordBatch) -> Iterator[str]:
    """A JSON object for each row. What JSON does not know (times, bytes, NaN) is written as Python shows
    it."""
    for row in batch.to_pylist(maps_as_pydicts="lossy"):
        yield json.dumps(row, default=_plain, ensure_ascii=False)


def table_lines(batch: pa.RecordBatch) -> list[str]:
    """The rows below the names of their columns; numbers to the right."""
    names = batch.schema.names
    columns = [[_cell(value) for value in column.to_pylist()] for column in batch.columns]
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


def _cell(value: Any) -> str:
    text = "null" if value is None else value if isinstance(value, str) else str(value)
    text = " ".join(text.split()) if "\n" in text else text
    return text if len(text) <= CELL_WIDTH_MAX else text[: CELL_WIDTH_MAX - 1] + "…"


def _plain(value: Any) -> str:
    return value.isoformat() if hasattr(value, "isoformat") else str(value)
