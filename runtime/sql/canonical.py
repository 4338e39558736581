"""One text for expressions that mean the same, however they are written: by it GROUP BY and SELECT find each
other, and state is named by it."""

from __future__ import annotations

import re

from sqlglot import exp

from onceflow.runtime.sql.grammar import StreamingSql

_SIMPLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_VALUES = ("NULL", "TRUE", "FALSE")
"""Words that would be values without quotes."""


def canonical(node: exp.Expr, alias: str | None) -> str:
    """The text, without the alias before columns, and with quotes only where they are needed."""
    made = node.copy()
    for column in list(made.find_all(exp.Column)):
        first = column.parts[0]
        if alias is not None and len(column.parts) > 1 and first.name == alias:
            first.pop()
    for identifier in made.find_all(exp.Identifier):
        is_plain = _SIMPLE.fullmatch(identifier.name) and identifier.name.upper() not in _VALUES
        identifier.set("quoted", not is_plain)
    return str(made.unnest().sql(dialect=StreamingSql, comments=False))
