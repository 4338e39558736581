"""The parts of a query that there are not: each is refused with what to do instead."""

from __future__ import annotations

from collections.abc import Mapping

from sqlglot import exp

from onceflow.runtime.sql.places import refusal

_INSTEAD: Mapping[str, str] = {
    "laterals": "LATERAL is not supported: use flat_map(...) before job.sql(...)",
    "order": "rows of a stream have no end, so ORDER BY can't wait for the last one: leave it out",
    "limit": "LIMIT would keep rows by chance, since a stream has no order: leave it out, or count "
    "in a window",
    "offset": "OFFSET would leave out rows by chance, since a stream has no order: leave it out",
    "qualify": "QUALIFY is not supported: use HAVING, or window(...).process(...)",
    "windows": "WINDOW names of OVER are not supported: aggregate in a window with GROUP BY",
    "hint": "hints are not supported: leave them out",
}


def refuse_parts(node: exp.Expr, allowed: frozenset[str]) -> None:
    """Raises GraphError if the node has a part that is not among these."""
    for name, value in node.args.items():
        if value in (None, False, []) or name in allowed:
            continue
        at = value[0] if isinstance(value, list) and value else value
        place = at if isinstance(at, exp.Expr) else node
        word = name.strip("_").upper()
        raise refusal(
            place, _INSTEAD.get(name, f"{word} is not supported in a query over streams: leave it out")
        )


def refuse_column_names(node: exp.Expr) -> None:
    """Raises GraphError for `AS t (a, b)`, which gives columns other names by their place."""
    alias = node.args.get("alias")
    if isinstance(alias, exp.TableAlias) and alias.columns:
        raise refusal(node, f"{node.alias} (...) names columns by their place: name them in a SELECT, a AS b")
