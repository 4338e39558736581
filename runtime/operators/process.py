"""ProcessOperator: runs a KeyedProcess over batches, its state and timers by the slot of the key."""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from heapq import heappop, heappush
from itertools import repeat
from typing import Any

import numpy as np
import pyarrow as pa

from onceflow.runtime.errors import UserFunctionError
from onceflow.runtime.operators.describe import key_columns
from onceflow.runtime.operators.keyed_process import (
    Ctx,
    KeyedProcess,
    SideOutput,
    Timers,
    declared_sides,
    declared_states,
)
from onceflow.runtime.operators.operator import MAIN, FrozenState, OperatorContext, Output, RestoredState
from onceflow.runtime.operators.user_functions import describe_record, function_name, user_error_at
from onceflow.runtime.records import WATERMARK_MIN_MS, Indices, Records
from onceflow.runtime.state.description import StateDescription, StatePart, type_text
from onceflow.runtime.state.frozen_rows import TableRows
from onceflow.runtime.state.handles import ListState, MapState, State
from onceflow.runtime.state.hashing import hash_keys
from onceflow.runtime.state.keyed_slots import FrozenSlots, KeyedSlots
from onceflow.runtime.state.slot_values import Cursor, FrozenValues, SlotValues
from onceflow.runtime.state.timers import TIMERS_TYPE, EventTimers, Timer
from onceflow.runtime.types import RecordReader, WrongFieldError, batch_from_records

TABLE = "keys"
_RECHECK_MIN = 1 << 10
_CHAINED_TIMERS_MAX = 1_000_000


@dataclass(frozen=True)
class ProcessConfig:
    """A KeyedProcess, checked when the graph is built. `schema` is the input's, `made` the output's."""

    uid: str
    process: KeyedProcess[Any, Any, Any]
    key_columns: tuple[str, ...]
    schema: pa.Schema
    made: pa.Schema
    reader: RecordReader
    has_event_time: bool

    @property
    def description(self) -> StateDescription:
        keys = key_columns(self.key_columns, self.schema)
        parts = tuple(map(_part, declared_states(self.process, self.uid).values()))
        return StateDescription("process", TABLE, keys, parts, has_timers=self.has_event_time)

    def create(self) -> ProcessOperator:
        """A fresh operator for one subtask and attempt."""
        return ProcessOperator(self)


