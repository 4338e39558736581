"""Functions of whole windows as steps: what WindowedStream.process leads to."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable
from functools import partial
from typing import TYPE_CHECKING, Any, TypeAlias, TypeVar

from onceflow.runtime.api.record_functions import always
from onceflow.runtime.api.records_of_functions import window_records
from onceflow.runtime.api.window_processes import process_fired
from onceflow.runtime.errors import GraphError
from onceflow.runtime.graph.functions import hints, yielded_record
from onceflow.runtime.graph.steps import Call, Rows
from onceflow.runtime.operators.processing.window_process import WindowProcess
from onceflow.runtime.operators.windows.processed import ProcessWindows, WindowReader
from onceflow.runtime.operators.windows.window import WINDOW_END, WINDOW_START
from onceflow.runtime.types.columns_of_records import RecordWriter
from onceflow.runtime.types.record_types import describe_record
from onceflow.runtime.types.records_of_columns import RecordReader
from onceflow.runtime.types.user_functions import function_name

if TYPE_CHECKING:
    from onceflow.runtime.api.stream import Stream
    from onceflow.runtime.api.windowed_stream import WindowedStream

T = TypeVar("T")
R = TypeVar("R")
WindowFunction: TypeAlias = Callable[..., Iterable[R] | None] | WindowProcess[Any, T, R]
ROWS = "(rows)"
"""The column of a window's collected rows."""


def check_window_function(fn: Any, uid: str) -> None:
    """Raises GraphError for what can't be called with a key, a window and its records."""
    if isinstance(fn, WindowProcess):
        return
    hints(fn, uid)
    try:
        inspect.signature(fn).bind(None, None, None)
    except TypeError as error:
        raise GraphError(
            f"operator {uid!r}: {function_name(fn)} can't be called with a key, a window and its records "
            f"({error}): write it as `def {function_name(fn)}(key, window, records)`"
        ) from error


def process_windows(
    windows: WindowedStream[Any], collected: Stream[Any], fn: Any, returns: type | None
) -> Stream[Any]:
    """What `fn`, a function or a WindowProcess, makes of each window of `collected`, whose column ROWS has
    its rows."""
    if isinstance(fn, WindowProcess):
        return process_fired(windows, collected, ROWS, fn, returns)
    rows, keys = windows._input.rows, () if windows._is_all else windows._keys
    anchor = collected._input.step.anchor
    returned = yielded_record(fn, anchor, returns)
    bounds = [name for name in (WINDOW_START, WINDOW_END) if name in collected.schema.names]
    reader = WindowReader(keys, bounds, ROWS, RecordReader(window_records(fn, anchor, rows)))
    writer = RecordWriter.of(describe_record(returned))
    uid = collected._uid(None, "process", fn)
    build = always(uid, fn, partial(ProcessWindows, uid, fn, reader, writer), writer.schema, None)
    made = Rows(writer.schema, returned, collected._input.rows.has_event_time)
    results = collected._add(
        uid, f"process {function_name(fn)}", Call(build, frozenset(reader.columns)), made
    )
    results._tags.update(collected._tags)
    return results
