"""Queries: SELECT, UNION ALL, WITH and sub-queries, as steps on streams."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import polars as pl
from sqlglot import exp

from onceflow.runtime.api.stream import Stream
from onceflow.runtime.errors import GraphError
from onceflow.runtime.nearest import nearest
from onceflow.runtime.sql.aggregate_calls import aggregates_in
from onceflow.runtime.sql.grammar import TableArgument
from onceflow.runtime.sql.grouped_select import GroupedNames, grouped, grouping_of
from onceflow.runtime.sql.join_conditions import conjuncts
from onceflow.runtime.sql.joined_names import Scope, over_join
from onceflow.runtime.sql.joined_tables import join_of
from onceflow.runtime.sql.places import refusal, shown
from onceflow.runtime.sql.projections import projected
from onceflow.runtime.sql.refused_joins import refuse_join
from onceflow.runtime.sql.refused_parts import refuse_column_names, refuse_parts
from onceflow.runtime.sql.relations import Relation, TableNames, kept, relation_of
from onceflow.runtime.sql.scalars import Scalars
from onceflow.runtime.sql.united_queries import united
from onceflow.runtime.sql.window_calls import split_arguments, table_function, with_windows

_PARTS = frozenset(("expressions", "from_", "where", "group", "having", "distinct", "with_", "kind", "joins"))


@dataclass
class Named:
    """A query of WITH, which may use what was named before it. It is made when it is first read, and once:
    its windows are one operator, however often it is read."""

    query: exp.Expr
    scope: Queries
    made: Relation | None = None

    def relation(self) -> Relation:
        if self.made is None:
            self.made = self.scope.relation(self.query)
        return self.made


@dataclass
class Queries:
    """The tables that a query may read, and its queries with a name, each of which is made once."""

    tables: Mapping[str, Stream[Any]]
    uids: Iterator[str | None]
    """The uids of the windows, in the order in which they are made."""
    named: Mapping[str, Named] = field(default_factory=dict)

    def relation(self, node: exp.Expr) -> Relation:
        """The rows of a query. Raises GraphError for what there is not."""
        if isinstance(node, exp.Subquery | exp.Paren):
            refuse_parts(node, frozenset(("this", "alias")))
            return self.relation(node.this)
        if isinstance(node, exp.Except | exp.Intersect):
            raise refusal(
                node, f"{type(node).__name__.upper()} would have to compare rows of all times: use a join"
            )
        if not isinstance(node, exp.Select | exp.Union):
            raise refusal(
                node, f"{shown(node)} is no query: job.sql(...) takes SELECT, and writes with .sink_to(...)"
            )
        inner = self._with_names(node.args.get("with_"))
        return inner._union(node) if isinstance(node, exp.Union) else inner._select(node)

    def _with_names(self, with_: exp.With | None) -> Queries:
        if with_ is None:
            return self
        if with_.args.get("recursive"):
            raise refusal(
                with_, "WITH RECURSIVE is not supported: rows that go round are stream.iterate(...)"
            )
        inner, own = self, set[str]()
        for each in with_.expressions:
            refuse_column_names(each)
            if str(each.alias) in own:
                raise refusal(each, f"WITH has two queries called {each.alias}: give one another name")
            own.add(str(each.alias))
            named = {**inner.named, str(each.alias): Named(each.this, inner)}
            inner = Queries(self.tables, self.uids, named)
        return inner

    # --- FROM ---

    def _from(self, select: exp.Select) -> tuple[exp.Select, Relation, str | None]:
        """The query, what it reads, and the alias of that; of tables that are joined, as of one table."""
        relation, alias = self._source(select.args["from_"].this)
        joins = select.args.get("joins")
        if not joins:
            return select, relation, alias
        where = select.args.get("where")
        conditions = list(conjuncts(where.this)) if where else []
        # Where rows without a partner come out, WHERE says nothing of which rows are partners.
        is_inner = not any(join.args.get("side") for join in joins)
        unused, scope = list(conditions) if is_inner else [], Scope.of(relation, alias)
        for join in joins:
            refuse_join(join)
            source = self._source(join.this, frozenset(("version",)))
            scope = join_of(join, scope, source, unused, lambda: next(self.uids))
        for each in conditions:
            scope.rewritten(each)  # a name may mean two columns only with the tables of later joins
        return over_join(select, scope, unused if is_inner else conditions), scope.relation, None

    def _source(self, node: exp.Expr, more: frozenset[str] = frozenset()) -> tuple[Relation, str | None]:
        """What FROM names, and the alias of it."""
        alias = node.alias or None
        refuse_column_names(node)
        if isinstance(node, exp.Subquery):
            refuse_parts(node, frozenset(("this", "alias")))
            return self.relation(node.this), alias
        if isinstance(node, exp.Table):
            refuse_parts(node, frozenset(("this", "alias")) | more)
            call = table_function(node)
            if call is not None:
                return self._windows(call), alias
            return self._table(node, node.name), alias or node.name
        raise refusal(
            node, f"{shown(node)} is not supported in FROM: read a table, a query or a window function"
        )

    def _windows(self, call: exp.Anonymous) -> Relation:
        table, time, lengths = split_arguments(call)
        if isinstance(table, TableArgument):
            refuse_parts(table.this, frozenset(("this",)))
            relation = self._table(table, table.this.name)
        elif isinstance(table, exp.Subquery | exp.Select):
            relation = self.relation(table)
        else:
            raise refusal(
                call,
                f"{shown(table)} is no table: write {call.name.upper()}(TABLE visits, DESCRIPTOR(ts), ...)",
            )
        return with_windows(call, relation, table, time, lengths)

    def _table(self, node: exp.Expr, name: str) -> Relation:
        if name in self.named:
            return self.named[name].relation()
        if name in self.tables:
            return relation_of(self.tables[name])
        known = [*self.named, *self.tables]
        there = f"there are {', '.join(known)}" if known else "none was given"
        raise refusal(
            node,
            f"there is no table {name!r}{nearest(name, known)}; {there}: give it as in job.sql(..., "
            f"{name}=stream)",
        )

    # --- SELECT ---

    def _select(self, select: exp.Select) -> Relation:
        refuse_parts(select, _PARTS)
        if select.args.get("kind"):
            raise refusal(select, f"SELECT {select.args['kind']} is not supported: leave it out")
        if select.args.get("from_") is None:
            raise refusal(select, "a query needs FROM: which table do its rows come from?")
        select, relation, alias = self._from(select)
        names = TableNames(relation, alias)
        condition = _where(select, names)
        items = _group_items(select, names)
        waits = relation.windowing is not None and relation.windowing.kind == "SESSION"
        if items is None:
            if waits and condition is not None:
                raise refusal(
                    select, "WHERE of rows in sessions has to stand beside their GROUP BY: write it there"
                )
            return projected(select, kept(relation, condition), names)
        if not waits:
            relation = kept(relation, condition)
            names = TableNames(relation, alias)
        grouping = grouping_of(select, items, names)
        made, known, passed = grouped(select, grouping, condition if waits else None, next(self.uids))
        made = kept(made, _having(select, known, passed))
        return projected(select, made, known)

    # --- UNION ALL ---

    def _union(self, union: exp.Union) -> Relation:
        refuse_parts(union, frozenset(("this", "expression", "distinct", "with_")))
        if union.args.get("distinct"):
            raise refusal(union, "UNION would have to compare all rows of all times: write UNION ALL")
        left, right = (_finished(each, self.relation(each)) for each in (union.this, union.expression))
        return united(union, left, right)


def _where(select: exp.Select, names: TableNames) -> pl.Expr | None:
    where = select.args.get("where")
    return None if where is None else Scalars(names).condition(where.this, "WHERE")


def _having(select: exp.Select, known: GroupedNames, passed: pl.Expr | None) -> pl.Expr | None:
    having = select.args.get("having")
    condition = None if having is None else Scalars(known).condition(having.this, "HAVING")
    if condition is None or passed is None:
        return passed if condition is None else condition
    return condition & passed


def _group_items(select: exp.Select, names: TableNames) -> list[exp.Expr] | None:
    """What the rows are grouped by; None: they are not."""
    group, distinct = select.args.get("group"), select.args.get("distinct")
    if distinct is not None:
        if distinct.args.get("on") is not None or group is not None or aggregates_in(select.expressions):
            raise refusal(select, "DISTINCT stands alone here: without ON, GROUP BY and aggregates")
        if names.relation.windowing is None:
            raise refusal(
                select,
                "DISTINCT would have to compare rows of all times: SELECT DISTINCT with window_start "
                "and window_end "
                "of a window, or .key_by(...) with state",
            )
        return [each.unalias() for each in select.expressions]
    if group is None:
        if aggregates_in([*select.expressions]) or select.args.get("having") is not None:
            return []
        return None
    refuse_parts(group, frozenset(("expressions",)))
    return list(group.expressions)


def _finished(node: exp.Expr, relation: Relation) -> Relation:
    """The relation, whose rows are rows and not waiting for GROUP BY."""
    if relation.windowing is not None and relation.windowing.multiplies:
        raise refusal(
            node,
            f"rows of {relation.windowing.kind} have to be grouped by their windows: GROUP BY "
            "window_start, window_end",
        )
    return relation


def stream_of(queries: Queries, statement: exp.Expr) -> Stream[Any]:
    """The rows of a whole statement."""
    if not isinstance(statement, exp.Query):
        raise GraphError(
            f"SQL: {shown(statement)} is no query: job.sql(...) takes SELECT; rows are written with "
            ".sink_to(...)"
        )
    return _finished(statement, queries.relation(statement)).stream
