"""Arrow's plain types for those that other libraries hand out."""

from __future__ import annotations

from collections.abc import Callable

import pyarrow as pa


def plain_type(arrow: pa.DataType) -> pa.DataType:
    """Arrow's plain type for what polars and others hand out: string for large_string, list for large_list,
    ..."""
    t = pa.types
    plain: list[tuple[Callable[[pa.DataType], bool], pa.DataType]] = [
        (t.is_large_string, pa.string()),
        (t.is_string_view, pa.string()),
        (t.is_large_binary, pa.binary()),
        (t.is_binary_view, pa.binary()),
    ]
    for is_kind, instead in plain:
        if is_kind(arrow):
            return instead
    if t.is_dictionary(arrow):
        return plain_type(arrow.value_type)
    if t.is_large_list(arrow) or t.is_list(arrow):
        return pa.list_(arrow.value_field.with_type(plain_type(arrow.value_type)))
    if t.is_struct(arrow):
        return pa.struct([f.with_type(plain_type(f.type)) for f in arrow])
    return arrow


def plain_schema(schema: pa.Schema) -> pa.Schema:
    """The schema with plain types, and without what its metadata say of another library."""
    return pa.schema([field.with_type(plain_type(field.type)).remove_metadata() for field in schema])
