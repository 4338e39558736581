"""Types of SQL as those of polars: what they are called, and which one two values have together."""

from __future__ import annotations

from dataclasses import dataclass
from decimal import Decimal
from typing import Any

import polars as pl

DECIMAL_DIGITS = 38
_NAMES: list[tuple[type[pl.DataType], str]] = [
    (pl.Boolean, "BOOLEAN"),
    (pl.Int8, "TINYINT"),
    (pl.Int16, "SMALLINT"),
    (pl.Int32, "INT"),
    (pl.Int64, "BIGINT"),
    (pl.Float32, "FLOAT"),
    (pl.Float64, "DOUBLE"),
    (pl.String, "STRING"),
    (pl.Binary, "BYTES"),
    (pl.Date, "DATE"),
    (pl.Duration, "INTERVAL"),
    (pl.Null, "NULL"),
]


@dataclass(frozen=True, slots=True)
class Typed:
    """An expression over the columns of the rows, and the type of its values."""

    expr: pl.Expr
    type: pl.DataType
    literal: int | float | str | Decimal | None = None
    """The value itself, if the text says it."""


def type_name(dtype: pl.DataType) -> str:
    """What SQL calls it."""
    if isinstance(dtype, pl.Datetime):
        return "TIMESTAMP" if dtype.time_zone is None else "TIMESTAMP_LTZ"
    if isinstance(dtype, pl.Decimal):
        return f"DECIMAL({dtype.precision}, {dtype.scale})"
    return next((name for kind, name in _NAMES if isinstance(dtype, kind)), str(dtype))


def is_text(dtype: pl.DataType) -> bool:
    return isinstance(dtype, pl.String)


def is_moment(dtype: pl.DataType) -> bool:
    """A point in time: TIMESTAMP, with a zone or without."""
    return isinstance(dtype, pl.Datetime)


def is_null(dtype: pl.DataType) -> bool:
    """The type of the word NULL."""
    return isinstance(dtype, pl.Null)


def can_be_compared(dtype: pl.DataType) -> bool:
    """Whether its values have an order: lists, maps and the like have none here."""
    return bool(
        dtype.is_numeric()
        or isinstance(
            dtype, pl.Boolean | pl.String | pl.Binary | pl.Date | pl.Datetime | pl.Duration | pl.Time
        )
    )


def common_type(left: pl.DataType, right: pl.DataType) -> pl.DataType | None:
    """The type in which both can be told apart; None: there is none without a CAST."""
    if left == right or is_null(right):
        return left
    if is_null(left):
        return right
    if left.is_numeric() and right.is_numeric():
        return _common_number(left, right)
    if isinstance(left, pl.Datetime) and isinstance(right, pl.Datetime):
        units = ("ns", "us", "ms")
        unit = min(left.time_unit, right.time_unit, key=units.index)
        return pl.Datetime(unit, left.time_zone or right.time_zone)
    if isinstance(left, pl.Date) and isinstance(right, pl.Datetime):
        return right
    if isinstance(right, pl.Date) and isinstance(left, pl.Datetime):
        return left
    if isinstance(left, pl.Duration) and isinstance(right, pl.Duration):
        return pl.Duration("us")
    return None


def _common_number(left: pl.DataType, right: pl.DataType) -> pl.DataType:
    if left.is_float() or right.is_float():
        return pl.Float64()
    decimals = [each.scale for each in (left, right) if isinstance(each, pl.Decimal)]
    if decimals:
        return pl.Decimal(DECIMAL_DIGITS, max(decimals))
    return pl.Int64()


def converted(value: Typed, dtype: pl.DataType) -> pl.Expr:
    """The value in a type that `common_type` gave."""
    if value.type == dtype:
        return value.expr
    if isinstance(dtype, pl.Datetime) and dtype.time_zone is not None:
        naive = isinstance(value.type, pl.Date) or (
            isinstance(value.type, pl.Datetime) and value.type.time_zone is None
        )
        if naive:  # texts and dates are in UTC, as everything is
            return (
                value.expr.cast(pl.Datetime(dtype.time_unit))
                .dt.replace_time_zone("UTC")
                .dt.convert_time_zone(dtype.time_zone)
            )
    return value.expr.cast(dtype)


def literal_of(value: Any, dtype: pl.DataType) -> Typed:
    """A value that the text says."""
    return Typed(pl.lit(value, dtype=dtype), dtype, value)


def as_decimal(value: Typed, other: pl.DataType) -> Typed:
    """A number with a point beside a decimal means exactly what is written, and not the nearest DOUBLE."""
    if not isinstance(other, pl.Decimal) or not isinstance(value.literal, Decimal):
        return value
    exponent = value.literal.as_tuple().exponent
    scale = max(0, -exponent) if isinstance(exponent, int) else 0
    dtype = pl.Decimal(DECIMAL_DIGITS, scale)
    return Typed(pl.lit(value.literal, dtype=dtype), dtype, value.literal)
