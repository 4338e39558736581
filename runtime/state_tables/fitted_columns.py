"""Columns that a user gives, as the files of a state have them: of the same types, and null only where they
may be."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from onceflow.runtime.errors import UsageError
from onceflow.runtime.state.description import type_text
from onceflow.runtime.state_tables.tight_types import usual_type


def fitted(array: pa.Array, of: pa.DataType, where: str) -> pa.Array:
    """The same values in this type, whose numbers may be wider; fields of structs are found by their names.
    Raises UsageError for another type, for fields that are missing or that it does not have, and for a
    number that does not fit."""
    t = pa.types
    if array.type == of:
        return array
    if t.is_null(array.type):
        return pa.nulls(len(array), of)
    if t.is_struct(of) and t.is_struct(array.type):
        return _struct(array, of, where)
    if t.is_list(of) and t.is_list(array.type):
        items = fitted(pc.list_flatten(array), of.value_type, f"an item of {where}")
        lengths = pc.fill_null(pc.list_value_length(array), 0).to_numpy()
        offsets = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int32)
        nulls = np.append(array.is_null().to_numpy(zero_copy_only=False), False) if array.null_count else None
        return pa.ListArray.from_arrays(pa.array(offsets, mask=nulls), items, type=of)
    is_number = any(both(of) and both(array.type) for both in (t.is_integer, t.is_floating))
    if is_number or usual_type(array.type) == usual_type(of):
        return _cast(array, of, where)
    raise UsageError(f"{where} is {type_text(array.type)}, and in the base {type_text(of)}: cast the column")


def check_nulls(array: pa.Array, of: pa.DataType, where: str) -> None:
    """Raise UsageError if something is null, however deep, where this type says it never is. The array itself
    may have nulls."""
    if array.null_count:
        array = array.filter(array.is_valid())
    if pa.types.is_struct(of):
        for field in of:
            child = pc.struct_field(array, field.name)
            if child.null_count and not field.nullable:
                raise UsageError(f"{where}.{field.name} is null, which it never is: give a value")
            check_nulls(child, field.type, f"{where}.{field.name}")
    elif pa.types.is_list(of):
        items = pc.list_flatten(array)
        if items.null_count and not of.value_field.nullable:
            raise UsageError(f"an item of {where} is null, which it never is: give a value")
        check_nulls(items, of.value_type, f"an item of {where}")


def _cast(array: pa.Array, of: pa.DataType, where: str) -> pa.Array:
    try:
        found = array.cast(of)
    except pa.ArrowInvalid as error:
        raise UsageError(f"{where} does not fit {type_text(of)}: {error}: give values that fit") from error
    if pa.types.is_floating(of):  # a cast rounds them without a word
        was, now = (each.drop_null().to_numpy(zero_copy_only=False) for each in (array, found))
        if not np.array_equal(was, now, equal_nan=True):
            raise UsageError(
                f"{where} does not fit {type_text(of)}: a number would be rounded: give it as it is then"
            )
    return found


def _struct(array: pa.Array, of: pa.DataType, where: str) -> pa.Array:
    given, wanted = [field.name for field in array.type], [field.name for field in of]
    if missing := [name for name in wanted if name not in given]:
        raise UsageError(f"{where} needs {', '.join(map(repr, missing))} too: give all of {wanted}")
    if unknown := [name for name in given if name not in wanted]:
        raise UsageError(f"{where} has no {unknown[0]!r} in the base: leave it out, or use one of {wanted}")
    children = [
        fitted(pc.struct_field(array, field.name), field.type, f"{where}.{field.name}") for field in of
    ]
    mask = array.is_null() if array.null_count else None
    return pa.StructArray.from_arrays(children, fields=list(of), mask=mask)
