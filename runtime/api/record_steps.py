"""Functions of one record, and filters, as steps: what Stream.map, flat_map and filter lead to."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any

import polars as pl

from onceflow.runtime.api.error_policies import OnError, aside_of
from onceflow.runtime.api.record_functions import always, filter_records, kept_by
from onceflow.runtime.errors import GraphError
from onceflow.runtime.graph.columns import ColumnCheck
from onceflow.runtime.graph.functions import record_reader
from onceflow.runtime.graph.steps import Call, Express, Rows
from onceflow.runtime.operators import stateless
from onceflow.runtime.operators.expressions import Keep
from onceflow.runtime.types.columns_of_records import RecordWriter
from onceflow.runtime.types.record_types import describe_record
from onceflow.runtime.types.user_functions import function_name

if TYPE_CHECKING:
    from onceflow.runtime.api.stream import Stream

_OPERATORS = {"map": stateless.MapRecords, "flat_map": stateless.FlatMapRecords}


def call_each(
    stream: Stream[Any], uid: str, kind: str, fn: Callable[..., Any], returned: type, on_error: OnError
) -> Stream[Any]:
    """The results of a function of each record, which are of the type `returned`; `kind`: map or flat_map."""
    rows = stream._input.rows
    reader = record_reader(fn, uid, rows.schema, rows.record_type)
    writer = RecordWriter.of(describe_record(returned))
    aside = aside_of(on_error, uid, fn, rows.schema)
    operator = partial(_OPERATORS[kind], uid, fn, reader, writer)
    build = always(uid, fn, operator, writer.schema, aside.policy)
    work = Call(build, aside.reads(frozenset(reader.columns)), sets_aside=aside.is_wanted)
    made = Rows(writer.schema, returned, rows.has_event_time)
    return stream._add(uid, f"{kind} {function_name(fn)}", work, made, aside)


def filtered(
    stream: Stream[Any], predicate: pl.Expr | Callable[[Any], bool], uid: str | None, on_error: OnError
) -> Stream[Any]:
    """See Stream.filter."""
    rows = stream._input.rows
    if isinstance(predicate, pl.Expr):
        uid = stream._uid(uid, "filter")
        if on_error != "fail":
            raise GraphError(f"operator {uid!r}: on_error= is for a function: leave it out")
        ColumnCheck(uid, rows.schema).predicate(predicate)
        return stream._add(uid, "filter", Express(Keep(predicate)), rows)
    uid = stream._uid(uid, "filter", predicate)
    reader = record_reader(predicate, uid, rows.schema, rows.record_type)
    aside = aside_of(on_error, uid, predicate, rows.schema)
    kept = kept_by(predicate, uid, aside.policy)
    build = partial(filter_records, uid, predicate, reader, aside.policy, kept)
    work = Call(build, aside.reads(frozenset(reader.columns)), passes=True, sets_aside=aside.is_wanted)
    return stream._add(uid, f"filter {function_name(predicate)}", work, rows, aside)
