"""OwnTriggerRows: calls the user's Trigger, its state and timers by window."""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import pyarrow as pa

from onceflow.runtime.errors import UserFunctionError
from onceflow.runtime.functions.lives import life_of, own_instance
from onceflow.runtime.operators.declared import declared_states
from onceflow.runtime.operators.operator import OperatorContext
from onceflow.runtime.operators.timers import Timers
from onceflow.runtime.operators.triggers.bounds import WindowBounds
from onceflow.runtime.operators.triggers.own import Trigger, TriggerCtx, TriggerResult
from onceflow.runtime.operators.windows.row_trigger import Acted, Acts
from onceflow.runtime.operators.windows.span_rows import Changed, SpanRows
from onceflow.runtime.records import WATERMARK_MAX_MS, Indices, Int64s, Mask, Records
from onceflow.runtime.state.row_values import Cursor, DeclaredStates, RowValues
from onceflow.runtime.state.table import RowColumn
from onceflow.runtime.state.timers import Due, KeyTimers
from onceflow.runtime.types.records_of_columns import RecordReader
from onceflow.runtime.types.user_functions import function_name, read_records, shown_record, user_error_at


class OwnTriggerRows:
    """RowTrigger of a Trigger of the user's: Python for each record and timer."""

    def __init__(
        self, uid: str, trigger: Trigger[Any], reader: RecordReader, lateness_ms: int, has_event_time: bool
    ) -> None:
        """`has_event_time`: whether the windows' stream has."""
        self._uid = uid
        self._reader = reader
        self._lateness_ms = lateness_ms
        self._has_event_time = has_event_time
        has_life = life_of(trigger) is not None
        self._trigger = own_instance(trigger, uid) if has_life else copy.copy(trigger)
        self.functions = [self._trigger]
        self._cursor = Cursor()
        self._values: dict[str, RowValues] = {}
        for attribute, declared in declared_states(trigger, uid).items():
            bound = declared.bind(self._cursor)
            setattr(self._trigger, attribute, bound)
            self._values[declared.name] = bound.of_rows
        self._states = DeclaredStates(self._values)
        self._timers = KeyTimers(may_be_left_out=True)
        self._clock_timers = KeyTimers(may_be_left_out=True)
        states: Mapping[str, RowColumn] = {"trigger_state": self._states} if self._values else {}
        self.columns: Mapping[str, RowColumn] = {
            **states,
            "timers": self._timers,
            "processing_timers": self._clock_timers,
        }
        self._is_firing = False
        self._merged: dict[int, dict[int, list[Any]]] = {}
        """What the parts of each window that is joined held, by its number in the batch and by state."""

    def open(self, context: OperatorContext, spans: SpanRows) -> None:
        self._spans = spans
        timers = Timers(self._uid, self._timers, self._clock_timers, self._cursor, self._has_event_time)
        self._ctx = TriggerCtx(timers, context.clock)

    def restored(self, rows: Indices) -> None:
        pass

    def gather(self, changed: Changed, is_grown: Mask) -> None:
        self._merged.clear()
        ends = is_grown[changed.into]
        rows = changed.joined[ends]
        for window in changed.into[ends].tolist():
            self._merged.setdefault(window, {id(values): [] for values in self._values.values()})
        for row, window in zip(rows.tolist(), changed.into[ends].tolist(), strict=True):
            for values in self._values.values():
                if (value := values.save(row)) is not None:
                    self._merged[window][id(values)].append(value)
        self.forget(rows)

    def merge(self, into: Indices, parts: Indices) -> None:
        pass  # begin does

    def begin(self, rows: Indices, is_new: Mask, is_grown: Mask) -> None:
        windows = np.flatnonzero(is_grown)
        for window, bounds in zip(windows.tolist(), self._at(rows[windows]), strict=True):
            self._ctx._merged = self._merged[window]
            self._call(self._trigger.on_merge, bounds, f"the window {bounds}")
        self._ctx._merged = {}

    def on_records(self, records: Records, rows: Indices, passed_ms: int | Int64s) -> Acts:
        typed = read_records(self._uid, self._reader, records)
        times = [None] * len(rows)
        if self._has_event_time:
            assert records.event_time is not None
            times = records.event_time.tolist()
        acts = np.zeros(len(rows), np.int8)
        distinct, number = np.unique(rows, return_inverse=True)
        bounds, keys = self._bounds(distinct), self._keys(distinct)
        on_element, ctx, cursor = self._trigger.on_element, self._ctx, self._cursor
        passed = np.broadcast_to(passed_ms, len(rows)).tolist()
        n = 0
        try:
            for n, (row, of) in enumerate(zip(rows.tolist(), number.tolist(), strict=True)):
                cursor.row, ctx.key, ctx.watermark = row, keys[of], passed[n]
                acts[n] = self._checked(on_element, on_element(typed[n], times[n], bounds[of], ctx))
        except Exception as error:
            place = shown_record(records, n, typed[n])
            raise user_error_at(self._uid, on_element, error, place, records, n) from error
        return acts

    @property
    def holds_rows(self) -> bool:
        return False

    @property
    def is_firing(self) -> bool:
        return self._is_firing

    def on_watermark(self, time_ms: int) -> None:
        self._ctx.watermark = max(time_ms, self._ctx.watermark)
        self._is_firing = True
        if time_ms == WATERMARK_MAX_MS:  # what a timer sets now would fire without end
            self._timers.is_closed = self._clock_timers.is_closed = True

    def due_of(self, rows: Indices, passed_ms: Int64s) -> Acted | None:
        due = Due()
        for row, until_ms in zip(rows.tolist(), passed_ms.tolist(), strict=True):
            due += self._timers.due_of([row], until_ms)
        due.sort()
        return self._fired(due, self._timers, self._trigger.on_event_time) if due else None

    def by_event_time(self, until_ms: int, count: int) -> Acted | None:
        due = self._timers.pop_due(until_ms, count)
        if not due:
            self._is_firing = until_ms < self._spans.lateness.reached_ms
            return None
        return self._fired(due, self._timers, self._trigger.on_event_time)

    def by_clock(self, now_ms: int, count: int) -> Acted | None:
        due = self._clock_timers.pop_due(now_ms, count)
        return self._fired(due, self._clock_timers, self._trigger.on_processing_time) if due else None

    def event_ms(self, rows: Indices) -> Int64s:
        return self._timers.first_of(rows)

    def clock_ms(self, rows: Indices) -> Int64s:
        return self._clock_timers.first_of(rows)

    @property
    def next_event_ms(self) -> int:
        first_ms = self._timers.first_ms
        return WATERMARK_MAX_MS if first_ms is None else first_ms

    @property
    def next_clock_ms(self) -> int | None:
        return self._clock_timers.first_ms

    def is_blank(self, rows: Indices) -> Mask:
        timers = self._timers, self._clock_timers
        return np.array(
            [
                self._states.is_empty(row) and all(of_kind.is_empty(row) for of_kind in timers)
                for row in rows.tolist()
            ],
            np.bool_,
        )

    def forget(self, rows: Indices) -> None:
        if type(self._trigger).clear is not Trigger.clear:
            for bounds in self._at(rows):
                self._call(self._trigger.clear, bounds, f"the window {bounds}")
        self._states.clear(rows)
        self._timers.clear(rows)
        self._clock_timers.clear(rows)

    # --- Calls ---

    def _fired(self, due: Due, timers: KeyTimers, method: Callable[..., Any]) -> Acted:
        """Call the method for each of these timers that is still set, and whose window is still there."""
        rows = np.array([row for _, row in due], np.int64)
        self._spans.table.note_changed(rows)
        acts = np.zeros(len(due), np.int8)
        times = np.array([time for time, _ in due], np.int64)
        is_event = timers is self._timers
        self._ctx.watermark = self._spans.lateness.reached_ms
        for n, bounds in enumerate(self._at(rows)):
            time_ms, row = due[n]
            is_gone = is_event and time_ms > bounds.max_timestamp + self._lateness_ms
            if not timers.is_alive(time_ms, row) or is_gone:
                continue
            try:
                acts[n] = self._checked(method, method(time_ms, bounds, self._ctx))
            except Exception as error:
                place = f"the timer at {time_ms} of the window {bounds} of key {self._ctx.key!r}"
                raise user_error_at(self._uid, method, error, place) from error
        acting = acts != 0
        return Acted(rows[acting], acts[acting], times[acting], len(due))

    def _at(self, rows: Indices) -> Any:
        """The bounds of these windows, one after the other; each is then the current one."""
        keys, ctx, cursor = self._keys(rows), self._ctx, self._cursor
        for row, key, bounds in zip(rows.tolist(), keys, self._bounds(rows), strict=True):
            cursor.row, ctx.key = row, key
            yield bounds

    def _call(self, method: Callable[..., Any], bounds: WindowBounds, place: str) -> None:
        try:
            method(bounds, self._ctx)
        except Exception as error:
            raise user_error_at(self._uid, method, error, f"{place} of key {self._ctx.key!r}") from error

    def _checked(self, method: Callable[..., Any], result: Any) -> TriggerResult:
        if not isinstance(result, TriggerResult):
            raise UserFunctionError(
                f"operator {self._uid!r}: {function_name(method)} returned {result!r}: return a "
                "TriggerResult, as TriggerResult.CONTINUE or TriggerResult.FIRE"
            )
        return result

    def _bounds(self, rows: Indices) -> list[WindowBounds]:
        starts, ends = self._spans.start.of(rows).tolist(), self._spans.end.of(rows).tolist()
        return list(map(WindowBounds, starts, ends))

    def _keys(self, rows: Indices) -> list[Any]:
        return key_values(self._spans.table.keys(rows))


def key_values(keys: pa.RecordBatch) -> list[Any]:
    """Keys as a function of the user's sees them: values, or tuples if there are several columns."""
    columns = [column.to_pylist() for column in keys.columns]
    return columns[0] if len(columns) == 1 else list(zip(*columns, strict=True))
