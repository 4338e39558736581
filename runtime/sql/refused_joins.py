"""Joins that there are not, each with what to do instead."""

from __future__ import annotations

from sqlglot import exp

from onceflow.runtime.sql.join_conditions import Conditions
from onceflow.runtime.sql.joined_names import Scope
from onceflow.runtime.sql.places import refusal

_API = "join streams with the API, key_by(...).join(...), and give the result to job.sql(...)"
_KINDS = ("", "INNER", "OUTER")


def refuse_join(node: exp.Join) -> None:
    """Raises GraphError for a join of another kind, and for one without ON and USING."""
    kind, method = str(node.args.get("kind") or ""), str(node.args.get("method") or "")
    if method or kind not in _KINDS:
        raise refusal(
            node,
            f"{method or kind} JOIN is not supported: write JOIN, LEFT JOIN, RIGHT JOIN or FULL JOIN with ON",
        )
    if node.args.get("on") is None and not node.args.get("using"):
        raise refusal(
            node,
            "every row of one table would meet every row of the other: write a JOIN b ON a.id = b.id AND ...",
        )
    for part in ("global_", "hint", "match_condition", "expressions", "pivots"):
        if node.args.get(part):
            raise refusal(node, f"{part.strip('_').upper()} of a join is not supported: leave it out")


def refuse_keyless(node: exp.Join, given: Conditions) -> None:
    """Raises GraphError unless something of both tables has to be equal."""
    if not given.keys:
        raise refusal(
            node,
            "a join needs an equal key, by which rows are distributed: add a condition as in a.id = b.id",
        )


def refuse_unbounded(node: exp.Join, given: Conditions, left: Scope, right: Scope) -> None:
    """Raises GraphError unless the join has a key and bounds of time: others would keep all rows for good,
    and take results back."""
    refuse_keyless(node, given)
    if given.bounds.lower is not None and given.bounds.upper is not None:
        return
    names = [side.relation.event_time for side in (left, right)]
    unknown = [table for side in (left, right) if side.relation.event_time is None for table in side.tables]
    if unknown:
        alias = unknown[0].alias
        raise refusal(
            node,
            "a join needs bounds of time, or it would keep all rows for good, but the event time of "
            f"{alias!r} is not known{_of_join(left)}: its source needs watermarks= with event_time=, and the "
            f"column has to reach the query as it is; or {_API}",
        )
    ours, theirs = left.written(str(names[0])), right.written(str(names[1]))
    raise refusal(
        node,
        "a join needs both bounds of time, or it would keep all rows for good: add AND "
        f"{theirs} BETWEEN {ours} - INTERVAL '1' HOUR AND {ours} + INTERVAL '1' HOUR, for instance; "
        f"or {_API}",
    )


def _of_join(left: Scope) -> str:
    time = next(iter(left.relation.computed_times.values()), None)
    return (
        "" if time is None else f" (of the first join it is {time}: SELECT that AS a column in a sub-query)"
    )
