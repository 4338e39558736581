"""+, -, *, / and %: integers are BIGINT and end the job where they do not fit, and nothing wraps around."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

import polars as pl
from sqlglot import exp

from onceflow.runtime.sql.checks import FIRST, MADE, SECOND, step
from onceflow.runtime.sql.literals import number
from onceflow.runtime.sql.places import refusal, shown
from onceflow.runtime.sql.sql_types import (
    Typed,
    as_decimal,
    common_type,
    converted,
    is_moment,
    is_null,
    type_name,
)

if TYPE_CHECKING:
    from onceflow.runtime.sql.scalars import Scalars

_WIDE = pl.Int128()
_LOWEST, _HIGHEST = -(1 << 63), (1 << 63) - 1
_NARROW = (pl.Int8, pl.Int16, pl.Int32, pl.UInt8, pl.UInt16)


_TOO_LARGE = (MADE < _LOWEST) | (MADE > _HIGHEST)
_NONE = pl.lit(0, dtype=_WIDE)


def bigint(scalars: Scalars, node: exp.Expr, rule: pl.Expr, *parts: pl.Expr) -> Typed:
    """What the rule makes of wide integers, as BIGINT; what does not fit ends the job."""
    sentence = (
        f"{scalars.where_is(node)} does not fit BIGINT: CAST one of its parts AS DOUBLE, or leave such rows "
        "out with WHERE"
    )
    wide = [scalars.protected(part).cast(_WIDE) for part in parts]
    return Typed(step(wide, rule, pl.Int64(), [(_TOO_LARGE, sentence)]), pl.Int64())


def operands(scalars: Scalars, node: exp.Expr, what: str) -> tuple[Typed, Typed, pl.DataType]:
    """Both sides of an operator on numbers, and their common type."""
    left, right = scalars.typed(node.this), scalars.typed(node.expression)
    left, right = as_decimal(left, right.type), as_decimal(right, left.type)
    of = common_type(left.type, right.type)
    if of is None or not (of.is_numeric() or is_null(of)):
        raise refusal(
            node,
            f"{shown(node)}: {what} takes numbers, but these are {type_name(left.type)} and "
            f"{type_name(right.type)}: CAST one of them",
        )
    return left, right, pl.Int64() if is_null(of) else of


def _sum_or_product(
    symbol: str, apply: Callable[[pl.Expr, pl.Expr], pl.Expr]
) -> Callable[[Scalars, exp.Expr], Typed]:
    def rule(scalars: Scalars, node: exp.Expr) -> Typed:
        left, right, of = operands(scalars, node, symbol)
        if of.is_float():
            return Typed(apply(converted(left, pl.Float64()), converted(right, pl.Float64())), pl.Float64())
        if isinstance(of, pl.Decimal):
            return _decimal(node, symbol, left, right, of, apply)
        if isinstance(left.type, _NARROW) and isinstance(right.type, _NARROW):
            return Typed(apply(left.expr.cast(pl.Int64), right.expr.cast(pl.Int64)), pl.Int64())
        return bigint(scalars, node, apply(FIRST, SECOND), left.expr, right.expr)

    return rule


def _decimal(
    node: exp.Expr,
    symbol: str,
    left: Typed,
    right: Typed,
    of: pl.Decimal,
    apply: Callable[[pl.Expr, pl.Expr], pl.Expr],
) -> Typed:
    if symbol == "*":
        raise refusal(
            node,
            f"{shown(node)}: no one scale is right for a product of decimals: CAST one of them AS DOUBLE",
        )
    return Typed(apply(converted(left, of), converted(right, of)).cast(of), of)


def _times(
    name: str, of_numbers: Callable[[Scalars, exp.Expr], Typed]
) -> Callable[[Scalars, exp.Expr], Typed]:
    """+ and -, which also take a time and a length of time."""

    def rule(scalars: Scalars, node: exp.Expr) -> Typed:
        if not _has_interval(node):
            return of_numbers(scalars, node)
        left, right = scalars.typed(node.this), scalars.typed(node.expression)
        if name == "+" and is_moment(right.type):
            left, right = right, left
        if not is_moment(left.type) or not isinstance(right.type, pl.Duration):
            raise refusal(
                node,
                f"{shown(node)}: {type_name(left.type)} {name} {type_name(right.type)}: a length of "
                "time is added "
                "to, or taken from, a TIMESTAMP: CAST(... AS TIMESTAMP), or TO_TIMESTAMP_LTZ(ms, 3)",
            )
        moved = left.expr + right.expr if name == "+" else left.expr - right.expr
        return Typed(moved.cast(left.type), left.type)

    return rule


def _has_interval(node: exp.Expr) -> bool:
    sides = (node.this.unnest(), node.expression.unnest())
    return any(isinstance(side, exp.Interval) for side in sides)


def divided(scalars: Scalars, node: exp.Expr) -> Typed:
    """Integers are divided as such, towards zero."""
    left, right, of = operands(scalars, node, "/")
    if of.is_float():
        # A column by a constant would be multiplied by its reciprocal, in batches of more than one row.
        both = (converted(left, pl.Float64()), converted(right, pl.Float64()))
        return Typed(step(both, FIRST / SECOND, pl.Float64()), pl.Float64())
    if isinstance(of, pl.Decimal):
        raise refusal(
            node,
            f"{shown(node)}: no one scale is right for a quotient of decimals: CAST one of them AS DOUBLE",
        )
    quotient = FIRST.abs() // SECOND.abs()
    towards_zero = pl.when((FIRST < 0) != (SECOND < 0)).then(_NONE - quotient).otherwise(quotient)
    return _of_division(scalars, node, towards_zero, left, right)


def remainder_of(scalars: Scalars, node: exp.Expr) -> Typed:
    """The remainder has the sign of what is divided."""
    left, right, of = operands(scalars, node, "%")
    if isinstance(of, pl.Decimal):
        raise refusal(node, f"{shown(node)}: % takes no decimals: CAST them AS BIGINT or AS DOUBLE")
    if of.is_float():
        both = (converted(left, pl.Float64()), converted(right, pl.Float64()))
        rest = FIRST.abs() % SECOND.abs()
        return Typed(step(both, pl.when(FIRST < 0).then(-rest).otherwise(rest), pl.Float64()), pl.Float64())
    rest = FIRST.abs() % SECOND.abs()
    signed = pl.when(FIRST < 0).then(_NONE - rest).otherwise(rest)
    return _of_division(scalars, node, signed, left, right)


def _of_division(scalars: Scalars, node: exp.Expr, rule: pl.Expr, left: Typed, right: Typed) -> Typed:
    """What the rule makes of integers of which the second is not zero."""
    where = scalars.where_is(node)
    by_zero = f"{where}: division by zero: write NULLIF(..., 0), or leave such rows out with WHERE"
    too_large = f"{where} does not fit BIGINT: leave such rows out with WHERE"
    wide = [scalars.protected(side.expr).cast(_WIDE) for side in (left, right)]
    # Nothing divided by zero is nothing: only a row with both values has none.
    checks = [((SECOND == 0) & FIRST.is_not_null(), by_zero), (_TOO_LARGE, too_large)]
    return Typed(step(wide, rule, pl.Int64(), checks), pl.Int64())


def _negated(scalars: Scalars, node: exp.Expr) -> Typed:
    if isinstance(node.this, exp.Literal) and not node.this.args.get("is_string"):
        return number(f"-{node.this.this}", node)
    value = scalars.typed(node.this)
    if is_null(value.type):
        return Typed(value.expr.cast(pl.Int64), pl.Int64())
    if not value.type.is_numeric():
        raise refusal(node, f"{shown(node)}: - takes a number, but this is {type_name(value.type)}: CAST it")
    if value.type.is_float() or isinstance(value.type, pl.Decimal):
        return Typed(-value.expr, value.type)
    return bigint(scalars, node, _NONE - FIRST, value.expr)


RULES: Mapping[type[exp.Expr], Callable[[Scalars, exp.Expr], Typed]] = {
    exp.Add: _times("+", _sum_or_product("+", lambda a, b: a + b)),
    exp.Sub: _times("-", _sum_or_product("-", lambda a, b: a - b)),
    exp.Mul: _sum_or_product("*", lambda a, b: a * b),
    exp.Div: divided,
    exp.Mod: remainder_of,
    exp.Neg: _negated,
}
