"""Arrow arrays as plain Python values and back: ints, floats, texts, bytes, None; tuples and lists of these.

What a value is of, a time of day or a decimal, is in the type alone: the plain value is what lies in memory.
So each row is by itself small to encode, and what comes back is, to the bit, what went in.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pyarrow as pa

_t = pa.types


def plain_values(array: pa.Array) -> list[Any]:
    """A value for each place: a struct is a tuple of its fields, a list or map a list."""
    of = array.type
    if _t.is_struct(of):
        fields = [plain_values(array.field(i)) for i in range(of.num_fields)]
        values: list[Any] = list(zip(*fields, strict=True)) if fields else [()] * len(array)
        return values if not array.null_count else _with_nulls(values, array)
    if _t.is_map(of):
        entries = pa.struct([of.key_field, of.item_field])
        return plain_values(array.view(pa.list_(pa.field("entries", entries, nullable=False))))
    if _is_list(of):
        items = iter(plain_values(array.flatten()))
        lengths = array.value_lengths().to_pylist()
        return [None if n is None else [next(items) for _ in range(n)] for n in lengths]
    if _t.is_dictionary(of):
        return plain_values(array.dictionary_decode())
    stored = _stored_as(of)
    plain: list[Any] = (array if stored == of else array.view(stored)).to_pylist()
    return plain


def array_of_plain(values: Sequence[Any], of: pa.DataType) -> pa.Array:
    """The inverse of `plain_values`, for this type; sequences may have become lists or tuples meanwhile."""
    if _t.is_struct(of):
        nothing = (None,) * of.num_fields
        columns = zip(*(nothing if value is None else value for value in values), strict=True)
        parts = list(columns) if values else [()] * of.num_fields
        fields = [array_of_plain(part, field.type) for part, field in zip(parts, of, strict=True)]
        if not fields:
            return pa.array([None if value is None else {} for value in values], of)
        mask = pa.array([value is None for value in values]) if None in values else None
        return pa.StructArray.from_arrays(fields, fields=list(of), mask=mask)
    if _is_list(of):
        return _lists(values, of)
    if _t.is_dictionary(of):
        return array_of_plain(values, of.value_type).dictionary_encode().cast(of)
    stored = _stored_as(of)
    array = pa.array(values, stored)
    return array if stored == of else array.view(of)


def column_of_nothing(rows: int, of: pa.DataType) -> pa.Array:
    """What a table's snapshot means by a column that it leaves out: empty lists, if it is one of lists, and
    nulls otherwise."""
    return array_of_plain([()] * rows, of) if _t.is_list(of) else pa.nulls(rows, of)


def _lists(values: Sequence[Any], of: pa.DataType) -> pa.Array:
    ends: list[int | None] = []
    end = 0
    for items in values:
        ends.append(None if items is None else end)
        end += 0 if items is None else len(items)
    offsets = pa.array([*ends, end], pa.int64() if _t.is_large_list(of) else pa.int32())
    flat = [item for items in values if items for item in items]
    if _t.is_map(of):
        keys = array_of_plain([key for key, _ in flat], of.key_type)
        return pa.MapArray.from_arrays(offsets, keys, array_of_plain([v for _, v in flat], of.item_type), of)
    kind = pa.LargeListArray if _t.is_large_list(of) else pa.ListArray
    return kind.from_arrays(offsets, array_of_plain(flat, of.value_type), type=of)


def _is_list(of: pa.DataType) -> bool:
    return bool(_t.is_list(of) or _t.is_large_list(of) or _t.is_map(of))


def _with_nulls(values: list[Any], array: pa.Array) -> list[Any]:
    is_valid = array.is_valid().to_pylist()
    return [value if is_there else None for value, is_there in zip(values, is_valid, strict=True)]


def _stored_as(of: pa.DataType) -> pa.DataType:
    """The type of the same width whose Python values are plain."""
    if _t.is_timestamp(of) or _t.is_duration(of) or _t.is_time64(of) or _t.is_date64(of):
        return pa.int64()
    if _t.is_time32(of) or _t.is_date32(of):
        return pa.int32()
    if _t.is_decimal(of):
        return pa.binary(of.byte_width)
    if _t.is_float16(of):
        return pa.int16()
    if of == pa.float32():
        return pa.int32()  # a float of Python's is one of 64 bits: the bits of a NaN would not come back
    return of
