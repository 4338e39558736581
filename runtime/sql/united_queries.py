"""UNION ALL: columns are put together by their place, in the type that they have together."""

from __future__ import annotations

from typing import Any

import polars as pl
from sqlglot import exp

from onceflow.runtime.api.stream import Stream
from onceflow.runtime.sql.places import refusal
from onceflow.runtime.sql.relations import Column, Relation, Role, relation_of, selected
from onceflow.runtime.sql.sql_types import common_type, converted, type_name


def united(union: exp.Expr, left: Relation, right: Relation) -> Relation:
    """The rows of both, under the names of the left one."""
    if len(left.columns) != len(right.columns):
        raise refusal(
            union,
            f"the parts of UNION ALL have {len(left.columns)} and {len(right.columns)} columns: "
            "give both the same",
        )
    pairs = zip(left.columns.items(), right.columns.items(), strict=True)
    types = [_united_type(union, a, b) for a, b in pairs]
    first, second = (_renamed(each, list(left.columns), types) for each in (left, right))
    return relation_of(first.union(second))


def _united_type(union: exp.Expr, left: tuple[str, Column], right: tuple[str, Column]) -> pl.DataType:
    (name, a), (other, b) = left, right
    of = common_type(a.value.type, b.value.type)
    if of is None:
        raise refusal(
            union,
            f"column {name!r} of UNION ALL is {type_name(a.value.type)}, and {other!r} in its place is "
            f"{type_name(b.value.type)}: CAST one of them",
        )
    return of


def _renamed(relation: Relation, names: list[str], types: list[pl.DataType]) -> Stream[Any]:
    stream = relation.stream
    made, event_time = [], None
    for name, of, column in zip(names, types, relation.columns.values(), strict=True):
        made.append((name, converted(column.value, of)))
        if Role.EVENT_TIME in column.roles and column.value.type == of:
            event_time = name
    return selected(stream, made, event_time)
