"""Cells of CSV as values, in files and in messages alike."""

from __future__ import annotations

import pyarrow as pa
import pyarrow.csv as pa_csv

from onceflow.runtime.arrays.timestamps import timestamps_of_texts


def cells_of(schema: pa.Schema) -> pa_csv.ConvertOptions:
    """How Arrow reads the cells of these columns; `typed_cells` completes each. An empty cell is null, unless
    it is in quotes."""
    return pa_csv.ConvertOptions(
        # Arrow refuses a timestamp that has more digits than its column.
        column_types={f.name: pa.string() if pa.types.is_timestamp(f.type) else f.type for f in schema},
        include_columns=schema.names,
        null_values=[""],
        strings_can_be_null=True,
        quoted_strings_can_be_null=False,
    )


def typed_cells(cells: pa.Array, field: pa.Field) -> pa.Array:
    """A column as the schema has it. Raises pa.ArrowInvalid for a cell that is no value of it."""
    if not pa.types.is_timestamp(field.type):
        return cells
    try:
        return timestamps_of_texts(cells, field.type)
    except pa.ArrowInvalid as error:
        raise pa.ArrowInvalid(f"column {field.name!r}: {error}") from error
