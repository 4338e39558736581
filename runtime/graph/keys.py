"""Keys when the graph is built: which columns can be one, and of which type the user's code gets it."""

from __future__ import annotations

import typing
from collections.abc import Sequence
from typing import Any, TypeVar

import pyarrow as pa

from onceflow.runtime.errors import GraphError
from onceflow.runtime.graph.steps import Rows
from onceflow.runtime.state.hashing import is_hashable
from onceflow.runtime.types.column_forms import JSON, form_of
from onceflow.runtime.types.record_types import describe_record, describe_type
from onceflow.runtime.types.value_types import Plain, ValueType


def check_key(field: pa.Field, uid: str) -> None:
    """Raises GraphError for a column that can't be a key: equal keys must have equal columns."""
    if not is_hashable(field.type):
        raise GraphError(f"operator {uid!r}: key column {field.name!r} is {field.type}, which can't be a key")
    if _has_json(field):
        raise GraphError(
            f"operator {uid!r}: key column {field.name!r} is Any, kept as JSON, which can't be a key: one "
            "value has many texts there"
        )


def key_types(names: Sequence[str], rows: Rows) -> dict[str, ValueType]:
    """The types of those of these columns that are fields of the stream's record type, if not plain."""
    if rows.record_type is None:
        return {}
    described = describe_record(rows.record_type)
    fields = [field for field in described.fields if field.name in names]
    return {f.name: f.type for f in fields if not f.type.is_plain or f.type.record is not None}


def declared_keys(declared: Any, names: Sequence[str], schema: pa.Schema, uid: str) -> dict[str, ValueType]:
    """The types that KeyedProcess[K, ...] declares for the key columns; empty if it says nothing of use.
    Raises GraphError if a column is of another type."""
    if declared in (None, Any) or isinstance(declared, TypeVar):
        return {}
    said = (declared,)
    if len(names) > 1:
        said = typing.get_args(declared) if typing.get_origin(declared) is tuple else ()
        if len(said) != len(names) or ... in said:
            return {}
    found = {}
    for name, each in zip(names, said, strict=True):
        of = describe_type(each, f"operator {uid!r}: its key")
        column = schema.field(name).type
        if column != of.arrow:
            raise GraphError(
                f"operator {uid!r}: its key is declared {of.said}, but key column {name!r} is {column}"
            )
        if not isinstance(of.kind, Plain):
            found[name] = of
    return found


def _has_json(field: pa.Field) -> bool:
    is_struct = pa.types.is_struct(field.type)
    return form_of(field) == JSON or (is_struct and any(map(_has_json, field.type)))
