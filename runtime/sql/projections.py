"""What SELECT lists: the columns of the result, and which of them still mean what they meant."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import polars as pl
from sqlglot import exp

from onceflow.runtime.sql.grouped_select import GroupedNames
from onceflow.runtime.sql.places import refusal, shown
from onceflow.runtime.sql.relations import (
    OF_WINDOWS,
    Column,
    Relation,
    Role,
    TableNames,
    Windowing,
    selected,
)
from onceflow.runtime.sql.scalars import Scalars
from onceflow.runtime.sql.sql_types import Typed, is_null


def projected(select: exp.Select, relation: Relation, names: TableNames | GroupedNames) -> Relation:
    """The relation with the columns of SELECT."""
    scalars = Scalars(names)
    columns: dict[str, Column] = {}
    for name, node, given in _items(select, names):
        if name in columns:
            raise refusal(
                node, f"two columns of the result are called {name!r}: give one another name with AS"
            )
        columns[name] = given or _computed(node, scalars, names)
    roles: set[Role] = set().union(*(column.roles for column in columns.values()))
    windowing = relation.windowing
    if windowing is not None and not {Role.START, Role.END} <= roles:
        if windowing.multiplies:
            raise refusal(
                select,
                f"rows of {windowing.kind} have to be grouped by their windows: GROUP BY "
                "window_start, window_end",
            )
        windowing = None
    made = [(name, column.value.expr) for name, column in columns.items() if not column.is_virtual]
    event_time = next((name for name, c in columns.items() if Role.EVENT_TIME in c.roles), None)
    if windowing is not None and windowing.multiplies:
        windowing = _still_waiting(select, windowing, event_time, made)
    stream = relation.stream
    if windowing is None:
        columns = {n: Column(c.value, c.roles - OF_WINDOWS) for n, c in columns.items()}
    outer = {n: Column(Typed(pl.col(n), c.value.type), c.roles, c.is_virtual) for n, c in columns.items()}
    return Relation(selected(stream, made, event_time), outer, windowing)


def _still_waiting(
    select: exp.Select, windowing: Windowing, event_time: str | None, made: list[tuple[str, pl.Expr]]
) -> Windowing:
    """The windows of rows that are to be grouped in a query around this one."""
    if event_time is None:
        raise refusal(select, "rows in windows need their event time: add its column to SELECT")
    if windowing.keys is None:
        return windowing
    now = {e.meta.output_name(): name for name, e in made if e.meta.is_column()}
    if lost := sorted(windowing.keys - set(now)):
        raise refusal(
            select, f"sessions are apart by {', '.join(lost)}, as PARTITION BY says: add it to SELECT"
        )
    return replace(windowing, keys=frozenset(now[key] for key in windowing.keys))


def _items(
    select: exp.Select, names: TableNames | GroupedNames
) -> Iterator[tuple[str, exp.Expr, Column | None]]:
    """Name, node, and the column itself where * stands for it."""
    for node in select.expressions:
        is_star = isinstance(node, exp.Star) or (
            isinstance(node, exp.Column) and isinstance(node.this, exp.Star)
        )
        if not is_star:
            yield _name_of(node), node, None
            continue
        if isinstance(names, GroupedNames):
            raise refusal(node, "* has no place beside GROUP BY: name the keys and aggregates")
        if any(node.args.get(part) for part in ("except_", "replace", "rename")):
            raise refusal(node, f"{shown(node)}: only * alone is supported: name the columns")
        table = node.args.get("table") if isinstance(node, exp.Column) else None
        if table is not None and table.name != names.alias:
            raise refusal(node, f"there is no table {table.name!r}; there is {names.alias!r}")
        for name, column in names.relation.columns.items():
            yield name, node, column


def _name_of(node: exp.Expr) -> str:
    """The name that AS gives, the column's own, or the text of an expression."""
    if isinstance(node, exp.Alias):
        return str(node.alias)
    return str(node.name) if isinstance(node, exp.Column) else shown(node)


def _computed(node: exp.Expr, scalars: Scalars, names: TableNames | GroupedNames) -> Column:
    inner = node.unalias()
    if isinstance(names, TableNames) and isinstance(inner, exp.Column):
        found, fields = names.found(inner)
        if not fields:
            return found
    value = scalars.typed(inner)
    if is_null(value.type):
        raise refusal(node, f"{shown(node)} has no type: CAST(NULL AS STRING), for instance")
    return Column(value, names.roles(inner))
