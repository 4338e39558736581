"""Conditions on rows of one table alone: rows for which they are not true need not come to the join, and so
are not kept there."""

from __future__ import annotations

from collections.abc import Set

from sqlglot import exp

from onceflow.runtime.operators.joins.joined_columns import LEFT, RIGHT
from onceflow.runtime.sql.join_conditions import Conditions, sides_in
from onceflow.runtime.sql.joined_names import Scope
from onceflow.runtime.sql.relations import TableNames, kept
from onceflow.runtime.sql.scalars import Scalars

_NEVER_FAIL = (
    *(exp.Column, exp.Identifier, exp.Literal, exp.Boolean, exp.Null, exp.Paren),
    *(exp.EQ, exp.NEQ, exp.GT, exp.GTE, exp.LT, exp.LTE, exp.Between, exp.In, exp.Is, exp.Like),
    *(exp.And, exp.Or, exp.Not),
)
"""What may be computed for more rows than the query asks for."""


def take_filters(
    conditions: Conditions, where: list[exp.Expr], both: Scope, sides: tuple[Scope, Scope], may: Set[int]
) -> tuple[list[exp.Expr], list[exp.Expr]]:
    """The conditions on each side alone, of those sides that `may` have some, taken from the others."""
    found: tuple[list[exp.Expr], list[exp.Expr]] = ([], [])
    for node in list(conditions.rest):
        if (side := _side(node, sides, may)) is not None:
            found[side].append(node)
            conditions.rest.remove(node)
    for node in [node for node in where if both.knows(node)]:
        rewritten = both.rewritten(node)
        if (side := _side(rewritten, sides, may)) is not None:
            found[side].append(rewritten)
            where.remove(node)
    return found


def filtered(side: Scope, conditions: list[exp.Expr]) -> Scope:
    """The rows of a side for which all of these are true."""
    if not conditions:
        return side
    names = TableNames(side.relation, None)
    condition = Scalars(names).condition(exp.and_(*conditions, copy=False), "ON")
    return Scope(kept(side.relation, condition), side.tables, side.merged)


def _side(node: exp.Expr, sides: tuple[Scope, Scope], may: Set[int]) -> int | None:
    """The side that a condition is about alone, if it may be looked at before the join."""
    of = sides_in(node, *sides)
    if of not in ({LEFT}, {RIGHT}) or not all(isinstance(each, _NEVER_FAIL) for each in node.walk()):
        return None
    (side,) = of
    names = [each.parts[0].name for each in node.find_all(exp.Column)]
    is_known = not any(sides[side].relation.columns[name].is_virtual for name in names)
    return side if is_known and side in may else None
