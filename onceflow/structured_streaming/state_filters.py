"""Which keys a query's filters leave, so that no more of a state is read than the files with them."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any

import pyarrow as pa

KEYS_MAX = 10_000
"""More keys are not looked for one by one."""


def keys_left(filters: Sequence[Any], columns: pa.Schema) -> list[dict[str, Any]] | None:
    """The keys that may satisfy all of these filters of Spark's, by the columns of the key. None: that is not
    known, and all have to be read. What filters say beside is not looked at: Spark applies them as well."""
    wanted: dict[str, list[Any]] = {}
    for each in filters:
        path: tuple[str, ...] = getattr(each, "attribute", ())
        if len(path) == 1 and path[0] in columns.names:
            values = _values(each, columns.field(path[0]).type)
            if values is not None:
                name = path[0]
                wanted[name] = [v for v in values if name not in wanted or v in wanted[name]]
    if not columns.names or wanted.keys() != set(columns.names):
        return None
    count = 1
    for values in wanted.values():
        count *= len(values)
    if count > KEYS_MAX:
        return None
    return [dict(zip(wanted, key, strict=True)) for key in itertools.product(*wanted.values())]


def _values(filter: Any, of: pa.DataType) -> list[Any] | None:
    """The values to which a filter narrows a column; None: it does not, or they may not be those of its type
    to the last bit, by which keys are found."""
    kind = type(filter).__name__
    if kind == "EqualTo":
        values = [filter.value]
    elif kind == "In":
        values = [value for value in filter.value if value is not None]  # null is in nothing
    else:
        return None
    t = pa.types
    wanted = str if t.is_string(of) else bool if t.is_boolean(of) else int if t.is_integer(of) else None
    if wanted is None or any(type(value) is not wanted for value in values):
        return None
    if wanted is int:
        low = 0 if t.is_unsigned_integer(of) else -(1 << (of.bit_width - 1))
        values = [value for value in values if low <= value < low + (1 << of.bit_width)]
    return values
