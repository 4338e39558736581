"""Aggregates in a query: which there are, what they take, and the operator's aggregate that each becomes."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

import polars as pl
from sqlglot import exp

from onceflow.runtime.operators.aggregation.aggregates import (
    BuiltinAggregate,
    approx_count_distinct,
    count,
    count_distinct,
    max_,
    mean,
    min_,
    sum_,
)
from onceflow.runtime.sql.places import refusal, shown
from onceflow.runtime.sql.scalars import Scalars
from onceflow.runtime.sql.sql_types import Typed, can_be_compared, is_null, type_name

OneColumn = Callable[[str], BuiltinAggregate]
_OF_ONE: Mapping[str, OneColumn] = {
    "COUNT": count,
    "SUM": sum_,
    "AVG": mean,
    "MIN": min_,
    "MAX": max_,
    "APPROX_COUNT_DISTINCT": approx_count_distinct,
}


@dataclass(frozen=True, slots=True)
class AggregateCall:
    """`SUM(amount) FILTER (WHERE amount > 0)`."""

    node: exp.Expr
    name: str
    argument: exp.Expr | None
    """None: COUNT(*)."""
    is_distinct: bool
    condition: exp.Expr | None


def aggregates_in(nodes: Iterable[exp.Expr]) -> list[exp.Expr]:
    """The outermost aggregates, with their FILTER."""
    found: list[exp.Expr] = []
    for node in nodes:
        _collect(node, found)
    return found


def _collect(node: exp.Expr, found: list[exp.Expr]) -> None:
    if isinstance(node, exp.Subquery | exp.Select | exp.Window):
        return
    if _is_aggregate(node) or (isinstance(node, exp.Filter) and _is_aggregate(node.this)):
        found.append(node)
        return
    for child in node.iter_expressions():
        _collect(child, found)


def _is_aggregate(node: exp.Expr) -> bool:
    return isinstance(node, exp.Anonymous) and node.name.upper() in _OF_ONE


def call_of(node: exp.Expr) -> AggregateCall:
    """The call, checked for its form."""
    condition = None
    call = node
    if isinstance(node, exp.Filter):
        call, condition = node.this, node.expression.this
    name = call.name.upper()
    arguments = list(call.expressions)
    is_distinct = len(arguments) == 1 and isinstance(arguments[0], exp.Distinct)
    if is_distinct:
        if arguments[0].args.get("on") is not None:
            raise refusal(node, f"{shown(node)}: DISTINCT ON is not supported here: leave ON out")
        arguments = list(arguments[0].expressions)
    if len(arguments) != 1:
        raise refusal(node, f"{shown(node)}: {name} takes one argument: concatenate several, or count each")
    if isinstance(arguments[0], exp.Star):
        if name != "COUNT" or is_distinct:
            raise refusal(node, f"{shown(node)}: only COUNT takes *: name a column")
        return AggregateCall(node, name, None, False, condition)
    if is_distinct and name not in ("COUNT", "MIN", "MAX", "APPROX_COUNT_DISTINCT"):
        raise refusal(
            node,
            f"{shown(node)}: there is no {name} of different values: COUNT(DISTINCT x) there is, or "
            "compute it "
            "in window(...).process(...)",
        )
    return AggregateCall(node, name, arguments[0], is_distinct, condition)


def argument_of(call: AggregateCall, scalars: Scalars, more: pl.Expr | None) -> Typed | None:
    """The values that it takes, null in rows that do not count; None: it counts rows, all of them. `more`:
    what has to be true of a row beside the call's own FILTER."""
    counts = more
    if call.condition is not None:
        own = scalars.condition(call.condition, "FILTER")
        counts = own if more is None else own & more
    if counts is not None:
        counts = counts.fill_null(False)
    if call.argument is None:
        return None if counts is None else Typed(pl.when(counts).then(pl.lit(1, dtype=pl.Int8)), pl.Int8())
    value = (scalars if counts is None else scalars.where(counts)).typed(call.argument)
    if is_null(value.type):
        value = Typed(value.expr.cast(pl.Int64), pl.Int64())
    _check_type(call, value.type)
    return value if counts is None else Typed(pl.when(counts).then(value.expr), value.type)


def _check_type(call: AggregateCall, of: pl.DataType) -> None:
    is_wrong = not can_be_compared(of)
    if call.name in ("SUM", "AVG"):
        is_wrong = not of.is_numeric()
    if call.name == "AVG" and isinstance(of, pl.Decimal):
        raise refusal(
            call.node,
            f"{shown(call.node)}: no one scale is right for a mean of decimals: CAST(... AS DOUBLE), "
            "or divide "
            "SUM by COUNT",
        )
    if is_wrong and not (call.name == "COUNT" and not call.is_distinct):
        raise refusal(
            call.node, f"{shown(call.node)}: there is no {call.name} of {type_name(of)}: CAST the argument"
        )


def operator_aggregate(call: AggregateCall, column: str | None) -> BuiltinAggregate:
    """What the window operator computes over a column."""
    if column is None:
        return count()
    if call.name == "COUNT" and call.is_distinct:
        return count_distinct(column)
    return _OF_ONE[call.name](column)
