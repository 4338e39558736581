"""Names in a query that joins: whose column a name means, and the query in the names of the joined rows."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from sqlglot import exp

from onceflow.runtime.errors import GraphError
from onceflow.runtime.nearest import nearest
from onceflow.runtime.sql.places import refusal, shown
from onceflow.runtime.sql.relations import Relation

_PARTS = ("this", "table", "db", "catalog")


@dataclass(frozen=True, slots=True)
class Table:
    """A table of FROM: its alias, and what each of its columns is called in the joined rows."""

    alias: str | None
    columns: Mapping[str, str]


@dataclass(frozen=True)
class Scope:
    """The rows of FROM so far, and the tables that they are joined of."""

    relation: Relation
    tables: tuple[Table, ...]
    merged: Mapping[str, str] = field(default_factory=dict)
    """The columns of USING: there once, under this name, for both tables."""

    @staticmethod
    def of(relation: Relation, alias: str | None) -> Scope:
        """One table."""
        return Scope(relation, (Table(alias, {name: name for name in relation.columns}),))

    def beside(self, alias: str | None, columns: Sequence[str], node: exp.Expr) -> Table:
        """The table that is joined to these, with names of its own in the joined rows."""
        if alias in [table.alias for table in self.tables if alias is not None]:
            raise refusal(node, f"two tables are called {alias!r}: give one another name with AS")
        names = {}
        for name in columns:
            names[name] = name if name not in self.relation.columns else f"{alias or 'right'}.{name}"
            if names[name] in self.relation.columns or list(names.values()).count(names[name]) > 1:
                raise refusal(
                    node, f"there is a column {names[name]!r} already: give the table another name with AS"
                )
        return Table(alias, names)

    def written(self, name: str) -> str:
        """How a query names this column of the joined rows."""
        for table in self.tables:
            for own, joined in table.columns.items():
                if joined == name:
                    return own if table.alias is None else f"{table.alias}.{own}"
        return name

    def knows(self, node: exp.Expr) -> bool:
        """Whether all columns of an expression are columns of these tables."""
        try:
            self.rewritten(node)
        except GraphError:
            return False
        return True

    def rewritten(self, node: exp.Expr) -> exp.Expr:
        """The expression over the columns of the joined rows. Raises GraphError for a name that means
        nothing, or more than one column."""
        return node.transform(self._named)

    def _named(self, node: exp.Expr) -> exp.Expr:
        if not isinstance(node, exp.Column) or isinstance(node.this, exp.Star):
            return node
        return column(self._found(node), node.parts[0])

    def _found(self, node: exp.Column) -> list[str]:
        """The column's name in the joined rows, and the fields of it that are asked for."""
        names = [part.name for part in node.parts]
        for table in self.tables:
            if len(names) > 1 and names[0] == table.alias:
                return [self._of_table(node, table, names[1]), *names[2:]]
        name, *fields = names
        if name in self.merged:
            return [self.merged[name], *fields]
        found = [table for table in self.tables if name in table.columns]
        if not found:
            raise refusal(node, self._no_such(name, bool(fields)))
        if len(found) > 1:
            ways = " or ".join(f"{table.alias}.{name}" for table in found)
            raise refusal(node, f"{name!r} is a column of more than one table: write {ways}")
        return [found[0].columns[name], *fields]

    def _of_table(self, node: exp.Column, table: Table, name: str) -> str:
        if name not in table.columns:
            known = list(table.columns)
            raise refusal(
                node,
                f"there is no column {name!r} in {table.alias!r}{nearest(name, known)}; there are "
                f"{', '.join(known)}",
            )
        return table.columns[name]

    def _no_such(self, name: str, is_qualified: bool) -> str:
        aliases = [table.alias for table in self.tables if table.alias is not None]
        if is_qualified:
            return f"there is no table {name!r}{nearest(name, aliases)}; there are {', '.join(aliases)}"
        known = list(dict.fromkeys(own for table in self.tables for own in table.columns))
        return f"there is no column {name!r}{nearest(name, known)}; there are {', '.join(known)}"


def column(names: Sequence[str], at: exp.Expr) -> exp.Column:
    """A column and fields of it, at the place of another node."""
    made = {
        part: exp.to_identifier(name, quoted=False)  # so it is shown as it is written: b.ts
        for part, name in zip(_PARTS, reversed(names), strict=False)
    }
    for each in made.values():
        each.meta.update(at.meta)
    return exp.Column(**made)


def over_join(select: exp.Select, scope: Scope, where: Sequence[exp.Expr]) -> exp.Select:
    """The same query over the joined rows as one table. `where`: the conditions
    that are left of its WHERE."""
    made = select.copy()
    made.set("joins", None)
    made.set("expressions", list(_items(select, scope)))
    remaining = [scope.rewritten(each) for each in where]
    made.set("where", exp.Where(this=exp.and_(*remaining, copy=False)) if remaining else None)
    having, group = select.args.get("having"), select.args.get("group")
    if having is not None:
        made.set("having", scope.rewritten(having))
    if group is not None:
        aliases = {each.alias for each in select.expressions if isinstance(each, exp.Alias)}
        rewritten = group.copy()
        rewritten.set("expressions", [_key(each, scope, aliases) for each in group.expressions])
        made.set("group", rewritten)
    return made


def _key(item: exp.Expr, scope: Scope, aliases: set[str]) -> exp.Expr:
    """What is grouped by; a name that SELECT gives, and no table has, stays."""
    is_given = isinstance(item, exp.Column) and len(item.parts) == 1 and item.name in aliases
    return item if is_given and not scope.knows(item) else scope.rewritten(item)


def _items(select: exp.Select, scope: Scope) -> Iterator[exp.Expr]:
    """What SELECT lists, by the names that it had before."""
    for node in select.expressions:
        if isinstance(node, exp.Star) or (isinstance(node, exp.Column) and isinstance(node.this, exp.Star)):
            yield from _starred(node, scope)
        elif isinstance(node, exp.Alias):
            yield scope.rewritten(node)
        else:
            name = str(node.name) if isinstance(node, exp.Column) else shown(node)
            yield exp.alias_(scope.rewritten(node), exp.to_identifier(name))


def _starred(node: exp.Expr, scope: Scope) -> Iterator[exp.Expr]:
    star = node.this if isinstance(node, exp.Column) else node
    if any(each.args.get(part) for each in (node, star) for part in ("except_", "replace", "rename")):
        raise refusal(node, f"{shown(node)}: only * alone is supported: name the columns")
    table = node.args.get("table") if isinstance(node, exp.Column) else None
    tables, merged = list(scope.tables), scope.merged
    if table is not None:
        tables, merged = [each for each in scope.tables if each.alias == table.name], {}
        if not tables:
            aliases = ", ".join(repr(each.alias) for each in scope.tables)
            raise refusal(node, f"there is no table {table.name!r}; there are {aliases}")
    names = [*merged.items()]
    names += [pair for each in tables for pair in each.columns.items() if pair[0] not in merged]
    for own, joined in names:
        at = exp.to_identifier(own)
        at.meta.update(star.meta if table is None else table.meta)
        yield exp.alias_(column([joined], at), at)
