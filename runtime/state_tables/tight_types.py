"""Types as a program describes them: the usual ones, and not null where nothing is null."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc


def tight(array: pa.Array) -> pa.Array:
    """The same values; fields of structs and items of lists are `not null` where no value is null, however
    deep. A program that allows null there can read them all the same, and one that does not can too."""
    of = array.type
    if pa.types.is_struct(of) and of.num_fields:
        present = array.filter(array.is_valid())
        held = [field.null_count for field in present.flatten()]
        children = [tight(child) for child in array.flatten()]
        fields = [
            pa.field(f.name, child.type, nullable=bool(nulls))
            for f, child, nulls in zip(of, children, held, strict=True)
        ]
        mask = array.is_null() if array.null_count else None
        return pa.StructArray.from_arrays(children, fields=fields, mask=mask)
    if pa.types.is_list(of) or pa.types.is_large_list(of):
        items = tight(pc.list_flatten(array))
        lengths = pc.fill_null(pc.list_value_length(array), 0).to_numpy()
        offsets = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int32)
        item = pa.field("item", items.type, nullable=bool(items.null_count))
        nulls = None if not array.null_count else np.append(array.is_null().to_numpy(False), False)
        return pa.ListArray.from_arrays(pa.array(offsets, mask=nulls), items, type=pa.list_(item))
    return array


def usual_type(of: pa.DataType) -> pa.DataType:
    """The type without what only a library prefers: large texts and lists, views, dictionaries."""
    t = pa.types
    if t.is_struct(of):
        return pa.struct([field.with_type(usual_type(field.type)) for field in of])
    if t.is_list(of) or t.is_large_list(of):
        return pa.list_(pa.field("item", usual_type(of.value_type), of.value_field.nullable))
    if t.is_dictionary(of):
        return usual_type(of.value_type)
    if t.is_large_string(of) or t.is_string_view(of):
        return pa.string()
    if t.is_large_binary(of) or t.is_binary_view(of):
        return pa.binary()
    return of
