"""JOIN: two tables become one, by conditions of which each has its place."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace

import polars as pl
from sqlglot import exp

from onceflow.runtime.operators.joins.joined_columns import LEFT, PADDED, RIGHT
from onceflow.runtime.sql.join_conditions import (
    Conditions,
    add_condition,
    conjuncts,
    use_times_as_keys,
)
from onceflow.runtime.sql.join_filters import filtered, take_filters
from onceflow.runtime.sql.join_steps import Join, in_time, in_windows, temporal
from onceflow.runtime.sql.joined_names import Scope, column
from onceflow.runtime.sql.places import refusal
from onceflow.runtime.sql.refused_joins import refuse_join
from onceflow.runtime.sql.relations import (
    Column,
    Relation,
)
from onceflow.runtime.sql.sql_types import Typed, common_type, converted


def join_of(
    node: exp.Join,
    left: Scope,
    source: tuple[Relation, str | None],
    where: list[exp.Expr],
    uids: Callable[[], str | None],
) -> Scope:
    """The rows of a JOIN, as a scope with one table more. `where`: conditions of WHERE that it may use,
    from which those that it does use are taken."""
    refuse_join(node)
    relation, alias = source
    table = left.beside(alias, list(relation.columns), node.this)
    columns = {table.columns[name]: c for name, c in relation.columns.items()}
    right = Scope(replace(relation, columns=columns), (table,))
    both = Scope(
        replace(left.relation, columns={**left.relation.columns, **columns}),
        (*left.tables, table),
        left.merged,
    )
    conditions = Conditions()
    merged = _add_using(conditions, node, left, right)
    for each in conjuncts(node.args.get("on")):
        rewritten = both.rewritten(each)
        if not add_condition(conditions, rewritten, left, right):
            conditions.rest.append(rewritten)
    for each in [each for each in where if both.knows(each)]:
        if add_condition(conditions, both.rewritten(each), left, right):
            where.remove(each)
    use_times_as_keys(conditions, left, right)
    how = str(node.args.get("side") or "inner").lower()
    # Rows that come out without a partner are all there; and without a version, an older one would count.
    may = {LEFT, RIGHT} - set(PADDED[how]) - ({RIGHT} if node.this.args.get("version") else set())
    filters = take_filters(conditions, where, both, (left, right), may)
    left, right = (filtered(side, given) for side, given in zip((left, right), filters, strict=True))
    join = Join(node, left, right, table, how, conditions, uids())
    made, of_both = _with_merged(_joined(join), merged, join.how)
    return Scope(made, both.tables, {**left.merged, **of_both})


def _add_using(
    conditions: Conditions, node: exp.Join, left: Scope, right: Scope
) -> dict[str, tuple[str, str]]:
    """The conditions of USING; and both columns, by the name that stands for them."""
    made, (table,) = {}, right.tables
    for each in node.args.get("using") or []:
        if each.name not in table.columns:
            raise refusal(each, f"USING: there is no column {each.name!r} in {table.alias!r}: use ON")
        ours = left.rewritten(column([each.name], each))
        theirs = column([table.columns[each.name]], each)
        add_condition(conditions, exp.EQ(this=ours, expression=theirs), left, right)
        made[each.name] = ours.name, theirs.name
    return made


def _joined(join: Join) -> Relation:
    version = join.node.this.args.get("version")
    if version is None and join.conditions.windows:
        return in_windows(join)
    for side in (join.left, join.right):
        if side.relation.windowing is not None and side.relation.windowing.multiplies:
            raise refusal(
                join.node,
                f"rows of {side.relation.windowing.kind} can be joined by their windows only: compare "
                "window_start and window_end, or group by them first",
            )
    plain = replace(
        join,
        left=replace(join.left, relation=join.left.relation.without_windowing()),
        right=replace(join.right, relation=join.right.relation.without_windowing()),
    )
    return in_time(plain) if version is None else temporal(plain, version)


def _with_merged(
    made: Relation, merged: Mapping[str, tuple[str, str]], how: str
) -> tuple[Relation, dict[str, str]]:
    """The joined rows, and the columns of them that stand for those of USING: of the side that there always
    is, and in a FULL JOIN of whichever there is."""
    columns, names = dict(made.columns), {}
    for name, (ours, theirs) in merged.items():
        names[name] = theirs if how == "right" else ours
        if how == "full":
            both = [columns[ours].value, columns[theirs].value]
            of = common_type(both[0].type, both[1].type)
            assert of is not None, "they are compared"
            names[name] = f"{name} of both"
            columns[names[name]] = Column(Typed(pl.coalesce(converted(each, of) for each in both), of))
    return replace(made, columns=columns), names
