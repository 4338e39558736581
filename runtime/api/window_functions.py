"""Functions of whole windows as steps: what WindowedStream.process leads to."""

from __future__ import annotations

import inspect
import typing
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any

from onceflow.runtime.api.record_functions import always
from onceflow.runtime.errors import GraphError
from onceflow.runtime.graph.functions import check_record, hints, yielded_record
from onceflow.runtime.graph.steps import Call, Rows
from onceflow.runtime.operators.windows.processed import ProcessWindows, WindowReader
from onceflow.runtime.operators.windows.window import WINDOW_END, WINDOW_START
from onceflow.runtime.types.columns_of_records import RecordWriter
from onceflow.runtime.types.declared_fields import is_record_type
from onceflow.runtime.types.hints import type_name
from onceflow.runtime.types.record_types import describe_record, record_class
from onceflow.runtime.types.records_of_columns import RecordReader
from onceflow.runtime.types.user_functions import function_name

if TYPE_CHECKING:
    from onceflow.runtime.api.stream import Stream

ROWS = "(rows)"
"""The column of a window's collected rows."""


def check_window_function(fn: Callable[..., Any], uid: str) -> None:
    """Raises GraphError for what can't be called with a key, a window and its records."""
    hints(fn, uid)
    try:
        inspect.signature(fn).bind(None, None, None)
    except TypeError as error:
        raise GraphError(
            f"operator {uid!r}: {function_name(fn)} can't be called with a key, a window and its records "
            f"({error}): write it as `def {function_name(fn)}(key, window, records)`"
        ) from error


def process_windows(
    collected: Stream[Any], fn: Callable[..., Any], returns: type | None, rows: Rows, keys: tuple[str, ...]
) -> Stream[Any]:
    """What `fn` makes of each window of `collected`, whose column ROWS has its rows; `rows`: what came into
    the windows; `keys`: the key's columns, none if there is no key."""
    anchor = collected._input.step.anchor
    returned = yielded_record(fn, anchor, returns)
    bounds = [name for name in (WINDOW_START, WINDOW_END) if name in collected.schema.names]
    reader = WindowReader(keys, bounds, ROWS, RecordReader(_record_type(fn, anchor, rows)))
    writer = RecordWriter.of(describe_record(returned))
    uid = collected._uid(None, "process", fn)
    build = always(uid, fn, partial(ProcessWindows, uid, fn, reader, writer), writer.schema, None)
    made = Rows(writer.schema, returned, collected._input.rows.has_event_time)
    results = collected._add(
        uid, f"process {function_name(fn)}", Call(build, frozenset(reader.columns)), made
    )
    results._tags.update(collected._tags)
    return results


def _record_type(fn: Callable[..., Any], uid: str, rows: Rows) -> type:
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