class ProcessOperator:
    """One subtask of a KeyedProcess. A key that remembers nothing and has no timers costs nothing after
    the next barrier."""

    def __init__(self, config: ProcessConfig) -> None:
        self._config = config
        self._slots = KeyedSlots(config.key_columns, config.schema)
        self._cursor = Cursor()
        self._timers = EventTimers()
        self._process = copy.copy(config.process)
        self._states: dict[str, SlotValues] = {}
        for attribute, declared in declared_states(config.process, config.uid).items():
            bound = declared.bind(self._cursor)
            setattr(self._process, attribute, bound)
            self._states[declared.name] = bound.slots
        self._sides: dict[str, SideOutput[Any]] = declared_sides(config.process, config.uid)
        handles = Timers(config.uid, self._timers, self._cursor, config.has_event_time)
        self._ctx = Ctx(handles, self._sides)
        self._fired_ms = self._ctx.watermark  # all timers up to here have fired

    def open(self, context: OperatorContext, out: Output) -> None:
        self._context = context
        self._out = out

    def restore(self, states: Sequence[RestoredState]) -> None:
        for state in states:
            for piece in state.batches(TABLE):
                self._load(piece)
        if states:
            self._fired_ms = self._ctx.watermark = min(int(state.meta["watermark"]) for state in states)

    def on_records(self, records: Records) -> None:
        assert records.key_hash is not None, "a KeyedProcess comes after a key_by"
        slots = self._slots.find_or_add(records.batch, records.key_hash, None)
        self._grow()
        self._count_late(records)
        ctx, cursor, process = self._ctx, self._cursor, self._process.process
        times = repeat(None) if records.event_time is None else records.event_time.tolist()
        rows = self._config.reader.read(records.batch)
        made = _Made()
        row = 0
        try:
            for row, (cursor.slot, ctx.key, ctx.event_time, record) in enumerate(
                zip(slots.tolist(), self._keys(records.batch), times, rows, strict=False)
            ):
                results = process(record, ctx)
                if results is not None:
                    made.add(results, row, ctx.event_time)
        except Exception as error:
            place = describe_record(records, row, rows[row])
            raise user_error_at(self._config.uid, process, error, place, records, row) from error
        self._send(made, lambda row: describe_record(records, row, rows[row]))

    def on_watermark(self, time_ms: int) -> None:
        self._ctx.watermark = max(time_ms, self._ctx.watermark)  # after a restore it begins again lower
        if due := self._timers.pop_due(time_ms):
            self._fire(due, time_ms)
        self._fired_ms = self._ctx.watermark

    def snapshot(self) -> FrozenState:
        self._forget_empty_keys()
        frozen = self._slots.freeze()
        live = frozen.live.all()
        states = {name: state.freeze(live) for name, state in self._states.items()}
        timers = self._timers.freeze(live)
        rows = TableRows(lambda: _table(frozen, self._context.max_parallelism, states, timers))
        return FrozenState(self._context.key_groups, {TABLE: rows}, {"watermark": self._fired_ms})

    def close(self) -> None:
        pass

    # --- Timers ---

    def _fire(self, due: list[tuple[int, int]], watermark_ms: int) -> None:
        """Call on_timer for these, in order of time, and for those that it registers up to the watermark."""
        ctx, on_timer = self._ctx, self._process.on_timer
        slots = sorted({slot for _, slot in due})
        keys = dict(zip(slots, self._keys(self._slots.keys(np.array(slots))), strict=True))
        made = _Made()
        fired: list[Timer] = []
        last = len(due) + _CHAINED_TIMERS_MAX
        while due:  # sorted, and so a heap
            time, slot = heappop(due)
            if not self._timers.is_alive(time, slot):
                continue
            self._cursor.slot, ctx.key, ctx.event_time = slot, keys[slot], time
            try:
                fired.append(Timer(time))
                results = on_timer(fired[-1], ctx)
                if results is not None:
                    made.add(results, len(fired) - 1, time)
            except Exception as error:
                place = f"the timer at {time} of key {ctx.key!r}"
                raise user_error_at(self._config.uid, on_timer, error, place) from error
            for timer in self._timers.pop_due(watermark_ms):
                heappush(due, timer)
            if len(fired) > last:
                raise UserFunctionError(
                    f"operator {self._config.uid!r}: {function_name(on_timer)} for key {ctx.key!r} registers "
                    f"timer after timer up to the watermark {watermark_ms}, without end; it must stop at the "
                    "end of the input (ctx.is_end_of_input)"
                )
        self._send(made, lambda row: f"the timer at {fired[row].time}")

    # --- Keys and state ---

    def _keys(self, batch: pa.RecordBatch) -> list[Any]:
        columns = [batch.column(name).to_pylist() for name in self._config.key_columns]
        return columns[0] if len(columns) == 1 else list(zip(*columns, strict=True))

    def _grow(self) -> None:
        for state in self._states.values():
            state.grow(self._slots.size)
        self._timers.grow(self._slots.size)

    def _forget_empty_keys(self) -> None:
        """Let go of keys that remember nothing, when they are at least half."""
        empty: Sequence[int] = range(self._slots.size)
        for state in self._states.values():
            values = state.values
            empty = [slot for slot in empty if values[slot] is None]
        empty = [slot for slot in empty if self._timers.is_empty(slot)]
        if len(empty) >= _RECHECK_MIN and 2 * len(empty) >= self._slots.size:
            self._slots.remove(np.array(empty))
            kept = self._slots.compact()
            for state in self._states.values():
                state.keep(kept)
            self._timers.keep(kept)

    def _load(self, piece: pa.RecordBatch) -> None:
        keys = pa.RecordBatch.from_struct_array(piece.column("key"))
        slots: Indices = self._slots.find_or_add(keys, hash_keys(keys, self._config.key_columns), None)
        self._grow()
        if self._states:
            columns = piece.column("state")
            for name, state in self._states.items():
                # A state that is new remembers nothing yet; one that is gone was allowed to be dropped.
                if columns.type.get_field_index(name) >= 0:
                    state.load(slots, columns.field(name))
        self._timers.load(slots, piece.column("timers").to_pylist())

    # --- Rows out ---

    def _count_late(self, records: Records) -> None:
        if records.event_time is not None and self._ctx.watermark > WATERMARK_MIN_MS:
            late = int(np.count_nonzero(records.event_time <= self._ctx.watermark))
            if late:
                self._context.count_late(late)

    def _send(self, made: _Made, describe: Callable[[int], str]) -> None:
        if made.records:
            times = made.event_times()
            self._emit(MAIN, self._config.made, made.records, times, lambda n: describe(made.row_of(n)))
        for name, (records, times) in self._ctx.sent.items():
            if records:
                place = f"side output {name!r}"
                self._emit(name, self._sides[name].schema, records, times, partial(_constant, place))
                self._ctx.sent[name] = ([], [])

    def _emit(
        self,
        tag: str,
        schema: pa.Schema,
        records: list[Any],
        times: list[int | None],
        describe: Callable[[int], str],
    ) -> None:
        try:
            batch = batch_from_records(records, schema)
        except WrongFieldError as error:
            name, place = type(self._process).__name__, describe(error.row)
            raise UserFunctionError(
                f"operator {self._config.uid!r}: {name} made a wrong record for {place}: {error}"
            ) from error
        self._out.emit(
            Records(batch, np.array(times, np.int64) if self._config.has_event_time else None), tag
        )


