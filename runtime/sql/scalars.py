"""Expressions of SQL as expressions over columns: what each kind of node becomes. The rules of each kind are
in files of their own."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Protocol

import polars as pl
from sqlglot import exp

from onceflow.runtime.nearest import nearest
from onceflow.runtime.sql import (
    arithmetic,
    chosen_values,
    comparing,
    conversions,
    literals,
    logic,
    number_functions,
    text_functions,
    time_functions,
)
from onceflow.runtime.sql.places import place, refusal, shown
from onceflow.runtime.sql.sql_types import Typed, is_null, type_name

Rule = Callable[["Scalars", exp.Expr], Typed]


class Names(Protocol):
    """What the names in an expression mean."""

    def column(self, node: exp.Column) -> Typed:
        """The column, or a field of one. Raises GraphError with the nearest name."""
        ...

    def known(self, node: exp.Expr) -> Typed | None:
        """What stands for the whole node: a key or an aggregate of a grouped query."""
        ...


@dataclass(frozen=True)
class Scalars:
    """Makes expressions over columns of those of SQL."""

    names: Names
    guard: pl.Expr | None = None
    """The rows for which the value counts; others must not fail. None: all."""

    def typed(self, node: exp.Expr) -> Typed:
        """The expression and its type. Raises GraphError for what there is not, with its place."""
        if (known := self.names.known(node)) is not None:
            return known
        if isinstance(node, exp.Column):
            return self.names.column(node)
        if isinstance(node, exp.Paren | exp.Alias):
            return self.typed(node.this)
        if isinstance(node, exp.Anonymous):
            return folded(self._call(node))
        rule = _RULES.get(type(node))
        if rule is None:
            raise refusal(node, _unknown(node))
        refuse_more(node)
        return folded(rule(self, node))

    def condition(self, node: exp.Expr, where: str) -> pl.Expr:
        """True, false or null for each row. Raises GraphError for another type."""
        made = self.typed(node)
        if is_null(made.type):
            return made.expr.cast(pl.Boolean)
        if not isinstance(made.type, pl.Boolean):
            raise refusal(
                node, f"{where} needs true or false, but {shown(node)} is {type_name(made.type)}: compare it"
            )
        return made.expr

    def where(self, condition: pl.Expr) -> Scalars:
        """The same where values count only for rows for which the condition is true."""
        guard = condition if self.guard is None else self.guard & condition
        return replace(self, guard=guard)

    def protected(self, value: pl.Expr) -> pl.Expr:
        """The value, and null where it does not count: it can't fail there."""
        return value if self.guard is None else pl.when(self.guard).then(value)

    def where_is(self, node: exp.Expr) -> str:
        """How a sentence about a row's value begins."""
        return f"{place(node)}: {shown(node)}"

    def _call(self, node: exp.Anonymous) -> Typed:
        name = str(node.name).upper()
        rule = FUNCTIONS.get(name)
        if rule is not None:
            return rule(self, node)
        if name in _OF_THE_CLOCK:
            raise refusal(node, _OTHER_EACH_TIME.format(name))
        if name in _AGGREGATES:
            raise refusal(
                node,
                f"{name} is an aggregate, which has no place here: it may stand in SELECT and HAVING "
                "of a query "
                "with GROUP BY, and not inside another aggregate",
            )
        if name in _WINDOWS:
            raise refusal(node, f"{name} has to be called in GROUP BY as well: GROUP BY TUMBLE(ts, ...)")
        raise refusal(
            node, f"there is no function {name}{nearest(name, FUNCTIONS)}: see docs/sql.md for the list"
        )


FUNCTIONS: Mapping[str, Rule] = {
    **chosen_values.FUNCTIONS,
    **number_functions.FUNCTIONS,
    **text_functions.FUNCTIONS,
    **time_functions.FUNCTIONS,
}
_RULES: Mapping[type[exp.Expr], Rule] = {
    **arithmetic.RULES,
    **chosen_values.RULES,
    **comparing.RULES,
    **conversions.RULES,
    **literals.RULES,
    **logic.RULES,
    **text_functions.RULES,
    **time_functions.RULES,
}
_ARGUMENTS: Mapping[type[exp.Expr], frozenset[str]] = {
    exp.Cast: frozenset(("this", "to", "safe")),
    exp.TryCast: frozenset(("this", "to", "safe")),
    exp.DPipe: frozenset(("this", "expression", "safe")),
    exp.In: frozenset(("this", "expressions", "query")),
    exp.Interval: frozenset(("this", "unit", "fraction_in_string")),
    exp.Literal: frozenset(("this", "is_string")),
    exp.Trim: frozenset(("this", "position", "expression")),
    exp.StrPosition: frozenset(("this", "substr")),
    exp.Substring: frozenset(("this", "start", "length")),
    exp.Div: frozenset(("this", "expression", "typed", "safe")),
    exp.Between: frozenset(("this", "low", "high")),
    exp.Case: frozenset(("this", "ifs", "default")),
}
_PLAIN = frozenset(("this", "expression"))
_AGGREGATES = frozenset(("COUNT", "SUM", "AVG", "MIN", "MAX", "APPROX_COUNT_DISTINCT"))
_WINDOWS = frozenset(
    f"{kind}{part}" for kind in ("TUMBLE", "HOP", "SESSION") for part in ("", "_START", "_END", "_ROWTIME")
)
_OF_THE_CLOCK = frozenset(
    ("NOW", "PROCTIME", "RAND", "RANDOM", "UUID", "CURRENT_ROW_TIMESTAMP", "UNIX_TIMESTAMP")
)
_OTHER_EACH_TIME = (
    "{} gives another value when rows are read again after a failure, so results would change: use a time "
    "column, or add the value with .map(...) before job.sql(...)"
)


def folded(made: Typed) -> Typed:
    """The same, as the value itself if it is the same for all rows."""
    if made.literal is not None or made.expr.meta.root_names() or is_null(made.type):
        return made
    value = pl.select(made.expr.alias("_"))["_"][0]
    return Typed(pl.lit(value, dtype=made.type), made.type)


def refuse_more(node: exp.Expr) -> None:
    """Raises GraphError if the node has a part that its rule does not look at."""
    allowed = _ARGUMENTS.get(type(node), _PLAIN)
    for name, value in node.args.items():
        if value not in (None, False, []) and name not in allowed and not name.startswith("_"):
            raise refusal(node, f"{shown(node)}: {name.upper()} is not supported here: leave it out")


def _unknown(node: exp.Expr) -> str:
    if isinstance(node, exp.CurrentTimestamp | exp.CurrentDate | exp.CurrentTime):
        return _OTHER_EACH_TIME.format(shown(node))
    if isinstance(node, exp.Window):
        return (
            f"{shown(node)}: OVER is not supported: aggregate in a window with GROUP BY, or use "
            "key_by(...).process(...)"
        )
    if isinstance(node, exp.Subquery | exp.Exists | exp.Select):
        return "a query inside an expression is not supported: write it in FROM, or join streams with the API"
    if isinstance(node, exp.Filter):
        return "FILTER belongs behind an aggregate: SUM(amount) FILTER (WHERE amount > 0)"
    if isinstance(node, exp.Star):
        return "* has no place here: it may stand in SELECT and in COUNT(*)"
    return f"{shown(node)} is not supported in an expression: see docs/sql.md for what there is"
