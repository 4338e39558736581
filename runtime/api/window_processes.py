"""process(...) of windows with an object of a class derived from WindowProcess, as a step."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

import polars as pl

from onceflow.runtime.api.keyed_processes import process_with_schema
from onceflow.runtime.api.records_of_functions import record_taken, records_made, window_records
from onceflow.runtime.errors import GraphError
from onceflow.runtime.functions.lives import check_life
from onceflow.runtime.graph.steps import Keyed, Rows, Step
from onceflow.runtime.operators.assigners.by_clock import ByClock
from onceflow.runtime.operators.assigners.firings import Firings
from onceflow.runtime.operators.assigners.session import Session
from onceflow.runtime.operators.declared import check_states, declared_sides, declared_types
from onceflow.runtime.operators.operator import MAIN
from onceflow.runtime.operators.processing.fired_windows import FiredWindows
from onceflow.runtime.operators.processing.process import ProcessConfig
from onceflow.runtime.operators.processing.window_process import WindowProcess
from onceflow.runtime.operators.windows.new_spans import Window
from onceflow.runtime.operators.windows.processed import WindowReader
from onceflow.runtime.operators.windows.window import WINDOW_END, WINDOW_START
from onceflow.runtime.types.declared_fields import is_record_type
from onceflow.runtime.types.records_of_columns import RecordReader

if TYPE_CHECKING:
    from onceflow.runtime.api.stream import Stream
    from onceflow.runtime.api.windowed_stream import WindowedStream

_ALL = "(all windows)"
"""The only key column behind window_all, the same in all rows."""


def process_fired(
    windows: WindowedStream[Any],
    collected: Stream[Any],
    rows_column: str,
    process: WindowProcess[Any, Any, Any],
    returns: type | None,
) -> Stream[Any]:
    """What the object makes of each window of `collected`, whose column `rows_column` has its rows."""
    rows, has_event_time, name = windows._input.rows, windows._has_event_time, type(process).__name__
    uid = windows._job.new_uid(None, f"process-{name}", collected._input.step.anchor)
    check_life(process, uid)
    lateness_ms = windows._firings.lateness_ms if windows._firings.is_repeated else None
    fired = FiredWindows(uid, process, windows._is_all, lateness_ms)
    if fired.has_own_state:
        _check_ends(uid, name, windows._window, windows._firings)
    check_states(fired, uid, has_event_time)
    _, taken, given = declared_types(process, WindowProcess) or [None] * 3
    if is_record_type(taken):
        record = record_taken(process.process, taken, uid, rows)
    else:
        record = window_records(process.process, uid, rows)
    made, writer = records_made(process.process, returns or given, uid, has_event_time)
    keyed = collected.key_by(pl.lit(0).alias(_ALL)) if windows._is_all else collected.key_by(*windows._keys)
    columns = keyed._input.rows.schema
    bounds = [each for each in (WINDOW_START, WINDOW_END) if each in columns.names]
    reader = WindowReader((), bounds, rows_column, RecordReader(record))
    config = ProcessConfig(uid, fired, keyed._keys, columns, writer, reader, has_event_time)
    build = partial(process_with_schema, config)
    work = Keyed(keyed._keys, build, frozenset(reader.columns), frozenset(), True, keyed._expressions)
    declared = declared_sides(process, uid)
    sides = {each: Rows(s.schema, s.record_type, has_event_time) for each, s in declared.items()}
    step = Step(uid, f"process {name}", work, (keyed._input,), {MAIN: made, **sides}, uid)
    results = windows._job.add(step, {each: each for each in sides})
    results._tags.update(collected._tags)
    return results


def _check_ends(uid: str, name: str, window: Window, firings: Firings) -> None:
    """Raises GraphError where nothing can be kept for a window, since nobody knows when it is over."""
    where = f"operator {uid!r}: {name} has a WindowState, clear() or on_timer()"
    if isinstance(window.window if isinstance(window, ByClock) else window, Session):
        raise GraphError(
            f"{where}, but sessions become one, and what each had would have no window: use a ValueState, "
            "which is the key's"
        )
    if isinstance(window, ByClock) and firings.is_repeated:
        raise GraphError(
            f"{where}, but a window by the clock with a trigger may fire when it seems to be over: use a "
            "ValueState, which is the key's, or leave the trigger out"
        )
