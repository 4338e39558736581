"""Which records a method of a class of the user's takes and makes: what the class declares, or else what the
method's annotations say."""

from __future__ import annotations

import inspect
import typing
from collections.abc import Callable
from typing import Any

import pyarrow as pa

from onceflow.runtime.errors import GraphError
from onceflow.runtime.graph.functions import check_record, hints, taken_record, yielded_record
from onceflow.runtime.graph.steps import Rows
from onceflow.runtime.types.columns_of_records import RecordWriter
from onceflow.runtime.types.declared_fields import is_record_type
from onceflow.runtime.types.hints import type_name
from onceflow.runtime.types.record_types import describe_record, record_class
from onceflow.runtime.types.user_functions import function_name, owner_name


def record_taken(method: Callable[..., Any], declared: Any, uid: str, rows: Rows) -> type:
    """The record type that a method is called with, for rows of this stream."""
    if not is_record_type(declared):
        return taken_record(method, uid, rows.schema, rows.record_type)
    check_record(declared, rows.schema, f"operator {uid!r}: {owner_name(method)}")
    return typing.cast(type, declared)


def records_made(
    method: Callable[..., Any], declared: Any, uid: str, has_event_time: bool
) -> tuple[Rows, RecordWriter]:
    """What a method that yields records makes; without columns if it is None: side outputs only."""
    if declared in (None, Any):
        declared = yielded_record(method, uid, None)
    if declared is type(None):
        return Rows(pa.schema([]), None, has_event_time), RecordWriter(pa.schema([]))
    if not is_record_type(declared):
        raise GraphError(
            f"operator {uid!r}: {owner_name(method)} makes {type_name(declared)}, which is not a record "
            "type: use a dataclass or a NamedTuple"
        )
    writer = RecordWriter.of(describe_record(declared))
    return Rows(writer.schema, declared, has_event_time), writer


def window_records(fn: Callable[..., Any], uid: str, rows: Rows) -> type:
    """The record type of the rows that it takes: that of its third parameter's annotation, as in
    `records: list[Purchase]`; else the stream's; else a named tuple of the columns."""
    name = list(inspect.signature(fn).parameters)[2]
    annotated: Any = next(iter(typing.get_args(hints(fn, uid).get(name))), Any)
    if annotated is not Any and not is_record_type(annotated):
        raise GraphError(
            f"operator {uid!r}: {function_name(fn)} takes {name} of {type_name(annotated)}; expected a "
            "record type: annotate it as list[YourType], or not at all"
        )
    taken: Any = rows.record_type if annotated is Any else annotated
    if taken is None:
        return record_class(rows.schema)
    check_record(taken, rows.schema, f"operator {uid!r}: {function_name(fn)}")
    return typing.cast(type, taken)
