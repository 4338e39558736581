"""Where in the text something stands, and refusals that say it."""

from __future__ import annotations

from sqlglot import exp

from onceflow.runtime.errors import GraphError
from onceflow.runtime.sql.grammar import StreamingSql


def place(node: exp.Expr) -> str:
    """`line 1, column 8`: where the node's first word with a known place begins."""
    known = [each.meta for each in node.walk() if "start" in each.meta]
    if not known:
        return "line 1, column 1"
    first = min(known, key=lambda meta: int(meta["start"]))
    column = int(first["col"]) - (int(first["end"]) - int(first["start"]))
    return f"line {first['line']}, column {column}"


def refusal(node: exp.Expr, sentence: str) -> GraphError:
    """The error that says where, what, and what to do."""
    return GraphError(f"SQL, {place(node)}: {sentence}")


def shown(node: exp.Expr) -> str:
    """The node as text, for a sentence."""
    text = " ".join(node.sql(dialect=StreamingSql, comments=False).split())
    return text if len(text) <= 80 else text[:77] + "..."
