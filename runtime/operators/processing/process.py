"""ProcessOperator: runs a KeyedProcess or KeyedCoProcess over batches, state and timers by the key's row."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from itertools import repeat
from typing import Any

import numpy as np
import pyarrow as pa

from onceflow.runtime.contracts import Json
from onceflow.runtime.functions.lives import life_of, own_instance
from onceflow.runtime.operators.declared import SideOutput, class_name, declared_sides, declared_states
from onceflow.runtime.operators.describe import key_columns, state_part, state_readers
from onceflow.runtime.operators.failed_records import ErrorPolicy, FailedRecords, read_or_set_aside
from onceflow.runtime.operators.operator import FrozenState, OperatorContext, Output, RestoredState
from onceflow.runtime.operators.processing.key_memory import TABLE, KeyMemory
from onceflow.runtime.operators.processing.keyed_process import AnyProcess, Ctx, KeyedCoProcess, KeyedProcess
from onceflow.runtime.operators.processing.process_output import Made, ProcessOutput
from onceflow.runtime.operators.processing.process_undo import Undo
from onceflow.runtime.operators.processing.timer_firing import CHAINED_TIMERS_MAX, TimerFiring
from onceflow.runtime.operators.processing.watermark_calls import WatermarkCalls
from onceflow.runtime.operators.timers import Timers
from onceflow.runtime.operators.two_keys import RightInput, joint_keys, keys_of
from onceflow.runtime.records import WATERMARK_MAX_MS, WATERMARK_MIN_MS, Indices, Records
from onceflow.runtime.state.asked_keys import AskedKeys
from onceflow.runtime.state.description import StateDescription
from onceflow.runtime.state.evolution.readers import Readers
from onceflow.runtime.state.operator_state import restored_watermark
from onceflow.runtime.state.row_values import Cursor, RowValues
from onceflow.runtime.types.columns_of_records import RecordWriter
from onceflow.runtime.types.records_of_columns import values_from_array
from onceflow.runtime.types.user_functions import Reads, read_records, shown_record, user_error_at
from onceflow.runtime.types.value_types import ValueType


@dataclass(frozen=True)
class ProcessConfig:
    """A KeyedProcess, checked when the graph is built. `schema` is the input's, `made` makes the
    output's batches. `key_types`: of the key columns; None where a key is what Arrow gives. `right`: of a
    KeyedCoProcess, the rest is of its left input."""

    uid: str
    process: AnyProcess
    key_columns: tuple[str, ...]
    schema: pa.Schema
    made: RecordWriter
    reader: Reads
    has_event_time: bool
    key_types: tuple[ValueType | None, ...] = ()
    chained_timers_max: int = CHAINED_TIMERS_MAX
    """More timers that fire at one watermark and were registered meanwhile are taken for an endless chain."""
    on_error: ErrorPolicy | None = None
    """What becomes of a record for which process() raises; a failing on_timer() always fails the attempt."""
    right: RightInput | None = None

    @property
    def description(self) -> StateDescription:
        keys = key_columns(self.key_columns, self.schema)
        parts = tuple(map(state_part, declared_states(self.process, self.uid).values()))
        right = () if self.right is None else key_columns(self.right.key_columns, self.right.schema)
        return StateDescription(
            "process", TABLE, keys, parts, has_timers=self.has_event_time, right_keys=right
        )

    @property
    def readers(self) -> Readers:
        return state_readers(declared_states(self.process, self.uid).values(), "state")

    @property
    def key_schema(self) -> pa.Schema:
        """The key columns as the state has them, by the names of the left input."""
        left = [self.schema.field(name) for name in self.key_columns]
        return pa.schema(left) if self.right is None else joint_keys(left, self.right.key_fields)

    def create(self) -> ProcessOperator:
        """A fresh operator for one subtask and attempt."""
        return ProcessOperator(self)


class ProcessOperator:
    """One subtask of a KeyedProcess.

    Timers fire in pieces (FiringOperator, ClockOperator). A record that comes between two pieces is processed
    after the event-time timers of its own key that are due: a key sees its timers and records in the order in
    which it would without pieces.
    """

    def __init__(self, config: ProcessConfig) -> None:
        self._config = config
        self._cursor = Cursor()
        has_life = life_of(config.process) is not None
        self._process = own_instance(config.process, config.uid) if has_life else copy.copy(config.process)
        states: dict[str, RowValues] = {}
        for attribute, declared in declared_states(config.process, config.uid).items():
            bound = declared.bind(self._cursor)
            setattr(self._process, attribute, bound)
            states[declared.name] = bound.of_rows
        self._key_schema = config.key_schema
        self._memory = KeyMemory(config.key_columns, self._key_schema, states)
        self._timers, self._clock_timers = self._memory.timers, self._memory.clock_timers
        self._sides: dict[str, SideOutput[Any]] = declared_sides(config.process, config.uid)
        self._is_firing = False
        """Whether some up to the watermark may not have."""
        self._failed: FailedRecords | None = None

    @property
    def function(self) -> AnyProcess:  # the user's object of this subtask
        return self._process

    def open(self, context: OperatorContext, out: Output) -> None:
        config = self._config
        who = f"operator {config.uid!r}: {class_name(self._process)}"
        self._context = context
        self._cursor.clock_ms = context.clock.now_ms()
        self._memory.open(context)
        context.open_function(self._process)
        self._output = ProcessOutput(who, config.made, self._sides, config.has_event_time, out)
        if config.on_error is not None:
            self._failed = FailedRecords(config.on_error, context, out)
        timers = Timers(config.uid, self._timers, self._clock_timers, self._cursor, config.has_event_time)
        self._ctx = Ctx(timers, self._sides, context.clock)
        self._calls = WatermarkCalls(config.uid, self._process, self._ctx, self._cursor, self._output)
        self._firing = TimerFiring(
            config.uid,
            self._process,
            self._ctx,
            self._cursor,
            self._keys_to_fire,
            self._output,
            context.clock,
            config.chained_timers_max,
        )

    def restore(self, states: Sequence[RestoredState]) -> None:
        if states:
            fired_ms = min(int(state.meta["watermark"]) for state in states)
            reached_ms = min(int(state.meta.get("reached", state.meta["watermark"])) for state in states)
            self._cursor.passed_ms = restored_watermark(fired_ms)
            self._ctx.watermark = WATERMARK_MIN_MS if fired_ms == WATERMARK_MAX_MS else reached_ms
            for state in states:
                self._memory.restore(state)
            self._is_firing = self._fired_ms < self._ctx.watermark
            self._firing.begin(self._timers)

    @property
    def _fired_ms(self) -> int:  # all event-time timers up to here have fired
        return self._cursor.passed_ms

    def on_records(self, records: Records) -> None:
        process = self._process
        if isinstance(process, KeyedProcess):
            self._process_each(records, self._config.reader, process.process, records.batch)
        else:
            keys = keys_of(records.batch, self._config.key_columns, self._key_schema)
            self._process_each(records, self._config.reader, process.process_left, keys)

    def on_right_records(self, records: Records) -> None:
        right, process = self._config.right, self._process
        assert right is not None, "there is one input"
        assert isinstance(process, KeyedCoProcess), "it has process_right"
        keys = keys_of(records.batch, right.key_columns, self._key_schema)
        self._process_each(records, right.reader, process.process_right, keys)

    def _process_each(
        self, records: Records, reader: Reads, process: Callable[..., Any], keys: pa.RecordBatch
    ) -> None:
        """Call the function for each of these rows. `keys`: a batch with the key columns."""
        config, failed = self._config, self._failed
        if failed is None:
            typed = read_records(config.uid, reader, records)
        else:
            typed, records = read_or_set_aside(config.uid, reader, records, failed)
            keys = records.batch  # a KeyedProcess's: the others have no on_error
            if not len(records):
                failed.send()
                return
        assert records.key_hash is not None, "a KeyedProcess comes after a key_by"
        rows = self._memory.find_or_add(keys, records.key_hash)
        self._count_late(records)
        self._calls.note(records)
        ctx, cursor = self._ctx, self._cursor
        cursor.clock_ms = self._context.clock.now_ms()
        if self._is_firing:
            self._firing.fire_of(self._timers, rows)
        times = repeat(None) if records.event_time is None else records.event_time.tolist()
        made = Made()
        undo = None if failed is None else self._undo(made)
        n = 0
        for n, (cursor.row, ctx.key, ctx.event_time, cursor.event_ms, record) in enumerate(
            zip(rows.tolist(), self._keys(keys), times, self._moments(records), typed, strict=False)
        ):
            if undo is not None:
                undo.begin(cursor.row)
            try:
                results = process(record, ctx)
                if results is not None:
                    made.add(results, n, ctx.event_time)
            except Exception as error:
                if failed is None or undo is None:
                    place = shown_record(records, n, record)
                    raise user_error_at(config.uid, process, error, place, records, n) from error
                failed.add(process, error, records, n, record)
                undo.roll_back(cursor.row)
        self._output.send(made, ctx.sent, lambda n: shown_record(records, n, typed[n]))
        if failed is not None:
            failed.send()
        self._memory.forget()
        self._memory.make_room()

    def _moments(self, records: Records) -> Iterable[int]:
        """The event time at which each record comes, for what may have expired."""
        if records.event_time is None:
            return repeat(WATERMARK_MIN_MS)
        moments: list[int] = np.maximum(records.event_time, self._ctx.watermark).tolist()
        return moments

    def _undo(self, made: Made) -> Undo:
        return Undo(self._memory.states, self._timers, self._clock_timers, self._ctx.sent, made)

    def on_watermark(self, time_ms: int) -> None:
        self._ctx.watermark = max(time_ms, self._ctx.watermark)  # after a restore it begins again lower
        self._clock_timers.is_closed = self._ctx.is_end_of_input
        self._is_firing = True
        self._firing.begin(self._timers)

    def fire(self, rows_max: int) -> int:
        self._cursor.clock_ms = self._context.clock.now_ms()
        fired, reached_ms = 0, WATERMARK_MIN_MS
        while not fired and reached_ms < self._ctx.watermark:
            reached_ms = self._memory.due_until(self._ctx.watermark, is_by_clock=False)
            fired = self._firing.fire_events(self._timers, reached_ms, rows_max)
        if not fired and self._ctx.is_end_of_input:
            fired = self.on_clock(WATERMARK_MAX_MS, rows_max)
        if not fired:
            if self._fired_ms < self._ctx.watermark:
                self._calls.call(self._fired_ms)
            self._cursor.passed_ms = self._ctx.watermark
            self._is_firing = False
            self._memory.forget()
        self._memory.make_room()
        return fired

    @property
    def wake_at_ms(self) -> int | None:
        return self._memory.wake_at_ms()

    def on_clock(self, now_ms: int, rows_max: int) -> int:
        self._cursor.clock_ms = now_ms if now_ms != WATERMARK_MAX_MS else self._context.clock.now_ms()
        fired, reached_ms = 0, WATERMARK_MIN_MS
        while not fired and reached_ms < now_ms:
            reached_ms = self._memory.due_until(now_ms, is_by_clock=True)
            fired = self._firing.fire_by_clock(self._clock_timers, reached_ms, rows_max, self._time_by_clock)
        self._memory.make_room()
        return fired

    def snapshot(self) -> FrozenState:
        self._cursor.clock_ms = self._context.clock.now_ms()
        rows = self._memory.freeze(self._context.max_parallelism)
        meta: dict[str, Json] = {"watermark": self._fired_ms}
        if self._fired_ms != self._ctx.watermark:
            meta["reached"] = self._ctx.watermark
        return FrozenState(self._context.key_groups, {TABLE: rows}, meta)

    def peek(self, asked: AskedKeys) -> list[pa.RecordBatch]:
        return self._memory.peek(asked, self._context.max_parallelism)

    def close(self) -> None:
        self._memory.close()

    # --- Keys and state ---

    def _keys(self, batch: pa.RecordBatch) -> list[Any]:
        names, types = self._config.key_columns, self._config.key_types or repeat(None)
        columns = [
            batch.column(name).to_pylist() if of is None else values_from_array(batch.column(name), of)
            for name, of in zip(names, types, strict=False)
        ]
        return columns[0] if len(columns) == 1 else list(zip(*columns, strict=True))

    def _keys_to_fire(self, rows: Indices) -> list[Any]:
        """The keys of rows whose timers fire, as the user sees them."""
        self._memory.table.note_changed(rows)
        return self._keys(self._memory.table.keys(rows))

    def _time_by_clock(self, time_ms: int) -> int | None:
        """The event time of what a processing-time timer yields: the first that is not late downstream, where
        the watermark has not come further than what has fired here."""
        if not self._config.has_event_time:
            return None
        return time_ms if self._fired_ms in (WATERMARK_MIN_MS, WATERMARK_MAX_MS) else self._fired_ms + 1

    def _count_late(self, records: Records) -> None:
        if records.event_time is not None and self._ctx.watermark > WATERMARK_MIN_MS:
            late = int(np.count_nonzero(records.event_time <= self._ctx.watermark))
            if late:
                self._context.count_late(late)
