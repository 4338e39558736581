"""Comparisons, BETWEEN, IN, IS and LIKE."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from functools import reduce
from typing import TYPE_CHECKING

import polars as pl
from sqlglot import exp

from onceflow.runtime.sql.places import refusal, shown
from onceflow.runtime.sql.sql_types import (
    Typed,
    as_decimal,
    can_be_compared,
    common_type,
    converted,
    is_null,
    is_text,
    type_name,
)

if TYPE_CHECKING:
    from onceflow.runtime.sql.scalars import Scalars

Compare = Callable[[pl.Expr, pl.Expr], pl.Expr]


def comparable(node: exp.Expr, left: Typed, right: Typed) -> tuple[pl.Expr, pl.Expr]:
    """Both in their common type. Raises GraphError if there is none, or no order in it."""
    left, right = as_decimal(left, right.type), as_decimal(right, left.type)
    of = common_type(left.type, right.type)
    if of is None or not (can_be_compared(of) or is_null(of)):
        raise refusal(
            node,
            f"{shown(node)}: {type_name(left.type)} and {type_name(right.type)} can't be compared: "
            f"{_way_out(left.type, right.type)}",
        )
    if isinstance(of, pl.Int64) and any(isinstance(side.type, pl.UInt64) for side in (left, right)):
        of = pl.Int128()  # the upper half of them is no BIGINT
    return converted(left, of), converted(right, of)


def _way_out(left: pl.DataType, right: pl.DataType) -> str:
    kinds = {type(left), type(right)}
    if pl.Datetime in kinds and pl.String in kinds:
        return "write the time as in TIMESTAMP '2026-01-31 12:00:00'"
    if pl.Datetime in kinds and (left.is_integer() or right.is_integer()):
        return "write TO_TIMESTAMP_LTZ(ms, 3) around the number"
    return "CAST one of them"


def _comparison(compare: Compare) -> Callable[[Scalars, exp.Expr], Typed]:
    def rule(scalars: Scalars, node: exp.Expr) -> Typed:
        sides = comparable(node, scalars.typed(node.this), scalars.typed(node.expression))
        return Typed(_with_nulls(compare(*sides)), pl.Boolean())

    return rule


def _with_nulls(made: pl.Expr) -> pl.Expr:
    """The comparison as a BOOLEAN, even beside NULL in the text, where it would be of the type of nulls."""
    return made.cast(pl.Boolean)


def _between(scalars: Scalars, node: exp.Expr) -> Typed:
    value = scalars.typed(node.this)
    low_sides = comparable(node, value, scalars.typed(node.args["low"]))
    high_sides = comparable(node, value, scalars.typed(node.args["high"]))
    at_least, at_most = low_sides[0] >= low_sides[1], high_sides[0] <= high_sides[1]
    return Typed(_with_nulls(at_least) & _with_nulls(at_most), pl.Boolean())


def _in(scalars: Scalars, node: exp.Expr) -> Typed:
    if not node.expressions:
        raise refusal(node, "IN takes a list, x IN (1, 2); for a query, join streams with the API")
    value = scalars.typed(node.this)
    sides = [comparable(node, value, scalars.typed(each)) for each in node.expressions]
    equal = [_with_nulls(a == b) for a, b in sides]
    while len(equal) > 1:  # a tree: a chain of thousands is too deep for polars
        equal = [reduce(lambda a, b: a | b, equal[first : first + 2]) for first in range(0, len(equal), 2)]
    return Typed(equal[0], pl.Boolean())


def _is(scalars: Scalars, node: exp.Expr) -> Typed:
    asked = node.expression
    if isinstance(asked, exp.Null):
        return Typed(scalars.typed(node.this).expr.is_null(), pl.Boolean())
    if isinstance(asked, exp.Boolean):
        value = scalars.condition(node.this, "IS TRUE or IS FALSE")
        return Typed(value.eq_missing(pl.lit(bool(asked.this))), pl.Boolean())
    raise refusal(
        node, f"{shown(node)} is not supported: use IS NULL, IS TRUE or IS FALSE, with NOT or without"
    )


def _like(scalars: Scalars, node: exp.Expr) -> Typed:
    return _matches(scalars, node, None)


def _escaped(scalars: Scalars, node: exp.Expr) -> Typed:
    if not isinstance(node.this, exp.Like) or len(str(node.expression.this)) != 1:
        raise refusal(node, "ESCAPE takes one character, behind LIKE: x LIKE '50\\%' ESCAPE '\\'")
    return _matches(scalars, node.this, str(node.expression.this))


def _matches(scalars: Scalars, node: exp.Expr, escape: str | None) -> Typed:
    value, pattern = scalars.typed(node.this), scalars.typed(node.expression)
    if not is_text(value.type) or not isinstance(pattern.literal, str):
        raise refusal(
            node,
            f"{shown(node)}: LIKE takes a text and a pattern in quotes: CAST the value AS STRING, if need be",
        )
    return Typed(value.expr.str.contains(_as_regex(node, pattern.literal, escape)), pl.Boolean())


def _as_regex(node: exp.Expr, pattern: str, escape: str | None) -> str:
    parts, rest = [], iter(pattern)
    for letter in rest:
        if letter == escape:
            meant = next(rest, None)
            if meant not in ("%", "_", escape):
                raise refusal(
                    node, f"{pattern!r}: behind the character of ESCAPE comes %, _ or itself: write it twice"
                )
            parts.append(re.escape(meant))
        else:
            parts.append({"%": ".*", "_": "."}.get(letter) or re.escape(letter))
    return rf"(?s)\A{''.join(parts)}\z"


RULES: Mapping[type[exp.Expr], Callable[[Scalars, exp.Expr], Typed]] = {
    exp.EQ: _comparison(lambda a, b: a == b),
    exp.NEQ: _comparison(lambda a, b: a != b),
    exp.GT: _comparison(lambda a, b: a > b),
    exp.GTE: _comparison(lambda a, b: a >= b),
    exp.LT: _comparison(lambda a, b: a < b),
    exp.LTE: _comparison(lambda a, b: a <= b),
    exp.NullSafeEQ: _comparison(lambda a, b: a.eq_missing(b)),
    exp.NullSafeNEQ: _comparison(lambda a, b: a.ne_missing(b)),
    exp.Between: _between,
    exp.In: _in,
    exp.Is: _is,
    exp.Like: _like,
    exp.Escape: _escaped,
}
