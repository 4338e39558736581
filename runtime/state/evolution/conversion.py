"""Arrays of what was kept, as arrays of the type that the program has now.

What a value becomes is decided in `resolution`; here it is done, for all rows of a piece at once. Only a
default that a function of the user's makes is made row by row, since each record gets one of its own.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from onceflow.runtime.errors import Fatal
from onceflow.runtime.state.evolution.members import Fields, fields_of, item_of, kept_name, map_of
from onceflow.runtime.state.evolution.resolution import UnresolvedError, changes
from onceflow.runtime.state.evolution.type_trees import tree_of
from onceflow.runtime.types.columns_of_records import WrongFieldError, array_from_values
from onceflow.runtime.types.value_types import RecordField, ValueType


def converted(array: pa.Array, now: ValueType, what: str) -> pa.Array:
    """The same values under the type that there is now. Raises Fatal, which begins with `what`, for one that
    it can't have; and if the types don't fit, which whoever started the job has ruled out."""
    if array.type == now.arrow:
        return array
    try:
        changes(tree_of(array.type), now)
        return _converted(array, now)
    except (UnresolvedError, pa.ArrowInvalid, pa.ArrowNotImplementedError, WrongFieldError) as error:
        raise Fatal(
            f"{what}: a value in the checkpoint can't be read as the program declares it: {error}: declare "
            "the type with which it was written"
        ) from error


def _converted(array: pa.Array, now: ValueType) -> pa.Array:
    if array.type == now.arrow:
        return array
    fields, item, entries = fields_of(now), item_of(now), map_of(now)
    if entries is not None:
        return _map(array, now, entries[1])
    if fields is not None:
        return _struct(array, now, fields)
    if item is not None:
        offsets, flat = _flat(array)
        return _list_array(offsets, _converted(flat, item), now.arrow)
    return array.cast(now.arrow)


def _struct(array: pa.StructArray, now: ValueType, fields: Fields) -> pa.StructArray:
    kept = {field.name for field in array.type}
    children = []
    for field in fields.fields:
        name = kept_name(field, kept)
        if name is None:
            children.append(_new(field, len(array)))
        else:
            children.append(_converted(array.field(name), field.type))
    if not children:  # of which Arrow would not know how many rows there are
        return pa.array([{} if is_there else None for is_there in array.is_valid().to_pylist()], now.arrow)
    mask = array.is_null() if array.null_count else None
    return pa.StructArray.from_arrays(children, fields=list(now.arrow), mask=mask)


def _new(field: RecordField, count: int) -> pa.Array:
    if field.default is None:
        return pa.nulls(count, field.type.arrow)
    if field.default.factory is None:
        one = array_from_values([field.default.value], field.column, field.type)
        return one.take(pa.array(np.zeros(count, np.int64)))
    return array_from_values([field.default.make() for _ in range(count)], field.column, field.type)


def _map(array: pa.Array, now: ValueType, value: ValueType) -> pa.Array:
    """A map, or a list of structs of key and value; it stays what it is."""
    if pa.types.is_map(array.type):
        entry = pa.struct([array.type.key_field, array.type.item_field])
        offsets, flat = _flat(array.view(pa.list_(pa.field("entries", entry, nullable=False))))
        values = _map_values(flat.field(1), value)
        return pa.MapArray.from_arrays(offsets, flat.field(0), values, now.arrow)
    offsets, flat = _flat(array)
    values = _map_values(flat.field("value"), value)
    entries = pa.StructArray.from_arrays([flat.field("key"), values], fields=list(now.arrow.value_field.type))
    return _list_array(offsets, entries, now.arrow)


def _map_values(array: pa.Array, now: ValueType) -> pa.Array:
    """Whether those of a map could be null is in no description, so it is looked at here."""
    if array.null_count and not now.nullable:
        raise UnresolvedError("a value in it is null, and none may be")
    return _converted(array, now)


def _flat(array: pa.Array) -> tuple[pa.Array, pa.Array]:
    """Offsets, null where a list is, and the items of all lists end to end."""
    lengths = array.value_lengths()
    ends = np.cumsum(np.append(0, lengths.fill_null(0).to_numpy()))
    mask = np.append(lengths.is_null().to_numpy(zero_copy_only=False), False)
    of = pa.int64() if pa.types.is_large_list(array.type) else pa.int32()
    return pa.array(ends, of, mask=mask if mask.any() else None), array.flatten()


def _list_array(offsets: pa.Array, flat: pa.Array, of: pa.DataType) -> pa.Array:
    kind = pa.LargeListArray if pa.types.is_large_list(of) else pa.ListArray
    return kind.from_arrays(offsets, flat, type=of)
