"""What the text says itself: numbers, texts, true, null, and lengths of time."""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable, Mapping
from decimal import Decimal
from typing import TYPE_CHECKING

import polars as pl
from sqlglot import exp

from onceflow.runtime.sql.places import refusal, shown
from onceflow.runtime.sql.sql_types import Typed, literal_of

if TYPE_CHECKING:
    from onceflow.runtime.sql.scalars import Scalars

_INT64 = range(-(1 << 63), 1 << 63)
LONGEST_MS = 10_000 * 366 * 86_400_000
_UNIT_MS: Mapping[str, int] = {
    "MILLISECOND": 1,
    "SECOND": 1_000,
    "MINUTE": 60_000,
    "HOUR": 3_600_000,
    "DAY": 86_400_000,
    "WEEK": 7 * 86_400_000,
}


def interval_ms(node: exp.Expr) -> int:
    """The length of `INTERVAL '1' MINUTE` in ms. Raises GraphError for one without a fixed length."""
    if not isinstance(node, exp.Interval):
        raise refusal(node, f"{shown(node)} is no length of time: write it as in INTERVAL '1' MINUTE")
    unit = node.args.get("unit")
    name = str(unit.name).upper() if isinstance(unit, exp.Var) else ""
    name = name[:-1] if name.endswith("S") else name
    said = node.this
    if name not in _UNIT_MS or not isinstance(said, exp.Literal):
        raise refusal(
            node,
            f"{shown(node)} has no fixed length that is known here: write one unit of SECOND, MINUTE, "
            "HOUR, DAY "
            "or WEEK, as in INTERVAL '90' SECOND",
        )
    try:
        length = Decimal(str(said.this)) * _UNIT_MS[name]
    except ArithmeticError as error:
        raise refusal(node, f"{shown(node)}: the length is no number: write INTERVAL '1' MINUTE") from error
    if not length.is_finite() or abs(length) > LONGEST_MS:
        raise refusal(node, f"{shown(node)} is longer than all times that there are: write a shorter one")
    if length != int(length):
        raise refusal(node, f"{shown(node)} is no whole number of milliseconds: write a longer one")
    return int(length)


def number(text: str, node: exp.Expr) -> Typed:
    """BIGINT, or DOUBLE if there is a point or an exponent; beside a DECIMAL it means what is written."""
    if text.lstrip("-").isdigit():
        if int(text) not in _INT64:
            raise refusal(node, f"{text} does not fit BIGINT: write it with a point, as a DOUBLE")
        return literal_of(int(text), pl.Int64())
    exact = Decimal(text)
    return Typed(pl.lit(float(text), dtype=pl.Float64()), pl.Float64(), exact)


def _literal(scalars: Scalars, node: exp.Expr) -> Typed:
    if node.args.get("is_string"):
        return literal_of(str(node.this), pl.String())
    return number(str(node.this), node)


def _boolean(scalars: Scalars, node: exp.Expr) -> Typed:
    return Typed(pl.lit(bool(node.this)), pl.Boolean())


def _null(scalars: Scalars, node: exp.Expr) -> Typed:
    return Typed(pl.lit(None), pl.Null())


def _interval(scalars: Scalars, node: exp.Expr) -> Typed:
    length = dt.timedelta(milliseconds=interval_ms(node))
    return Typed(pl.lit(length, dtype=pl.Duration("us")), pl.Duration("us"))


RULES: Mapping[type[exp.Expr], Callable[[Scalars, exp.Expr], Typed]] = {
    exp.Literal: _literal,
    exp.Boolean: _boolean,
    exp.Null: _null,
    exp.Interval: _interval,
}
