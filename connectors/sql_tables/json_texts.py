"""JSON text of a column's values, for columns that take JSON. Pure."""

from __future__ import annotations

from collections.abc import Callable

import pyarrow as pa
import pyarrow.compute as pc

from onceflow.connectors.formats import Json


def json_texts(field: pa.Field) -> Callable[[pa.Array], pa.Array]:
    """What makes the values UTF-8 bytes, null where they are null. Text is taken for JSON as it is, and the
    server reads it."""
    if pa.types.is_string(field.type) or pa.types.is_large_string(field.type):
        return lambda array: array.cast(pa.binary())
    encoder = Json().encoder(pa.schema([pa.field("v", field.type)]))

    def of_value(array: pa.Array) -> pa.Array:
        rows = encoder.encode(pa.record_batch([array], names=["v"]))
        texts = pc.binary_slice(rows, len(b'{"v":'), -1)
        return pc.if_else(pc.is_null(array), pa.scalar(None, pa.binary()), texts.cast(pa.binary()))

    return of_value
