"""Which triggers a kind of window takes, checked when the graph is built, and what each becomes."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pyarrow as pa

from onceflow.runtime.errors import GraphError
from onceflow.runtime.operators.aggregation.typed_aggregates import argument_field
from onceflow.runtime.operators.assigners.by_clock import ByClock
from onceflow.runtime.operators.assigners.counting import CountWindow
from onceflow.runtime.operators.assigners.firings import Firings
from onceflow.runtime.operators.assigners.global_window import GlobalWindow
from onceflow.runtime.operators.assigners.session import Session
from onceflow.runtime.operators.triggers.built_in import BuiltInTrigger
from onceflow.runtime.operators.triggers.own import Trigger
from onceflow.runtime.operators.windows.built_in_triggers import BuiltInRows
from onceflow.runtime.operators.windows.new_spans import Window
from onceflow.runtime.operators.windows.own_triggers import OwnTriggerRows
from onceflow.runtime.operators.windows.row_trigger import RowTrigger
from onceflow.runtime.types.records_of_columns import RecordReader
from onceflow.runtime.types.user_functions import function_name

AT_WATERMARK = BuiltInTrigger(at_end=True)


def check_trigger(
    firings: Firings, window: Window, schema: pa.Schema, has_event_time: bool, uid: str
) -> None:
    """Raises GraphError if these windows can't have this trigger, or need one."""
    trigger, where = firings.trigger, f"operator {uid!r}: "
    if isinstance(window, GlobalWindow) and trigger is None:
        raise GraphError(
            f"{where}global_window() never ends, so it would never send anything: say when, as in "
            ".trigger(every_rows(100))"
        )
    if trigger is None:
        return
    if isinstance(window, CountWindow):
        raise GraphError(
            f"{where}count_window fires by its rows: take .window(global_window()) for another trigger"
        )
    is_merging = isinstance(window.window if isinstance(window, ByClock) else window, Session)
    if isinstance(trigger, BuiltInTrigger):
        _check_built_in(trigger, window, is_merging, has_event_time, where)
        if trigger.late is not None and not firings.lateness_ms:
            raise GraphError(
                f"{where}at_watermark(late=...) is for late rows, and no window takes any without allowed "
                'lateness: add .allowed_lateness("5 min"), or leave late= out'
            )
        if trigger.delta is not None:
            arrow = argument_field(trigger.delta, schema, f"{where}delta").type
            if not (pa.types.is_integer(arrow) or pa.types.is_floating(arrow) or pa.types.is_decimal(arrow)):
                raise GraphError(f"{where}delta({trigger.delta}) is {arrow}: give a number")
    elif is_merging and type(trigger).on_merge is Trigger.on_merge:
        raise GraphError(
            f"{where}{function_name(type(trigger))} has no on_merge(self, window, ctx): sessions become one, "
            "and their trigger has to know what then"
        )


def _check_built_in(
    trigger: BuiltInTrigger, window: Window, is_merging: bool, has_event_time: bool, where: str
) -> None:
    is_global = isinstance(window, GlobalWindow)
    if is_global and (trigger.at_clock_end or (trigger.at_end and trigger.every_ms is None)):
        raise GraphError(
            f"{where}global_window() has no end to fire at: use every_rows(...), every(...), "
            "every_processing_time(...), delta(...) or a Trigger of your own, by itself"
        )
    if is_global and trigger.every_ms is not None and not has_event_time:
        raise GraphError(
            f"{where}every(...) needs event time: pass watermarks= to the source, or use "
            "every_processing_time(...)"
        )
    if is_merging and trigger.delta is not None:
        raise GraphError(
            f"{where}delta(...) can't be told for sessions: of those that become one each has its own row "
            "that fired last; use every_rows(...) or every(...)"
        )


def trigger_rows(
    uid: str, firings: Firings, window: Window, reader: RecordReader, has_event_time: bool
) -> RowTrigger:
    """The trigger of one subtask."""
    trigger: BuiltInTrigger | Trigger[Any] = firings.trigger or AT_WATERMARK
    is_by_clock = isinstance(window, ByClock)
    if not isinstance(trigger, BuiltInTrigger):
        return OwnTriggerRows(uid, trigger, reader, firings.lateness_ms, has_event_time or is_by_clock)
    if isinstance(window, GlobalWindow):
        trigger = replace(trigger, at_end=False)
    if is_by_clock:  # whose event time is the clock's
        every_ms = trigger.every_ms or trigger.every_clock_ms
        at_end = trigger.at_end or trigger.at_clock_end
        trigger = replace(trigger, every_ms=every_ms, every_clock_ms=None, at_end=at_end, at_clock_end=False)
    return BuiltInRows(uid, trigger, firings.lateness_ms)
