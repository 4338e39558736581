"""What a join says of its pairs: equal keys, bounds of time, equal windows, and what else has to be true."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from sqlglot import exp

from onceflow.runtime.sql.joined_names import Scope
from onceflow.runtime.sql.relations import OF_WINDOWS, Role
from onceflow.runtime.sql.sql_types import is_moment
from onceflow.runtime.sql.time_bounds import Bounds, Times, bounds_in


@dataclass(frozen=True)
class Key:
    """Two expressions that have to be equal, one of each side, and where the query says so."""

    left: exp.Expr
    right: exp.Expr
    node: exp.Expr


@dataclass
class Conditions:
    """The conditions of a join, by what they are for."""

    keys: list[Key] = field(default_factory=list)
    bounds: Bounds = field(default_factory=Bounds)
    timed: list[exp.Expr] = field(default_factory=list)
    """The conditions that the bounds are made of."""
    windows: set[Role] = field(default_factory=set)
    """The columns of windows that have to be equal."""
    rest: list[exp.Expr] = field(default_factory=list)


def conjuncts(node: exp.Expr | None) -> Iterator[exp.Expr]:
    """The parts of `x AND y AND z`."""
    inner = None if node is None else node.unnest()
    if isinstance(inner, exp.And):
        yield from conjuncts(inner.this)
        yield from conjuncts(inner.expression)
    elif node is not None:
        yield node


def times_of(left: Scope, right: Scope) -> Times | None:
    """The event times of both sides, if both are known and can be compared."""
    names = [side.relation.event_time for side in (left, right)]
    if names[0] is None or names[1] is None:
        return None
    moments = [
        is_moment(side.relation.columns[name].value.type)
        for side, name in zip((left, right), names, strict=True)
        if name is not None
    ]
    return Times(names[0], names[1], not moments[0]) if moments[0] == moments[1] else None


def add_condition(made: Conditions, node: exp.Expr, left: Scope, right: Scope) -> bool:
    """Put a condition, in the names of the joined rows, where it belongs. False: it is none of those that
    a join is made by."""
    times = times_of(left, right)
    if isinstance(node, exp.EQ) and (role := _window_column(node, left, right)) is not None:
        made.windows.add(role)
        return True
    bounds = None if times is None else bounds_in(node, times)
    if bounds is not None:
        made.bounds.narrow(bounds.lower, bounds.upper)
        made.timed.append(node)
        return True
    if isinstance(node, exp.EQ) and (key := _key(node, left, right)) is not None:
        made.keys.append(key)
        return True
    return False


def use_times_as_keys(made: Conditions, left: Scope, right: Scope) -> None:
    """Make equal times a key if there is no other one."""
    for node in made.timed:
        plain = isinstance(node, exp.EQ) and isinstance(node.this, exp.Column)
        if not made.keys and plain and isinstance(node.expression, exp.Column):
            made.keys += filter(None, [_key(node, left, right)])


def _key(node: exp.EQ, left: Scope, right: Scope) -> Key | None:
    of_first, of_second = (sides_in(each, left, right) for each in (node.this, node.expression))
    if (of_first, of_second) == ({0}, {1}):
        return Key(node.this, node.expression, node)
    return Key(node.expression, node.this, node) if (of_first, of_second) == ({1}, {0}) else None


def sides_in(node: exp.Expr, left: Scope, right: Scope) -> set[int]:
    """The sides whose columns the expression reads."""
    names = {each.parts[0].name for each in node.find_all(exp.Column)}
    return {n for n, side in enumerate((left, right)) if names & side.relation.columns.keys()}


def _window_column(node: exp.EQ, left: Scope, right: Scope) -> Role | None:
    """The bound of windows that both columns are."""
    roles = [_roles((node.this, node.expression), side) for side in (left, right)]
    return next(iter(roles[0] & roles[1]), None)


def _roles(nodes: Iterable[exp.Expr], side: Scope) -> frozenset[Role]:
    names = [node.name for node in nodes if isinstance(node, exp.Column) and len(node.parts) == 1]
    found = [side.relation.columns[name].roles for name in names if name in side.relation.columns]
    windowed = side.relation.windowing is not None
    return found[0] & OF_WINDOWS if len(found) == 1 and windowed else frozenset()
