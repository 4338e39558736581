"""Columns that are not in a file, since all its rows have one value: those by which tables are cut. Pure."""

from __future__ import annotations

from collections.abc import Mapping

import pyarrow as pa
import pyarrow.compute as pc


def with_constants(
    batch: pa.RecordBatch, constants: Mapping[str, str | None], schema: pa.Schema
) -> pa.RecordBatch:
    """The batch of a file with the columns of `schema`, in its order; those in `constants` by their texts.

    Raises pa.ArrowInvalid for a text that is none of the column's type.
    """
    arrays = [
        constant(constants[field.name], field.type, batch.num_rows)
        if field.name in constants
        else batch.column(field.name)
        for field in schema
    ]
    return pa.RecordBatch.from_arrays(arrays, schema=schema)


def constant(text: str | None, of: pa.DataType, rows: int) -> pa.Array:
    """A column of one value, that a text stands for as tables write it: `true`, `2026-11-27`, and times in
    UTC as `2026-11-27 12:00:00.000000`."""
    if text is None:
        return pa.nulls(rows, of)
    texts = pa.array([text])
    if pa.types.is_timestamp(of):
        values = texts.cast(pa.timestamp("us"))
        values = pc.assume_timezone(values, "UTC").cast(of) if of.tz else values.cast(of)
    else:
        values = texts.cast(of)
    return pa.repeat(values[0], rows)
