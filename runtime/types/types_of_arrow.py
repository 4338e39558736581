"""What a state is whose type is given as Arrow's: the Python type whose values its column keeps."""

from __future__ import annotations

import datetime as dt
import typing
from decimal import Decimal
from typing import Annotated, Any

import pyarrow as pa

from onceflow.runtime.errors import GraphError
from onceflow.runtime.types.single_types import PYTHON_OF
from onceflow.runtime.types.value_types import Scale

_OTHERS = {pa.time64("us"): dt.time, pa.duration("us"): dt.timedelta}


def python_of_arrow(arrow: pa.DataType, where: str) -> Any:
    """The annotation that has this column: `list[int]` for `pa.list_(pa.int64())`, dictionaries for structs.

    Raises GraphError that begins with `where` for a type that no annotation has.
    """
    if (single := PYTHON_OF.get(arrow) or _OTHERS.get(arrow)) is not None:
        return single
    if pa.types.is_decimal128(arrow) and arrow.scale >= 0:
        return Annotated[Decimal, Scale(arrow.scale, arrow.precision)]
    if pa.types.is_list(arrow):
        return list[_of_field(arrow.value_field, where)]  # type: ignore[misc]  # made at run time
    if pa.types.is_map(arrow):
        key, value = python_of_arrow(arrow.key_type, where), _of_field(arrow.item_field, where)
        return dict[key, value]  # type: ignore[valid-type]  # made at run time
    if pa.types.is_struct(arrow) and len(arrow):
        fields = {field.name: _of_field(field, where) for field in arrow}
        made: Any = typing.TypedDict  # a type checker knows it as a statement only
        return made("Struct", fields)
    raise GraphError(f"{where} is Arrow's {arrow}, which no type of Python has: use one of {_names()}")


def _of_field(field: pa.Field, where: str) -> Any:
    inner = python_of_arrow(field.type, where)
    return inner | None if field.nullable else inner


def _names() -> str:
    singles = ", ".join(map(str, [*PYTHON_OF, *_OTHERS]))
    return f"{singles}, decimal128, and lists, maps and structs of them"