class _Made:
    """Records that the user's functions gave, and from which call each came."""

    def __init__(self) -> None:
        self.records: list[Any] = []
        self._ends: list[int] = []
        self._rows: list[int] = []
        self._times: list[int | None] = []

    def add(self, results: Any, row: int, event_time: int | None) -> None:
        before = len(self.records)
        self.records.extend(results)
        if len(self.records) != before:
            self._ends.append(len(self.records))
            self._rows.append(row)
            self._times.append(event_time)

    def event_times(self) -> list[int | None]:
        counts = np.diff(self._ends, prepend=0).tolist()
        return [time for time, count in zip(self._times, counts, strict=True) for _ in range(count)]

    def row_of(self, record: int) -> int:
        """The row from which the record at this place came."""
        return self._rows[int(np.searchsorted(self._ends, record, side="right"))]


def _table(
    frozen: FrozenSlots, max_parallelism: int, states: dict[str, FrozenValues], timers: FrozenValues
) -> pa.Table:
    """One row for each key: key_group, key (struct), state (struct, one field for each), timers (list)."""
    live = frozen.live.all()
    columns = {
        "key_group": pa.array(frozen.key_groups(live, max_parallelism)),
        "key": frozen.keys(live).to_struct_array(),
    }
    if states:
        arrays = {name: freeze() for name, freeze in states.items()}
        columns["state"] = pa.StructArray.from_arrays(
            list(arrays.values()), fields=[pa.field(name, a.type) for name, a in arrays.items()]
        )
    columns["timers"] = timers()
    assert columns["timers"].type == TIMERS_TYPE
    return pa.table(columns)


def _part(state: State) -> StatePart:
    kind = "list" if isinstance(state, ListState) else "map" if isinstance(state, MapState) else "value"
    return StatePart(state.name, kind, type_text(state.slots.codec.field.type), is_nullable=True)


def _constant(place: str, _: int) -> str:
    return place
