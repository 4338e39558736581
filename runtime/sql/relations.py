"""What a query reads from: a stream, its columns with their types, and what is known of their meaning."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from enum import Enum
from typing import Any

import polars as pl
from sqlglot import exp

from onceflow.runtime.api.stream import Stream
from onceflow.runtime.graph.columns import ColumnCheck, NamedColumns
from onceflow.runtime.graph.steps import Express
from onceflow.runtime.nearest import nearest
from onceflow.runtime.operators.expressions import Columns, Keep
from onceflow.runtime.operators.windows.new_spans import Window
from onceflow.runtime.sql.canonical import canonical
from onceflow.runtime.sql.places import refusal, shown
from onceflow.runtime.sql.sql_types import Typed, type_name


class Role(Enum):
    """What a column is known to be, as long as it goes through as it is."""

    EVENT_TIME = "the event time of the rows"
    START = "the start of the window"
    END = "the end of the window"
    TIME = "the last moment of the window"


NO_ROLES: frozenset[Role] = frozenset()
OF_WINDOWS = frozenset((Role.START, Role.END, Role.TIME))


@dataclass(frozen=True, slots=True)
class Column:
    """A column of a relation."""

    value: Typed
    roles: frozenset[Role] = NO_ROLES
    is_virtual: bool = False
    """Whether it comes into being only when rows are grouped by it."""


@dataclass(frozen=True, slots=True)
class Windowing:
    """The windows that a table function, or a call in GROUP BY, puts rows into."""

    kind: str
    """TUMBLE, HOP, CUMULATE or SESSION."""
    window: Window
    keys: frozenset[str] | None = None
    """The columns by which sessions of a table function are apart; None for all other windows."""

    @property
    def multiplies(self) -> bool:
        """Whether rows are grouped by it before anything else can be done with them."""
        return self.kind != "TUMBLE"


@dataclass(frozen=True, slots=True)
class Relation:
    """A stream with named columns."""

    stream: Stream[Any]
    columns: Mapping[str, Column]
    windowing: Windowing | None = None
    computed_times: Mapping[str, str] = field(default_factory=dict)
    """Expressions that are the event time of the rows, by their canonical texts, as a query writes them."""

    @property
    def event_time(self) -> str | None:
        """The name of the column that has the event time of the rows."""
        return next((name for name, c in self.columns.items() if Role.EVENT_TIME in c.roles), None)

    def without_windowing(self) -> Relation:
        """The same; nothing is known of windows any more."""
        plain = {name: replace(c, roles=c.roles - OF_WINDOWS) for name, c in self.columns.items()}
        return replace(self, columns=plain, windowing=None)


def relation_of(stream: Stream[Any]) -> Relation:
    """A stream as it is."""
    frame = pl.from_arrow(stream.schema.empty_table())
    assert isinstance(frame, pl.DataFrame)
    event_time = stream._input.rows.event_time
    columns = {
        name: Column(
            Typed(pl.col(name), dtype), frozenset((Role.EVENT_TIME,)) if name == event_time else NO_ROLES
        )
        for name, dtype in frame.schema.items()
    }
    return Relation(stream, columns)


def selected(stream: Stream[Any], columns: NamedColumns, event_time: str | None = None) -> Stream[Any]:
    """The stream with these columns. `event_time`: the one that is computed to be the rows' event time."""
    uid = stream._uid(None, "select")
    rows = ColumnCheck(uid, stream.schema).rows(stream._input.rows, columns, None, event_time)
    return stream._add(uid, "select", Express(Columns(tuple(columns))), rows)


def kept(relation: Relation, condition: pl.Expr | None) -> Relation:
    """The rows for which the condition is true."""
    if condition is None:
        return relation
    stream = relation.stream
    rows = stream._add(stream._uid(None, "where"), "where", Express(Keep(condition)), stream._input.rows)
    return replace(relation, stream=rows)


@dataclass(frozen=True, slots=True)
class TableNames:
    """The names that an expression over one relation may use: its columns, also behind the alias."""

    relation: Relation
    alias: str | None

    def known(self, node: exp.Expr) -> Typed | None:
        """Nothing: every node is computed."""
        return None

    def column(self, node: exp.Column) -> Typed:
        """The column, or a field of a struct. Raises GraphError with the nearest name."""
        found, fields = self.found(node)
        if found.is_virtual:
            raise refusal(
                node,
                f"{shown(node)} is known only when rows are grouped by it: add window_start and "
                "window_end to GROUP BY, "
                "use them in SELECT and HAVING, and not in WHERE or inside an aggregate",
            )
        value = found.value
        for inner in fields:
            value = _field(node, value, inner)
        return value

    def found(self, node: exp.Column) -> tuple[Column, list[str]]:
        """The column that a name means, and the fields of it."""
        names = [part.name for part in node.parts]
        if len(names) > 1 and names[0] == self.alias:
            names = names[1:]
        name, *fields = names
        if name not in self.relation.columns:
            raise refusal(node, _no_such_column(name, names, self))
        return self.relation.columns[name], fields

    def roles(self, node: exp.Expr) -> frozenset[Role]:
        """What is known of a column that stands alone, or of an expression that is the event time."""
        if isinstance(node, exp.Anonymous) and canonical(node, self.alias) in self.relation.computed_times:
            return frozenset((Role.EVENT_TIME,))
        if not isinstance(node, exp.Column) or isinstance(node.this, exp.Star):
            return NO_ROLES
        found, fields = self.found(node)
        return NO_ROLES if fields else found.roles


def _no_such_column(name: str, names: list[str], of: TableNames) -> str:
    known = list(of.relation.columns)
    what = f"table {name!r}" if len(names) > 1 else f"column {name!r}"
    return f"there is no {what}{nearest(name, known)}; there are {', '.join(known)}"


def _field(node: exp.Column, value: Typed, field: str) -> Typed:
    inner = {each.name: each.dtype for each in value.type.fields} if isinstance(value.type, pl.Struct) else {}
    if field not in inner:
        there = f"; there are {', '.join(inner)}" if inner else f": it is {type_name(value.type)}"
        raise refusal(node, f"{shown(node)}: there is no field {field!r}{nearest(field, inner)}{there}")
    dtype = inner[field]
    return Typed(value.expr.struct.field(field), dtype if isinstance(dtype, pl.DataType) else dtype())
