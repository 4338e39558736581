"""Types of single values: their columns."""

from __future__ import annotations

import datetime as dt
import typing
from collections.abc import Mapping
from decimal import Decimal
from enum import Enum, Flag
from typing import Any, Literal
from uuid import UUID

import pyarrow as pa

from onceflow.runtime.errors import GraphError
from onceflow.runtime.types.annotations import Unwrapped
from onceflow.runtime.types.hints import type_name
from onceflow.runtime.types.value_types import (
    DECIMAL_PRECISION,
    DECIMAL_SCALE,
    Choice,
    Clock,
    Decimals,
    JsonValue,
    Kind,
    Plain,
    Scale,
    Uuid,
    ValueType,
)

PLAIN: Mapping[Any, pa.DataType] = {
    str: pa.string(),
    int: pa.int64(),
    float: pa.float64(),
    bool: pa.bool_(),
    bytes: pa.binary(),
    dt.datetime: pa.timestamp("ms", "UTC"),
    dt.date: pa.date32(),
}
"""Types of single values that Arrow has, too."""
PYTHON_OF: Mapping[pa.DataType, Any] = {arrow: python for python, arrow in PLAIN.items()}
_SINGLE: Mapping[Any, tuple[pa.DataType, Kind]] = {
    dt.time: (pa.time64("us"), Clock("time")),
    dt.timedelta: (pa.duration("us"), Clock("timedelta")),
    UUID: (pa.string(), Uuid()),
}
"""And those that it has in another form."""


def single_type(of: Unwrapped, where: str) -> ValueType | None:
    """The type of these values; None if they are not single. Raises GraphError, beginning with `where`."""
    python = of.python
    if python in PLAIN:
        return ValueType(PLAIN[python], of.nullable, True, Plain(), type_name(python))
    if python in _SINGLE:
        arrow, kind = _SINGLE[python]
        return ValueType(arrow, of.nullable, True, kind, type_name(python))
    if python is Decimal:
        return _decimal(of, where)
    if python is Any:
        return ValueType(pa.string(), True, False, JsonValue(), "Any")  # None is a value of Any
    if isinstance(python, type) and issubclass(python, Enum):
        return _enum(python, of.nullable, where)
    return _literal(of, where) if typing.get_origin(python) is Literal else None


def _decimal(of: Unwrapped, where: str) -> ValueType:
    scale, precision = None, DECIMAL_PRECISION
    for note in [note for each in of.notes for note in (each, *getattr(each, "metadata", ()))]:
        if isinstance(note, Scale):
            scale, precision = note.digits, note.precision
        elif (digits := getattr(note, "decimal_places", None)) is not None:  # pydantic's
            scale, precision = digits, getattr(note, "max_digits", None) or DECIMAL_PRECISION
    kind = Decimals(precision, DECIMAL_SCALE if scale is None else scale, scale is not None)
    if not 0 <= kind.scale <= precision <= DECIMAL_PRECISION or not precision:
        raise GraphError(
            f"{where} has {kind.scale} digits behind the point of {precision}; a column has up to "
            f"{DECIMAL_PRECISION}"
        )
    return ValueType(pa.decimal128(precision, kind.scale), of.nullable, True, kind, "Decimal")


def _enum(python: type[Enum], nullable: bool, where: str) -> ValueType:
    values = tuple(member.value for member in python)
    kinds = set(map(type, values))
    if issubclass(python, Flag) or kinds not in ({str}, {int}):
        raise GraphError(
            f"{where} is the enum {python.__name__}, which has no Arrow type: there are those whose "
            "values are all str, or all int, and no flags"
        )
    arrow = pa.string() if kinds == {str} else pa.int64()
    return ValueType(arrow, nullable, True, Choice(values, python), python.__name__)


def _literal(of: Unwrapped, where: str) -> ValueType:
    values = tuple(value for value in typing.get_args(of.python) if value is not None)
    kinds = set(map(type, values))
    if kinds not in ({str}, {int}):
        raise GraphError(
            f"{where} is {type_name(of.python)}, which has no Arrow type: the values of a Literal are "
            "all str, or all int"
        )
    nullable = of.nullable or None in typing.get_args(of.python)
    arrow = pa.string() if kinds == {str} else pa.int64()
    return ValueType(arrow, nullable, True, Choice(values), type_name(of.python))
