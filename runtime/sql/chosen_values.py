"""CASE, COALESCE, NULLIF, IF, GREATEST and LEAST: one value of several, all brought to one type."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import reduce
from typing import TYPE_CHECKING

import polars as pl
from sqlglot import exp

from onceflow.runtime.sql.checks import FIRST, SECOND, part, step
from onceflow.runtime.sql.comparing import comparable
from onceflow.runtime.sql.places import refusal, shown
from onceflow.runtime.sql.sql_types import Typed, common_type, converted, type_name

if TYPE_CHECKING:
    from onceflow.runtime.sql.scalars import Scalars


def arguments(node: exp.Expr, at_least: int, at_most: int | None = None) -> list[exp.Expr]:
    """The arguments of a call. Raises GraphError for another number of them."""
    given = list(node.expressions)
    if len(given) < at_least or (at_most is not None and len(given) > at_most):
        wanted = str(at_least) if at_most == at_least else f"{at_least} to {at_most or 'any number of'}"
        raise refusal(node, f"{shown(node)}: {node.name.upper()} takes {wanted} arguments: see docs/sql.md")
    return given


def in_one_type(node: exp.Expr, values: Sequence[Typed]) -> tuple[list[pl.Expr], pl.DataType]:
    """All values in the type that they have together."""
    of: pl.DataType = pl.Null()
    for value in values:
        both = common_type(of, value.type)
        if both is None:
            raise refusal(
                node,
                f"{shown(node)} gives {type_name(of)} in one case and {type_name(value.type)} in another: "
                "CAST one of them",
            )
        of = both
    return [converted(value, of) for value in values], of


def _case(scalars: Scalars, node: exp.Expr) -> Typed:
    of = None if node.this is None else scalars.typed(node.this)
    conditions: list[pl.Expr] = []
    results: list[Typed] = []
    remaining = scalars
    for branch in node.args["ifs"]:
        if of is None:
            condition = remaining.condition(branch.this, "WHEN")
        else:
            a, b = comparable(branch, of, remaining.typed(branch.this))
            condition = a == b
        is_it = condition.fill_null(False)
        conditions.append(is_it)
        results.append(remaining.where(is_it).typed(branch.args["true"]))
        remaining = remaining.where(~is_it)
    default = node.args.get("default")
    results.append(Typed(pl.lit(None), pl.Null()) if default is None else remaining.typed(default))
    made, common = in_one_type(node, results)
    n = len(conditions)
    chosen = part(2 * n)
    for place in reversed(range(n)):
        chosen = pl.when(part(place)).then(part(n + place)).otherwise(chosen)
    return Typed(step([*conditions, *made], chosen, common), common)


def _if(scalars: Scalars, node: exp.Expr) -> Typed:
    condition, yes, no = arguments(node, 3, 3)
    is_it = scalars.condition(condition, "IF").fill_null(False)
    made, of = in_one_type(node, [scalars.where(is_it).typed(yes), scalars.where(~is_it).typed(no)])
    rule = pl.when(part(0)).then(part(1)).otherwise(part(2))
    return Typed(step([is_it, *made], rule, of), of)


def _coalesce(scalars: Scalars, node: exp.Expr) -> Typed:
    values: list[Typed] = []
    remaining = scalars
    for each in arguments(node, 1):
        values.append(remaining.typed(each))
        remaining = remaining.where(values[-1].expr.is_null())
    made, of = in_one_type(node, values)
    return Typed(step(made, pl.coalesce(part(place) for place in range(len(made))), of), of)


def _nullif(scalars: Scalars, node: exp.Expr) -> Typed:
    first, second = (scalars.typed(each) for each in arguments(node, 2, 2))
    a, b = comparable(node, first, second)
    rule = pl.when((part(1) == part(2)).fill_null(False)).then(None).otherwise(part(0))
    return Typed(step([first.expr, a, b], rule, first.type), first.type)


def _extreme(better: Callable[[pl.Expr, pl.Expr], pl.Expr]) -> Callable[[Scalars, exp.Expr], Typed]:
    """Null if one of the values is, as in Flink."""

    def rule(scalars: Scalars, node: exp.Expr) -> Typed:
        values = [scalars.typed(each) for each in arguments(node, 1)]
        made, of = in_one_type(node, values)
        comparable(node, Typed(made[0], of), Typed(made[0], of))
        of_two = pl.when(better(FIRST, SECOND)).then(FIRST).when(~better(FIRST, SECOND)).then(SECOND)
        return Typed(reduce(lambda a, b: step([a, b], of_two, of), made), of)

    return rule


RULES: Mapping[type[exp.Expr], Callable[[Scalars, exp.Expr], Typed]] = {exp.Case: _case}
FUNCTIONS: Mapping[str, Callable[[Scalars, exp.Expr], Typed]] = {
    "COALESCE": _coalesce,
    "GREATEST": _extreme(lambda a, b: a >= b),
    "IF": _if,
    "IFNULL": _coalesce,
    "LEAST": _extreme(lambda a, b: a <= b),
    "NULLIF": _nullif,
}
