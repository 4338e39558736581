"""Look-up joins, as steps: what Stream.lookup_join leads to."""

from __future__ import annotations

import types
import typing
from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

import polars as pl
import pyarrow as pa

from onceflow.runtime.api.async_streams import Asking, built, check_called
from onceflow.runtime.api.error_policies import aside_of
from onceflow.runtime.contracts.lookup import Lookup
from onceflow.runtime.durations import duration_ms
from onceflow.runtime.errors import GraphError
from onceflow.runtime.functions.making_calls import is_coroutine_function
from onceflow.runtime.graph.columns import ColumnCheck
from onceflow.runtime.graph.functions import returned_type
from onceflow.runtime.graph.steps import Call, Rows
from onceflow.runtime.operators.async_calls.function_lookup import BlockingFunctionLookup, FunctionLookup
from onceflow.runtime.operators.async_calls.lookup_join import KeyReader, LookupJoin, LookupRows
from onceflow.runtime.operators.joins.joined_columns import SUFFIX
from onceflow.runtime.types.column_forms import renamed
from onceflow.runtime.types.columns_of_records import RecordWriter
from onceflow.runtime.types.declared_fields import is_record_type
from onceflow.runtime.types.hints import type_name
from onceflow.runtime.types.record_types import describe_record
from onceflow.runtime.types.user_functions import function_name

if TYPE_CHECKING:
    from onceflow.runtime.api.stream import Stream

Cache = tuple[int, str | int]


def lookup_join(
    stream: Stream[Any],
    uid: str | None,
    lookup: Any,
    on: str | Sequence[str],
    kind: tuple[str, pl.Expr | None],
    cache: Cache | None,
    asking: Asking,
) -> Stream[Any]:
    """See Stream.lookup_join. `kind`: how, and where."""
    how, where = kind
    uid = stream._uid(uid, "lookup_join")
    rows = stream._input.rows
    keys = (on,) if isinstance(on, str) else tuple(on)
    if not keys:
        raise GraphError(f"operator {uid!r}: on=[]: name the columns that are the key")
    for name in keys:
        ColumnCheck(uid, rows.schema).need(name, "key column")
    if how not in ("inner", "left"):
        raise GraphError(f"operator {uid!r}: how={how!r}: write one of inner, left")
    table = _table(lookup, keys, uid)
    aside = aside_of(asking.on_error, uid, table.look_up, rows.schema)
    config = asking.config(uid, KeyReader(keys), rows, aside.policy)
    passes, made = _joined(uid, rows.schema, table, how == "left")
    if where is not None:
        if not isinstance(where, pl.Expr):
            raise GraphError(f"operator {uid!r}: where={where!r}: expected a polars expression")
        ColumnCheck(uid, made).predicate(where)
    kept = config.capacity, _checked_cache(cache, uid)
    join = LookupJoin(uid, table, made, passes, how == "left", *kept, where)
    reads = frozenset(rows.schema.names)
    build = partial(built, config, partial(LookupRows, join), reads, "lookup_join", made)
    work = Call(build, reads, sets_aside=aside.is_wanted, answers_later=True)
    name = f"{how} lookup join {_shown(lookup)} by {', '.join(keys)}"
    return stream._add(uid, name, work, Rows(made, None, rows.has_event_time), aside)


def _table(lookup: Any, keys: tuple[str, ...], uid: str) -> Lookup:
    if hasattr(lookup, "look_up"):
        table: Lookup = lookup
        if len(table.keys) != len(keys):
            raise GraphError(
                f"operator {uid!r}: on= has {len(keys)} columns, and {_shown(lookup)} is asked by "
                f"{', '.join(table.keys)}: name as many, in that order"
            )
        return table
    check_called(lookup, uid)
    found = _found_type(returned_type(lookup, uid, "-> YourType | None"))
    if not is_record_type(found):
        raise GraphError(
            f"operator {uid!r}: {function_name(lookup)} finds {type_name(found)}, which is not a record type"
            ": return a dataclass or a NamedTuple, a list of them, or None"
        )
    writer = RecordWriter.of(describe_record(found))
    its_keys = [name for name in keys if name in writer.schema.names]
    kind = FunctionLookup if is_coroutine_function(lookup) else BlockingFunctionLookup
    return kind(lookup, its_keys, writer)


def _found_type(returned: Any) -> Any:
    """The record type in `T`, `T | None`, `list[T]`."""
    if typing.get_origin(returned) in (typing.Union, types.UnionType):
        (returned, *_) = [each for each in typing.get_args(returned) if each is not type(None)]
    if typing.get_origin(returned) is list:
        (returned,) = typing.get_args(returned)
    return returned


def _joined(
    uid: str, left: pa.Schema, table: Lookup, is_left: bool
) -> tuple[dict[str, tuple[int, str]], pa.Schema]:
    """The output columns, and where each is from: the left ones, then what is found but for the key."""
    passes = {name: (0, name) for name in left.names}
    fields = list(left)
    for field in table.schema:
        if field.name in table.keys:
            continue
        name = field.name + SUFFIX if field.name in passes else field.name
        if name in passes:
            raise GraphError(
                f"operator {uid!r}: two columns would be called {name!r}: rename one of them before the "
                "join, with select(...)"
            )
        passes[name] = (1, field.name)
        fields.append(renamed(field, name).with_nullable(field.nullable or is_left))
    return passes, pa.schema(fields)


def _checked_cache(cache: Any, uid: str) -> tuple[int, int] | None:
    if cache is None:
        return None
    match cache:
        case (int(keys), ttl) if not isinstance(keys, bool) and keys > 0:
            return keys, duration_ms(ttl, "cache")
        case _:
            raise GraphError(
                f"operator {uid!r}: cache={cache!r}: write how many keys are kept and for how long, as in "
                'cache=(10_000, "5 min")'
            )


def _shown(lookup: Any) -> str:
    return type(lookup).__name__ if hasattr(lookup, "look_up") else function_name(lookup)
