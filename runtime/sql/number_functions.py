"""Functions of numbers: ABS, ROUND, FLOOR, POWER and the like."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

import polars as pl
from sqlglot import exp

from onceflow.runtime.sql.arithmetic import bigint, remainder_of
from onceflow.runtime.sql.checks import FIRST
from onceflow.runtime.sql.chosen_values import arguments
from onceflow.runtime.sql.places import refusal, shown
from onceflow.runtime.sql.sql_types import Typed, is_null, type_name
from onceflow.runtime.sql.time_functions import rounded_time

if TYPE_CHECKING:
    from onceflow.runtime.sql.scalars import Scalars


def _number(scalars: Scalars, node: exp.Expr, argument: exp.Expr) -> Typed:
    value = scalars.typed(argument)
    if is_null(value.type):
        return Typed(value.expr.cast(pl.Int64), pl.Int64())
    if not value.type.is_numeric():
        raise refusal(
            node,
            f"{shown(node)}: {node.name.upper()} takes a number, but this is {type_name(value.type)}: "
            "CAST it",
        )
    return value


def _abs(scalars: Scalars, node: exp.Expr) -> Typed:
    value = _number(scalars, node, arguments(node, 1, 1)[0])
    if value.type.is_integer():
        return bigint(scalars, node, FIRST.abs(), value.expr)
    if isinstance(value.type, pl.Decimal):
        return Typed(pl.when(value.expr < 0).then(-value.expr).otherwise(value.expr), value.type)
    return Typed(value.expr.abs(), value.type)


def _sign(scalars: Scalars, node: exp.Expr) -> Typed:
    value = _number(scalars, node, arguments(node, 1, 1)[0])
    sign = pl.when(value.expr > 0).then(1).when(value.expr < 0).then(-1).when(value.expr == 0).then(0)
    return Typed(sign.cast(pl.Int64), pl.Int64())


def _rounded(apply: Callable[[pl.Expr], pl.Expr], up: bool) -> Callable[[Scalars, exp.Expr], Typed]:
    def rule(scalars: Scalars, node: exp.Expr) -> Typed:
        if len(node.expressions) == 2 and isinstance(node.expressions[1], exp.Var):
            return rounded_time(scalars, node, up)
        value = _number(scalars, node, arguments(node, 1, 1)[0])
        if value.type.is_integer():
            return value
        return Typed(apply(_double(node, value)), pl.Float64())

    return rule


def _round(scalars: Scalars, node: exp.Expr) -> Typed:
    """Halves go away from zero."""
    first, *digits = arguments(node, 1, 2)
    value = _number(scalars, node, first)
    places = scalars.typed(digits[0]).literal if digits else 0
    if not isinstance(places, int) or places not in range(16):
        raise refusal(
            node, f"{shown(node)}: ROUND takes the number of digits, from 0 to 15, as it is: ROUND(x, 2)"
        )
    if value.type.is_integer():
        return value
    return Typed(_double(node, value).round(places, mode="half_away_from_zero"), pl.Float64())


def _of_double(apply: Callable[[pl.Expr], pl.Expr]) -> Callable[[Scalars, exp.Expr], Typed]:
    def rule(scalars: Scalars, node: exp.Expr) -> Typed:
        value = _number(scalars, node, arguments(node, 1, 1)[0])
        return Typed(apply(value.expr.cast(pl.Float64)), pl.Float64())

    return rule


def _power(scalars: Scalars, node: exp.Expr) -> Typed:
    base, exponent = (_number(scalars, node, each) for each in arguments(node, 2, 2))
    return Typed(base.expr.cast(pl.Float64).pow(exponent.expr.cast(pl.Float64)), pl.Float64())


def _mod(scalars: Scalars, node: exp.Expr) -> Typed:
    a, b = arguments(node, 2, 2)
    return remainder_of(scalars, exp.Mod(this=a.copy(), expression=b.copy()))


def _double(node: exp.Expr, value: Typed) -> pl.Expr:
    if isinstance(value.type, pl.Decimal):
        raise refusal(node, f"{shown(node)}: {node.name.upper()} takes no decimals: CAST them AS DOUBLE")
    return value.expr.cast(pl.Float64)


FUNCTIONS: Mapping[str, Callable[[Scalars, exp.Expr], Typed]] = {
    "ABS": _abs,
    "CEIL": _rounded(lambda e: e.ceil(), up=True),
    "EXP": _of_double(lambda e: e.exp()),
    "FLOOR": _rounded(lambda e: e.floor(), up=False),
    "LN": _of_double(lambda e: e.log()),
    "LOG10": _of_double(lambda e: e.log10()),
    "LOG2": _of_double(lambda e: e.log(2)),
    "MOD": _mod,
    "POWER": _power,
    "ROUND": _round,
    "SIGN": _sign,
    "SQRT": _of_double(lambda e: e.sqrt()),
}
