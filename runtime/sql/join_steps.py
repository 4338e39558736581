"""Interval joins, window joins and temporal joins, whose results stay once they are sent, as steps."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Any

import polars as pl
from sqlglot import exp

from onceflow.runtime.api.stream import Stream
from onceflow.runtime.sql.canonical import canonical
from onceflow.runtime.sql.join_conditions import (
    Conditions,
)
from onceflow.runtime.sql.join_sides import Sides, sides_of
from onceflow.runtime.sql.joined_names import Scope, Table
from onceflow.runtime.sql.joined_times import times_behind
from onceflow.runtime.sql.places import refusal
from onceflow.runtime.sql.refused_joins import refuse_keyless, refuse_unbounded
from onceflow.runtime.sql.relations import (
    NO_ROLES,
    OF_WINDOWS,
    Column,
    Relation,
    Role,
    TableNames,
    Windowing,
    kept,
)
from onceflow.runtime.sql.scalars import Scalars
from onceflow.runtime.sql.sql_types import Typed
from onceflow.runtime.sql.window_calls import check_event_time, moment

_LONGEST_MS = 1 << 53
_START, _END = "window_start", "window_end"
_BOUNDS = frozenset((Role.START, Role.END))


@dataclass(frozen=True)
class Join:
    """One JOIN: both sides, in the names of the joined rows, and its conditions."""

    node: exp.Join
    left: Scope
    right: Scope
    table: Table
    how: str
    conditions: Conditions
    uid: str | None

    @property
    def own_names(self) -> Mapping[str, str]:
        """What the right columns are called in their table, by their names in the joined rows."""
        return {joined: own for own, joined in self.table.columns.items()}

    def sides(self, is_marked: bool = False) -> Sides:
        given = self.conditions
        return sides_of(self.left, self.right, self.own_names, given.keys, self.how, is_marked)


# --- Interval join ---


def in_time(join: Join) -> Relation:
    given = join.conditions
    refuse_unbounded(join.node, given, join.left, join.right)
    lower, upper = given.bounds.lower, given.bounds.upper
    assert lower is not None, "it was checked"
    assert upper is not None, "it was checked"
    rest = list(given.rest)
    exact = lower, upper
    if any(_is_finer(side.relation) for side in (join.left, join.right)):
        lower, upper = lower - 1, upper + 1
        rest += given.timed
    if max(abs(lower), abs(upper)) > _LONGEST_MS:
        raise refusal(join.node, "the bounds of time are too far apart: write shorter ones")
    if lower > upper:
        raise refusal(join.node, "no two times are within these bounds: look which of them is the lower one")
    sides = join.sides()
    columns = _columns(join, sides)
    roles, texts = times_behind(join.left, join.right, exact, join.how)
    for name in roles:
        columns[name] = replace(columns[name], roles=frozenset((Role.EVENT_TIME,)))
    where, filtered = _conditions(join, columns, rest)
    ours, theirs = sides.streams
    stream = ours.interval_join(theirs, lower, upper, how=join.how, where=where, uid=join.uid)
    return _relation(stream, columns, filtered, computed_times=texts)


def _is_finer(relation: Relation) -> bool:
    """Whether its event time is finer than a ms, in which the operator counts."""
    name = relation.event_time
    dtype = None if name is None else relation.columns[name].value.type
    return isinstance(dtype, pl.Datetime) and dtype.time_unit != "ms"


# --- Window join ---


def in_windows(join: Join) -> Relation:
    of_left, of_right = (side.relation.windowing for side in (join.left, join.right))
    assert of_left is not None, "a column of it has the role"
    assert of_right is not None, "a column of it has the role"
    if not join.conditions.windows >= _BOUNDS:
        raise refusal(
            join.node, "windows are the same if both bounds are: compare window_start, and window_end too"
        )
    refuse_keyless(join.node, join.conditions)
    if of_left.kind == "SESSION" or (of_left.kind, of_left.window) != (of_right.kind, of_right.window):
        raise refusal(
            join.node,
            "only rows in windows of one kind and size can be joined by these: give both tables the same "
            "TUMBLE, HOP or CUMULATE",
        )
    sides = join.sides(is_marked=True)
    columns = _columns(join, sides)
    where, filtered = _conditions(join, columns, [*join.conditions.rest, *join.conditions.timed])
    for side, mark in zip((join.left, join.right), sides.marks, strict=True):
        for name, column_ in side.relation.columns.items():
            if role := next(iter(column_.roles & OF_WINDOWS), None):
                columns[name] = _window_column(role, column_.value.type, mark, of_left)
    ours, theirs = sides.streams
    window: Any = of_left.window  # those of table functions are windows of time
    stream = ours.window_join(theirs, window, how=join.how, where=where, uid=join.uid)
    return _relation(stream, columns, filtered, windowing=None if of_left.multiplies else of_left)


def _window_column(role: Role, dtype: pl.DataType, mark: str | None, windowing: Windowing) -> Column:
    """A bound of the window that rows of both sides are in; null where there is no row of its side."""
    ms = {Role.START: pl.col(_START), Role.END: pl.col(_END), Role.TIME: pl.col(_END) - 1}[role]
    value = moment(ms, dtype)
    if mark is not None:
        return Column(Typed(pl.when(pl.col(mark).is_not_null()).then(value.expr), dtype))
    roles = NO_ROLES if windowing.multiplies else frozenset((role,))
    return Column(value, roles | {Role.EVENT_TIME} if role is Role.TIME else roles)


# --- Temporal join ---


def temporal(join: Join, version: exp.Version) -> Relation:
    refuse_keyless(join.node, join.conditions)
    if join.how not in ("inner", "left"):
        raise refusal(
            join.node,
            f"{join.how.upper()} JOIN of versions: there are only JOIN and LEFT JOIN, use one of them",
        )
    if str(version.args.get("kind")) != "AS OF" or str(version.this) != "TIMESTAMP":
        raise refusal(version, "of a version there is just FOR SYSTEM_TIME AS OF o.ts: write that")
    check_event_time(join.left.rewritten(version.expression), TableNames(join.left.relation, None))
    if join.right.relation.event_time is None:
        raise refusal(
            join.node,
            f"the event time of {join.table.alias!r}, since when a version holds, is not known: its "
            "source needs watermarks= with event_time=, and the column has to reach the query as it is",
        )
    sides = join.sides()
    columns = _columns(join, sides)
    time = join.left.relation.event_time
    assert time is not None, "it was checked"
    columns[time] = replace(columns[time], roles=frozenset((Role.EVENT_TIME,)))
    where, filtered = _conditions(join, columns, [*join.conditions.rest, *join.conditions.timed])
    ours, theirs = sides.streams
    stream = ours.temporal_join(theirs, how=join.how, where=where, uid=join.uid)
    return _relation(stream, columns, filtered)


# --- What all have ---


def _columns(join: Join, sides: Sides) -> dict[str, Column]:
    """The columns of the joined rows; nothing is known of them yet."""
    given = {**join.left.relation.columns, **join.right.relation.columns}
    return {name: Column(Typed(pl.col(out), given[name].value.type)) for name, out in sides.outputs.items()}


def _conditions(
    join: Join, columns: Mapping[str, Column], rest: list[exp.Expr]
) -> tuple[pl.Expr | None, pl.Expr | None]:
    """What else has to be true of a pair, as part of the join, and behind it: for an inner join that is the
    same, and the join has less to remember."""
    if not rest:
        return None, None
    node = exp.and_(*rest, copy=False)
    names = TableNames(replace(join.left.relation, columns=columns), None)
    condition = Scalars(names).condition(node, "ON")
    if join.how == "inner":
        return None, condition
    return _named(condition, node), None


def _named(condition: pl.Expr, node: exp.Expr) -> pl.Expr:
    """The condition with the name by which state knows it: polars shows nothing of a function in it."""
    return condition.alias(canonical(node, None))


def _relation(
    stream: Stream[Any],
    columns: Mapping[str, Column],
    kept_where: pl.Expr | None,
    windowing: Windowing | None = None,
    computed_times: Mapping[str, str] = MappingProxyType({}),
) -> Relation:
    return kept(Relation(stream, columns, windowing, computed_times), kept_where)
