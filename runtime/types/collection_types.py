"""Which collections there are: lists, tuples, sets and dicts, and the abstract ones that stand for them."""

from __future__ import annotations

from collections import abc
from collections.abc import Mapping
from typing import Any, Literal

import pyarrow as pa

from onceflow.runtime.types.value_types import Choice, Plain, Uuid, ValueType

Container = Literal["list", "tuple", "set", "frozenset"]

CONTAINERS: Mapping[Any, Container] = {
    list: "list",
    abc.Sequence: "list",
    abc.MutableSequence: "list",
    set: "set",
    abc.MutableSet: "set",
    frozenset: "frozenset",
    abc.Set: "frozenset",
}
"""What the values of a list column are made into, by the type's origin."""
MAPPINGS: tuple[Any, ...] = (dict, abc.Mapping, abc.MutableMapping)
"""All are made into a dict."""

_KEYS = (pa.string(), pa.int64(), pa.date32())


def key_problem(keys: ValueType) -> str:
    """Why these can't be the keys of a dict, as the end of a sentence; empty if they can: they have one text
    each, which says what they are."""
    can_be = isinstance(keys.kind, Plain | Choice | Uuid) and keys.arrow in _KEYS and not keys.nullable
    return (
        ""
        if can_be
        else "whose keys have no text of their own: use str, int, date, UUID, an Enum or a Literal"
    )
