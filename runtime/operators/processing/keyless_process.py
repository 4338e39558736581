"""Process: the user's code for a stream without a key, and the operator that calls it."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from itertools import repeat
from typing import Any, Generic, NoReturn, TypeVar

from onceflow.runtime.errors import GraphError, UserFunctionError
from onceflow.runtime.functions.lives import life_of, own_instance
from onceflow.runtime.operators.declared import declared_sides, declared_states
from onceflow.runtime.operators.failed_records import ErrorPolicy, FailedRecords, read_or_set_aside
from onceflow.runtime.operators.function_state import TABLE, FunctionState, FunctionStateConfig
from onceflow.runtime.operators.operator import FrozenState, OperatorContext, Output, RestoredState
from onceflow.runtime.operators.processing.keyed_process import Ctx
from onceflow.runtime.operators.processing.process_output import Made, ProcessOutput
from onceflow.runtime.operators.processing.watermark_calls import WatermarkCalls
from onceflow.runtime.operators.timers import Timers
from onceflow.runtime.records import WATERMARK_MIN_MS, Records
from onceflow.runtime.state.description import BY_SUBTASK, StateDescription
from onceflow.runtime.state.evolution.readers import Readers
from onceflow.runtime.state.operator_state import restored_watermark
from onceflow.runtime.state.row_values import Cursor, NoKey
from onceflow.runtime.state.timers import KeyTimers
from onceflow.runtime.types.columns_of_records import RecordWriter
from onceflow.runtime.types.records_of_columns import RecordReader
from onceflow.runtime.types.user_functions import read_records, shown_record, user_error_at

In = TypeVar("In")
Out = TypeVar("Out")


class Process(Generic[In, Out]):
    """The user's class for a stream without a key: process() for each record, on_watermark() when event time
    has come further.

    Process[I, O] names the types of records in and records out (None: side outputs only). One object serves
    a subtask: what it keeps is lost at a restart, unless it is in an OperatorListState or UnionListState. For
    state by key and timers see KeyedProcess.
    """

    def process(self, record: In, ctx: Ctx, /) -> Iterable[Out] | None:
        """Called for each record, late ones too (ctx.is_late). Yields records, or returns an iterable or
        None; they get the event time of the record. `ctx.key` is None, and `ctx.timers` takes no timer."""
        raise NotImplementedError

    def on_watermark(self, watermark: int, ctx: Ctx, /) -> Iterable[Out] | None:
        """Called when event time of the subtask has come to `watermark`. What it yields gets the event time
        `ctx.event_time`, which is `watermark`, and goes out before it; at the end of the input
        (ctx.is_end_of_input) that of the latest record."""
        return None


def check_keyless(process: Any, uid: str, keyed: str = "") -> None:
    """Raises GraphError for what a class without a key can't have. `keyed`: what to write for one that has,
    if it is not for a single stream."""
    name = type(process).__name__
    instead = keyed or f"write class {name}(KeyedProcess[K, I, O]), and stream.key_by(...).process({name}())"
    for state in declared_states(process, uid).values():
        raise GraphError(
            f"operator {uid!r}: state {state.name!r} of {name} belongs to a key, and it has none: use "
            f"an OperatorListState, or {instead}"
        )
    if hasattr(process, "on_timer"):
        raise GraphError(
            f"operator {uid!r}: {name} has on_timer(), but timers belong to a key, and it has none: "
            f"use on_watermark(), or {instead}"
        )


@dataclass(frozen=True)
class KeylessConfig:
    """A Process or CoProcess, checked when the graph is built. `reader` makes its records, those of the left
    stream if there are two; `made` columns of what it yields."""

    uid: str
    process: Any
    reader: RecordReader
    made: RecordWriter
    has_event_time: bool
    lists: FunctionStateConfig | None = None
    on_error: ErrorPolicy | None = None

    @property
    def description(self) -> StateDescription:
        described = None if self.lists is None else self.lists.description
        return described or StateDescription("function", TABLE, (), (), distribution=BY_SUBTASK)

    @property
    def readers(self) -> Readers:
        return {} if self.lists is None else self.lists.readers

    def create(self) -> KeylessOperator:
        """A fresh operator for one subtask and attempt."""
        return KeylessOperator(self)


class KeylessOperator:
    """One subtask of a Process. Its snapshot has how far event time had come, and the lists."""

    def __init__(self, config: KeylessConfig) -> None:
        self._config = config
        has_life = life_of(config.process) is not None
        self._process = own_instance(config.process, config.uid) if has_life else copy.copy(config.process)
        self._lists = None if config.lists is None else FunctionState(config.lists, self._process)
        self._sides = declared_sides(config.process, config.uid)
        self._failed: FailedRecords | None = None
        self._checkpoint_id = 0

    @property
    def function(self) -> Any:
        """The user's object of this subtask."""
        return self._process

    def open(self, context: OperatorContext, out: Output) -> None:
        config = self._config
        self._context = context
        if self._lists is not None:
            self._lists.open(context)
        context.open_function(self._process)
        who = f"operator {config.uid!r}: {type(self._process).__name__}"
        self._output = ProcessOutput(who, config.made, self._sides, config.has_event_time, out)
        if config.on_error is not None:
            self._failed = FailedRecords(config.on_error, context, out)
        cursor = Cursor()
        cursor.row = no_key = NoKey(self._refuse_timer)  # type: ignore[assignment]
        timers = Timers(config.uid, KeyTimers(), KeyTimers(), cursor, config.has_event_time)
        self._ctx = Ctx(timers, self._sides, context.clock)
        self._calls = WatermarkCalls(config.uid, self._process, self._ctx, cursor, self._output, no_key)

    def _refuse_timer(self) -> NoReturn:
        name = type(self._process).__name__
        raise UserFunctionError(
            f"operator {self._config.uid!r}: a timer belongs to a key, and {name} has none: write "
            "stream.key_by(...).process(...) with a KeyedProcess, or use on_watermark()"
        )

    def restore(self, states: Sequence[RestoredState]) -> None:
        if states:
            kept_ms = min(int(state.meta.get("watermark", WATERMARK_MIN_MS)) for state in states)
            self._ctx.watermark = restored_watermark(kept_ms)
            if self._lists is not None:
                self._lists.restore(states)

    def begin(self) -> None:
        if self._lists is not None:
            self._lists.begin()

    def on_records(self, records: Records) -> None:
        self._take(records, self._config.reader, self._process.process)

    def _take(self, records: Records, reader: RecordReader, process: Callable[..., Any]) -> None:
        config, failed = self._config, self._failed
        if failed is None:
            typed = read_records(config.uid, reader, records)
        else:
            typed, records = read_or_set_aside(config.uid, reader, records, failed)
        if len(records):
            self._calls.note(records)
            self._process_each(records, typed, process)
        if failed is not None:
            failed.send()

    def _process_each(self, records: Records, typed: list[Any], process: Callable[..., Any]) -> None:
        ctx, failed, made = self._ctx, self._failed, Made()
        times = repeat(None) if records.event_time is None else records.event_time.tolist()
        ctx.key = None
        n = 0
        for n, (ctx.event_time, record) in enumerate(zip(times, typed, strict=False)):
            sent_before = [] if failed is None else [len(each) for each, _ in ctx.sent.values()]
            try:
                results = process(record, ctx)
                if results is not None:
                    made.add(results, n, ctx.event_time)
            except Exception as error:
                if failed is None:
                    place = shown_record(records, n, record)
                    raise user_error_at(self._config.uid, process, error, place, records, n) from error
                failed.add(process, error, records, n, record)
                made.undo()
                for (sent, sent_times), length in zip(ctx.sent.values(), sent_before, strict=True):
                    del sent[length:], sent_times[length:]
        self._output.send(made, ctx.sent, lambda n: shown_record(records, n, typed[n]))

    def on_watermark(self, time_ms: int) -> None:
        if time_ms <= self._ctx.watermark:
            return  # after a restore it begins again lower
        before_ms, self._ctx.watermark = self._ctx.watermark, time_ms
        self._calls.call(before_ms)

    def on_barrier(self, checkpoint_id: int) -> None:
        self._checkpoint_id = checkpoint_id

    def snapshot(self) -> FrozenState:
        kept = None if self._lists is None else self._lists.snapshot(self._checkpoint_id)
        tables = {} if kept is None else kept.tables
        return FrozenState(self._context.key_groups, tables, {"watermark": self._ctx.watermark})

    def close(self) -> None:
        pass
