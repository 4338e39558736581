"""Which Python values a plain column takes. What Arrow would convert without a word (1.5 to 1, a datetime to
a date) is refused: only these go in."""

from __future__ import annotations

import datetime as dt
import numbers
from operator import countOf
from types import NoneType
from typing import Any

import numpy as np
import pyarrow as pa

from onceflow.runtime.types.hints import type_name
from onceflow.runtime.types.single_types import PLAIN

TAKEN: dict[pa.DataType, tuple[type, ...]] = {
    pa.string(): (str,),
    pa.int64(): (int, numbers.Integral),
    pa.float64(): (float, int, numbers.Real),
    pa.bool_(): (bool, np.bool_),
    pa.binary(): (bytes, bytearray, memoryview),
    pa.timestamp("ms", "UTC"): (dt.datetime,),
    pa.date32(): (dt.date,),
}
"""The first is that of most values."""


def python_name(arrow: pa.DataType) -> str:
    """What a value of this Arrow type is called in Python, for a sentence."""
    return next((type_name(t) for t, a in PLAIN.items() if a == arrow), str(arrow))


def check_kinds(values: list[Any], arrow: pa.DataType) -> None:
    """Raises TypeError for a value that Arrow would change silently, however deep in lists, maps and structs
    with the values' own attributes."""
    if taken := TAKEN.get(arrow):
        if countOf(map(type, values), taken[0]) == len(values):
            return  # mostly; a set of all types takes half as much again
        for kind in set(map(type, values)) - {taken[0], NoneType}:
            if not issubclass(kind, taken) or (kind is dt.datetime and arrow == pa.date32()):
                raise TypeError(f"a {kind.__name__} is no {python_name(arrow)}")
    elif pa.types.is_list(arrow):
        _check_inner([x for v in values if v is not None for x in v], arrow.value_field)
    elif pa.types.is_map(arrow):
        _check_inner([x for v in values if v is not None for x in v.values()], arrow.item_field)
    elif pa.types.is_struct(arrow):
        for field in arrow:
            _check_inner([getattr(v, field.name) for v in values if v is not None], field)


def _check_inner(values: list[Any], field: pa.Field) -> None:
    """Arrow itself does not look at nulls inside a value."""
    if not field.nullable and None in values:
        raise TypeError(f"its {field.name} is None, but is declared without None")
    check_kinds(values, field.type)
