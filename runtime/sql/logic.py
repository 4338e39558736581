"""AND, OR and NOT with the three values of SQL: true, false and unknown, which is null.

The right side is left alone where the left one has decided: it must not fail for such rows.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

import polars as pl
from sqlglot import exp

from onceflow.runtime.sql.sql_types import Typed

if TYPE_CHECKING:
    from onceflow.runtime.sql.scalars import Scalars


def _and(scalars: Scalars, node: exp.Expr) -> Typed:
    left = scalars.condition(node.this, "AND")
    right = scalars.where(left.fill_null(True)).condition(node.expression, "AND")
    return Typed(left & right, pl.Boolean())


def _or(scalars: Scalars, node: exp.Expr) -> Typed:
    left = scalars.condition(node.this, "OR")
    right = scalars.where(~left.fill_null(False)).condition(node.expression, "OR")
    return Typed(left | right, pl.Boolean())


def _not(scalars: Scalars, node: exp.Expr) -> Typed:
    return Typed(~scalars.condition(node.this, "NOT"), pl.Boolean())


RULES: Mapping[type[exp.Expr], Callable[[Scalars, exp.Expr], Typed]] = {
    exp.And: _and,
    exp.Or: _or,
    exp.Not: _not,
}
