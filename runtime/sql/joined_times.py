"""Which column, or which expression, is the event time of the rows that an interval join makes."""

from __future__ import annotations

from collections.abc import Mapping

from sqlglot import exp

from onceflow.runtime.sql.canonical import canonical
from onceflow.runtime.sql.joined_names import Scope, column
from onceflow.runtime.sql.places import shown


def times_behind(
    left: Scope, right: Scope, bounds: tuple[int, int], how: str
) -> tuple[list[str], Mapping[str, str]]:
    """The columns that are the later time of a pair and the time of a row without a partner; and the
    expressions that are, by their canonical texts."""
    ours, theirs = str(left.relation.event_time), str(right.relation.event_time)
    lower, upper = bounds
    names = []
    if _is_later(-upper) and how in ("inner", "left"):
        names.append(ours)
    if _is_later(lower) and how in ("inner", "right"):
        names.append(theirs)
    if left.relation.columns[ours].value.type != right.relation.columns[theirs].value.type:
        return names, {}
    written = {ours: left.written(ours), theirs: right.written(theirs)}
    function, orders = "GREATEST", [(ours, theirs), (theirs, ours)]
    if how != "inner":  # the later one, if there is one: GREATEST would be null without
        function = "COALESCE"
        orders = [(theirs, ours)] * _is_later(lower) + [(ours, theirs)] * _is_later(-upper)
    calls = [(_call(function, pair), _call(function, [written[name] for name in pair])) for pair in orders]
    return names, {canonical(call, None): shown(as_written) for call, as_written in calls}


def _is_later(ms: int) -> bool:
    """Whether a time that is at least so far behind another one is the later of both."""
    return ms >= 0


def _call(function: str, names: list[str] | tuple[str, str]) -> exp.Expr:
    columns = [column([name], exp.Expression()) for name in names]
    return exp.Anonymous(this=function, expressions=columns)
