"""Both sides of a join as keyed streams, and what their columns are called behind it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import polars as pl
from sqlglot import exp

from onceflow.runtime.api.keyed_stream import KeyedStream
from onceflow.runtime.operators.joins.joined_columns import LEFT, PADDED, RIGHT, SUFFIX
from onceflow.runtime.sql.comparing import comparable
from onceflow.runtime.sql.join_conditions import Key
from onceflow.runtime.sql.joined_names import Scope, column
from onceflow.runtime.sql.places import refusal, shown
from onceflow.runtime.sql.relations import OF_WINDOWS, Relation, TableNames, selected
from onceflow.runtime.sql.scalars import Scalars
from onceflow.runtime.sql.sql_types import type_name
from onceflow.runtime.state.hashing import is_hashable

_MARK = "is there"


@dataclass(frozen=True)
class Sides:
    """The streams of a join, and what becomes of their columns."""

    streams: tuple[KeyedStream[Any, Any], KeyedStream[Any, Any]]
    outputs: Mapping[str, str]
    """The column that comes out of the join for each column of the joined rows."""
    marks: tuple[str | None, str | None]
    """The columns that are null where there is no row of the side; None: there always is one."""


@dataclass
class _Side:
    """The columns that a side sends to the join, and its keys among them."""

    relation: Relation
    names: Mapping[str, str]
    """What its columns are called in its own table, and so in state, whatever the alias."""
    can_lack: bool
    """Whether there are joined rows without a row of this side."""
    columns: dict[str, pl.Expr]
    keys: list[str] = field(default_factory=list)
    mark: str | None = None


def sides_of(
    left: Scope, right: Scope, names: Mapping[str, str], keys: Sequence[Key], how: str, is_marked: bool
) -> Sides:
    """Both sides by their keys. `names`: what the right columns, by their names in the joined rows, are
    called in their own table. `is_marked`: whether it has to be known which sides a joined row is of."""
    ours = _side(left.relation, {name: name for name in left.relation.columns}, RIGHT in PADDED[how])
    theirs = _side(right.relation, names, LEFT in PADDED[how])
    for key in sorted(keys, key=lambda key: shown(key.left)):
        _add_key(key, ours, theirs)
    for side in (ours, theirs):
        if is_marked and side.can_lack:
            side.mark = _fresh(_MARK, side.columns)
            side.columns[side.mark] = pl.lit(True)
    streams = [
        selected(side.relation.stream, list(side.columns.items())).key_by(*side.keys)
        for side in (ours, theirs)
    ]
    outputs = {name: name for name in left.relation.columns if name in ours.columns}
    outputs |= {name: _behind(own, ours, theirs) for name, own in names.items() if own in theirs.columns}
    marks = (ours.mark, None if theirs.mark is None else _behind(theirs.mark, ours, theirs))
    return Sides((streams[0], streams[1]), outputs, marks)


def _side(relation: Relation, names: Mapping[str, str], can_lack: bool) -> _Side:
    windowed = relation.windowing is not None
    columns = {
        names[name]: column.value.expr
        for name, column in relation.columns.items()
        if not column.is_virtual and not (windowed and column.roles & OF_WINDOWS)
    }
    return _Side(relation, names, can_lack, columns)


def _add_key(key: Key, ours: _Side, theirs: _Side) -> None:
    left, right = (
        Scalars(TableNames(side.relation, None)).typed(node)
        for side, node in ((ours, key.left), (theirs, key.right))
    )
    pair = comparable(key.node, left, right)
    dtype = _dtype(ours.relation, pair[0])
    if isinstance(dtype, pl.Int128) or not is_hashable(pl.Series([], dtype=dtype).to_arrow().type):
        raise refusal(
            key.node, f"{shown(key.node)}: {type_name(dtype)} can't be a key: CAST both sides AS STRING"
        )
    for side, node, value, expr in ((ours, key.left, left, pair[0]), (theirs, key.right, right, pair[1])):
        side.keys.append(_key_column(side, node, expr, value.type == dtype and not dtype.is_float()))


def _key_column(side: _Side, node: exp.Expr, expr: pl.Expr, is_same: bool) -> str:
    """The column that is the key: that of the table itself, if it has its value in all joined rows.

    -0.0 is equal to 0.0 and another value, so such a column is kept beside the key.
    """
    own = side.names.get(node.name, "") if isinstance(node, exp.Column) and len(node.parts) == 1 else ""
    if is_same and not side.can_lack and own in side.columns and own not in side.keys:
        return own
    text = shown(node.transform(lambda each: _own_name(each, side.names)))
    name = _fresh(f"key {text}", side.columns)
    side.columns[name] = expr
    return name


def _own_name(node: exp.Expr, names: Mapping[str, str]) -> exp.Expr:
    is_name = isinstance(node, exp.Column) and node.parts[0].name in names
    return column([names[node.parts[0].name], *(p.name for p in node.parts[1:])], node) if is_name else node


def _dtype(relation: Relation, expr: pl.Expr) -> pl.DataType:
    frame = pl.from_arrow(relation.stream.schema.empty_table())
    assert isinstance(frame, pl.DataFrame)
    return frame.select(expr.alias("_")).schema["_"]


def _behind(name: str, ours: _Side, theirs: _Side) -> str:
    """What the join calls a right column."""
    if name in theirs.keys:
        return ours.keys[theirs.keys.index(name)]
    return name + SUFFIX if name in ours.columns else name


def _fresh(name: str, taken: Mapping[str, Any]) -> str:
    while name in taken:
        name = f"key {name}"
    return name
