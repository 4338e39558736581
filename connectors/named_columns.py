"""The columns that a sink is given by name: those of its key, and those of its partitions. Pure."""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa

from onceflow.runtime.errors import GraphError
from onceflow.runtime.nearest import nearest


def columns_given(names: str | Sequence[str] | None) -> tuple[str, ...]:
    """One name, several or none, as the user writes them."""
    return (names,) if isinstance(names, str) else tuple(names or ())


def check_columns(what: str, names: Sequence[str], schema: pa.Schema, uid: str) -> None:
    """Raises GraphError if the rows lack one of them; `what` they are for, as in "key"."""
    for name in names:
        if name not in schema.names:
            raise GraphError(
                f"sink {uid!r}: {what} column {name!r} is not in the rows{nearest(name, schema.names)}"
            )


def check_order(name: str | None, key: Sequence[str], schema: pa.Schema, uid: str) -> None:
    """Raises GraphError if rows can't be put in order by this column; None: they need not be."""
    if name is None:
        return
    check_columns("order", (name,), schema, uid)
    if name in key or pa.types.is_nested(schema.field(name).type):
        why = "one of the key" if name in key else f"{schema.field(name).type}, which has no order"
        raise GraphError(f"sink {uid!r}: order_by={name!r} is {why}: give a number, a time or a text")


def how_rows_go(key: Sequence[str]) -> str:
    """How a sink with this key writes its rows, for the plan."""
    return f"replaced by {', '.join(key)}" if key else "appended"
