"""SELECT with GROUP BY: keys, windows and aggregates become `key_by(...).window(...).aggregate(...)`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import polars as pl
from sqlglot import exp

from onceflow.runtime.operators.aggregation.aggregates import BuiltinAggregate, count
from onceflow.runtime.sql.aggregate_calls import aggregates_in, argument_of, call_of, operator_aggregate
from onceflow.runtime.sql.canonical import canonical
from onceflow.runtime.sql.places import refusal, shown
from onceflow.runtime.sql.relations import NO_ROLES, Column, Relation, Role, TableNames, Windowing, selected
from onceflow.runtime.sql.scalars import Scalars
from onceflow.runtime.sql.sql_types import Typed, type_name
from onceflow.runtime.sql.window_calls import group_window, moment
from onceflow.runtime.state.hashing import is_hashable

_START, _END = "window_start", "window_end"
_COUNTED = "COUNT(*)"
_PASSED = "COUNT(*) FILTER (WHERE true of the row)"
_CALLS = {"_START": Role.START, "_END": Role.END, "_ROWTIME": Role.TIME}


@dataclass
class Grouping:
    """What GROUP BY says: keys by their text, and the windows, with the text that stands for each bound."""

    names: TableNames
    keys: dict[str, exp.Expr] = field(default_factory=dict)
    bounds: dict[str, Role] = field(default_factory=dict)
    windowing: Windowing | None = None


@dataclass(frozen=True)
class GroupedNames:
    """The names that SELECT and HAVING of a grouped query may use: its keys, bounds and aggregates."""

    columns: Mapping[str, Column]
    alias: str | None

    def known(self, node: exp.Expr) -> Typed | None:
        """The key, bound or aggregate that the whole node is."""
        found = self.columns.get(canonical(node, self.alias))
        return None if found is None else found.value

    def column(self, node: exp.Column) -> Typed:
        """No other column has one value for a group."""
        raise refusal(
            node,
            f"{shown(node)} has many values in a group: add it to GROUP BY, or put it into an "
            "aggregate, MAX(x)",
        )

    def roles(self, node: exp.Expr) -> frozenset[Role]:
        found = self.columns.get(canonical(node, self.alias))
        return NO_ROLES if found is None else found.roles


def grouping_of(select: exp.Select, items: Sequence[exp.Expr], names: TableNames) -> Grouping:
    """What the query groups by. Raises GraphError without a window: such groups would never be complete."""
    made = Grouping(names)
    for item in items:
        _add_item(made, _meant(item, select, names))
    windowing = names.relation.windowing
    roles = set(made.bounds.values())
    if made.windowing is None and {Role.START, Role.END} <= roles:
        assert windowing is not None, "its columns have these roles"
        made.windowing = windowing
    if made.windowing is None:
        raise refusal(select if not items else items[0], _no_window(roles))
    of_function = made.windowing is windowing
    if windowing is not None and windowing.multiplies and not of_function:
        raise refusal(items[0], "the rows are in windows already: group by their window_start and window_end")
    keys = made.windowing.keys
    if keys is not None and {canonical(exp.column(key), None) for key in keys} != set(made.keys):
        wanted = ", ".join([*sorted(keys), _START, _END])
        raise refusal(
            items[0],
            f"sessions are apart by {', '.join(sorted(keys)) or 'nothing'}, as PARTITION BY says: "
            f"GROUP BY {wanted}",
        )
    return made


def _no_window(roles: set[Role]) -> str:
    if roles:
        lacking = _END if Role.START in roles else _START
        return f"GROUP BY needs both bounds of the window: add {lacking}"
    return (
        "without a window a group is never complete, and its result would change with every row, "
        "which is not "
        "supported yet: GROUP BY TUMBLE(ts, INTERVAL '1' HOUR), or window_start, window_end of "
        "TABLE(TUMBLE(TABLE t, DESCRIPTOR(ts), INTERVAL '1' HOUR))"
    )


def _meant(item: exp.Expr, select: exp.Select, names: TableNames) -> exp.Expr:
    """GROUP BY 1, and GROUP BY the name that SELECT gives to an expression."""
    if isinstance(item, exp.Literal) and not item.args.get("is_string"):
        place = int(str(item.this)) if str(item.this).isdigit() else 0
        if not 1 <= place <= len(select.expressions):
            raise refusal(
                item, f"GROUP BY {shown(item)}: SELECT has {len(select.expressions)} columns: name one"
            )
        return select.expressions[place - 1].unalias()
    if isinstance(item, exp.Column) and len(item.parts) == 1 and item.name not in names.relation.columns:
        for each in select.expressions:
            if isinstance(each, exp.Alias) and each.alias == item.name:
                return each.this
    return item


def _add_item(made: Grouping, item: exp.Expr) -> None:
    text = canonical(item, made.names.alias)
    if isinstance(item, exp.Anonymous) and item.name.upper() in ("TUMBLE", "HOP", "SESSION", "CUMULATE"):
        if made.windowing is not None:
            raise refusal(item, "GROUP BY has two windows: write one query for each")
        made.windowing = group_window(item, made.names)
        arguments = text.partition("(")[2]
        for ending, role in _CALLS.items():
            made.bounds[f"{made.windowing.kind}{ending}({arguments}"] = role
        return
    roles = made.names.roles(item) & {Role.START, Role.END, Role.TIME}
    windowing = made.names.relation.windowing
    if roles and windowing is not None:
        made.bounds[text] = next(iter(roles))
        return
    if aggregates_in([item]):
        raise refusal(
            item, f"{shown(item)}: an aggregate can't be a key: group by columns, and filter with HAVING"
        )
    made.keys[text] = item


def grouped(
    select: exp.Select, grouping: Grouping, condition: pl.Expr | None, uid: str | None
) -> tuple[Relation, GroupedNames, pl.Expr | None]:
    """The relation with a row for each group, what its columns mean, and what has to be true of a group so
    that there is one. `condition`: of rows that are in the windows, but do not count."""
    names, windowing = grouping.names, grouping.windowing
    assert windowing is not None
    scalars = Scalars(names)
    columns: dict[str, pl.Expr] = {}
    keys = {text: _key(text, item, scalars, columns) for text, item in grouping.keys.items()}
    aggregates: dict[str, tuple[str, Typed | None]] = {}
    computed: dict[str, BuiltinAggregate] = {}
    having = select.args.get("having")
    for node in aggregates_in([*select.expressions, *([having.this] if having else [])]):
        text = canonical(node, names.alias)
        if text in computed:
            continue
        call = call_of(node)
        argument = argument_of(call, scalars, condition)
        name = None if argument is None else _argument_name(text, argument, columns)
        computed[text] = operator_aggregate(call, name)
        aggregates[text] = text, argument
    if condition is not None:
        passed = Typed(pl.when(condition.fill_null(False)).then(pl.lit(1, dtype=pl.Int8)), pl.Int8())
        computed[_PASSED] = count(_argument_name(_PASSED, passed, columns))
    if not computed:
        computed[_COUNTED] = count()
    stream = names.relation.stream
    if columns:
        stream = selected(stream, list(columns.items()))
    windows = (
        stream.key_by(*(key.expr.meta.output_name() for key in keys.values())).window(windowing.window)
        if keys
        else stream.window_all(windowing.window)
    )
    results = windows.aggregate(uid=uid, **computed)
    types = pl.from_arrow(results.schema.empty_table()).schema  # type: ignore[union-attr]
    known = {text: Column(key) for text, key in keys.items()}
    known |= {text: Column(Typed(pl.col(text), types[text])) for text in aggregates}
    of_time = {Role.EVENT_TIME, Role.START, Role.END}
    time = next(c.value.type for c in names.relation.columns.values() if of_time & c.roles)
    known |= {text: _bound(role, time, windowing) for text, role in grouping.bounds.items()}
    relation = Relation(results, known, None if windowing.multiplies else windowing)
    passed_by = pl.col(_PASSED) > 0 if condition is not None else None
    return relation, GroupedNames(known, names.alias), passed_by


def _key(text: str, item: exp.Expr, scalars: Scalars, columns: dict[str, pl.Expr]) -> Typed:
    value = scalars.typed(item)
    if not is_hashable(pl.Series([], dtype=value.type).to_arrow().type):
        raise refusal(
            item, f"{shown(item)} is {type_name(value.type)}, which can't be a key: group by a part of it"
        )
    name = f"key {text}" if text in (_START, _END) else text
    columns[name] = value.expr
    return Typed(pl.col(name), value.type)


def _argument_name(text: str, argument: Typed, columns: dict[str, pl.Expr]) -> str:
    """The column that an aggregate reads; one that goes through as it is keeps its name."""
    name = f"of {text}"
    if argument.expr.meta.is_column():
        name = argument.expr.meta.output_name()
        if name in columns and not columns[name].meta.eq(argument.expr):
            name = f"of {text}"
    columns[name] = argument.expr
    return name


def _bound(role: Role, time: pl.DataType, windowing: Windowing) -> Column:
    ms = {Role.START: pl.col(_START), Role.END: pl.col(_END), Role.TIME: pl.col(_END) - 1}[role]
    roles = frozenset((role,)) if not windowing.multiplies else NO_ROLES
    if role is Role.TIME:
        roles |= {Role.EVENT_TIME}
    return Column(moment(ms, time), roles)
