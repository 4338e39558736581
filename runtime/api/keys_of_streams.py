"""The columns of a key: those of the stream, new ones of expressions, or one that a function makes."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

import polars as pl

from onceflow.runtime.api.record_functions import key_records
from onceflow.runtime.errors import GraphError
from onceflow.runtime.graph.columns import ColumnCheck
from onceflow.runtime.graph.functions import record_reader, returned_type
from onceflow.runtime.graph.keys import key_types
from onceflow.runtime.graph.steps import Call, Rows
from onceflow.runtime.operators import stateless
from onceflow.runtime.operators.function_state import refuse_function_state
from onceflow.runtime.types.record_types import describe_type
from onceflow.runtime.types.user_functions import function_name
from onceflow.runtime.types.value_types import ValueType

if TYPE_CHECKING:
    from onceflow.runtime.api.stream import Stream

T = TypeVar("T")


def with_keys(
    stream: Stream[T], uid: str, keys: tuple[Any, ...]
) -> tuple[Stream[T], list[str], Mapping[str, pl.Expr], Mapping[str, ValueType]]:
    """The stream with a column for each key, their names, the expressions among them, and the types of
    those that are fields of the user's, or what a function of the user's returns."""
    check = ColumnCheck(uid, stream.schema)
    others = [key for key in keys if not isinstance(key, str | pl.Expr)]
    if others:
        if len(keys) > 1 or not callable(others[0]):
            raise GraphError(f"operator {uid!r}: key_by takes columns and expressions, or one function")
        keyed, of = _with_key_function(stream, uid, others[0])
        return keyed, ["key"], {}, {"key": of}
    new: dict[str, pl.Expr] = {}
    names: list[str] = []
    for key in keys:
        if isinstance(key, str):
            names.append(check.need(key, "key column").name)
            continue
        ((name, expression),) = check.named((key,), {})
        names.append(name)
        if not expression.meta.is_column():
            if name in stream.schema.names:
                raise GraphError(
                    f"operator {uid!r}: the key {expression} would replace column {name!r}: "
                    'give it a name of its own, as in .alias("key")'
                )
            new[name] = expression
    if len(set(names)) < len(names):
        raise GraphError(f"operator {uid!r}: the key has a column twice: {', '.join(names)}")
    types = key_types(names, stream._input.rows)
    if not new:
        return stream, names, new, types
    old = {name: pl.col(name) for name in stream.schema.names}
    keyed = stream._columns(uid, "key", list((old | new).items()), stream._input.rows.record_type)
    return keyed, names, new, types


def _with_key_function(stream: Stream[T], uid: str, fn: Callable[[T], Any]) -> tuple[Stream[T], ValueType]:
    rows = stream._input.rows
    if "key" in rows.schema.names:
        raise GraphError(
            f"operator {uid!r}: a key function adds a column 'key', but the stream has one: key_by an "
            "expression with .alias(...), or a column"
        )
    uid = stream._uid(None, "key", fn)
    refuse_function_state(fn, uid, "key_by")
    reader = record_reader(fn, uid, rows.schema, rows.record_type)
    returned = returned_type(fn, uid, "-> str", with_extras=True)
    of = describe_type(returned, f"operator {uid!r}: the key of {function_name(fn)}")
    field = of.field("key").with_nullable(True)
    create = partial(stateless.KeyRecords, uid, fn, reader, field, of)
    work = Call(partial(key_records, create, field), frozenset(reader.columns), passes=True)
    made = Rows(rows.schema.append(field), rows.record_type, rows.has_event_time)
    return stream._add(uid, f"key {function_name(fn)}", work, made), of
