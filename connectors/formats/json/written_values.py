"""Values as Arrow gives them, one by one, to what msgspec writes for them as JSON.

What a column's values mean beside their Arrow type (a tuple, a union, any JSON) its field says: see
runtime/types/column_forms.py.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pyarrow as pa

from onceflow.connectors.formats.format import EncodeError
from onceflow.runtime.types.column_forms import JSON, NUMBER, TUPLE, UNION, form_of, outside_name
from onceflow.runtime.types.decoding import json_value, without_zeros

Convert = Callable[[Any], Any]


def writer(field: pa.Field) -> Convert | None:
    """The function for what `to_pylist(maps_as_pydicts="strict")` gives, None excepted; None: it is written
    as it is. It raises WrongValueError for text that is to be JSON and is not."""
    arrow, form, is_ = field.type, form_of(field), pa.types
    if form in (JSON, NUMBER):
        return json_value if form == JSON else without_zeros
    if is_.is_list(arrow) or is_.is_large_list(arrow):
        item = writer(arrow.value_field)
        return None if item is None else lambda values: [None if v is None else item(v) for v in values]
    if is_.is_map(arrow):
        value = writer(arrow.item_field)
        if value is None:
            return None
        return lambda pairs: {k: None if v is None else value(v) for k, v in pairs.items()}
    if is_.is_struct(arrow):
        fields = [(f.name, outside_name(f), writer(f)) for f in arrow]
        if form == UNION:
            return _union(fields)
        if form == TUPLE:
            return _tuple(fields)
        if any(name != outside or convert is not None for name, outside, convert in fields):
            return _record(fields)
    return None


Fields = list[tuple[str, str, Convert | None]]


def _record(fields: Fields) -> Convert:
    inner = [(name, outside, _inner(convert)) for name, outside, convert in fields]
    return lambda value: {outside: convert(value[name]) for name, outside, convert in inner}


def _tuple(fields: Fields) -> Convert:
    inner = [(name, _inner(convert)) for name, _, convert in fields]
    return lambda value: [convert(value[name]) for name, convert in inner]


def _union(fields: Fields) -> Convert:
    tag = fields[0][0]
    inner = {name: _inner(convert) for name, _, convert in fields[1:]}

    def convert(value: dict[str, Any]) -> dict[str, Any]:
        name = value[tag]
        if name not in inner or value[name] is None:
            raise EncodeError(f"a union has the tag {name!r}, for which it has no record")
        found: dict[str, Any] = {tag: name} | inner[name](value[name])
        return found

    return convert


def _inner(convert: Convert | None) -> Convert:
    return lambda value: value if value is None or convert is None else convert(value)
