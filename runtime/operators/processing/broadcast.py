"""What reads broadcast state beside a stream, and the operator that writes it for every rule."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Generic, NoReturn, Protocol, TypeVar

import pyarrow as pa
from msgspec import structs

from onceflow.runtime.contracts import Json
from onceflow.runtime.errors import UserFunctionError
from onceflow.runtime.operators.operator import (
    FrozenState,
    Operator,
    OperatorContext,
    Output,
    RestoredState,
)
from onceflow.runtime.operators.processing.broadcast_state import (
    BroadcastState,
    are_same,
    declared_broadcast,
    decoded,
    encoded,
)
from onceflow.runtime.operators.processing.keyed_process import KeyedProcess
from onceflow.runtime.operators.processing.process import ProcessOperator
from onceflow.runtime.records import WATERMARK_MIN_MS, Records
from onceflow.runtime.state.asked_keys import AskedKeys
from onceflow.runtime.state.declared_state import State
from onceflow.runtime.state.description import StateDescription
from onceflow.runtime.state.evolution.readers import Reader, Readers, names_kept_as
from onceflow.runtime.state.row_values import NoKey
from onceflow.runtime.types.records_of_columns import RecordReader
from onceflow.runtime.types.user_functions import read_records, shown_record, user_error_at

KeyT = TypeVar("KeyT")
In = TypeVar("In")
Rule = TypeVar("Rule")
Out = TypeVar("Out")

STATE_BYTES_MAX = 4 << 20
"""The most bytes of all broadcast state of an operator: each subtask writes it with each checkpoint."""


class KeyedBroadcastProcess(KeyedProcess[KeyT, In, Out], Generic[KeyT, In, Rule, Out]):
    """The user's class for a keyed stream beside a stream of rules that all subtasks get: process() and
    on_timer() as in a KeyedProcess, which read broadcast state, and process_broadcast(), which writes it.

    KeyedBroadcastProcess[K, I, R, O] names the types of key, records, rules and records out. All subtasks
    have to come to the same state: process_broadcast() may hang on nothing but the rules and the broadcast
    state, and rules that replace each other have to come from one split of their source.
    """

    def process_broadcast(self, rule: Rule, ctx: BroadcastCtx, /) -> None:
        """Called for each rule, on every subtask. There is no key, and nothing to send."""
        raise NotImplementedError


@dataclass(frozen=True, slots=True)
class BroadcastCtx:
    """What process_broadcast() gets besides the rule."""

    event_time: int | None
    """The rule's event time in ms; None in a stream without."""
    watermark: int
    """How far event time has come, in ms."""


def _refuse_state() -> NoReturn:
    raise UserFunctionError(
        "process_broadcast() has no key: the state of a key is there only in process() and on_timer()"
    )


_NO_KEY = NoKey(_refuse_state)


class Beside(Protocol):
    """The configuration of the operator that gets the records beside the rules."""

    @property
    def uid(self) -> str: ...
    @property
    def process(self) -> Any: ...
    @property
    def description(self) -> StateDescription: ...
    @property
    def readers(self) -> Readers: ...


@dataclass(frozen=True)
class BroadcastConfig:
    """A class with broadcast state, checked when the graph is built. `main` is what it does with records,
    `rules` makes records of the other stream."""

    main: Beside
    rules: RecordReader

    @property
    def description(self) -> StateDescription:
        main = self.main.description
        declared = declared_broadcast(self.main.process, self.main.uid).values()
        return structs.replace(main, parts=(*main.parts, *(each.part for each in declared)))

    @property
    def readers(self) -> Readers:
        declared = declared_broadcast(self.main.process, self.main.uid).values()
        mine = {each.name: Reader((), each.codec.reads, each.former_names) for each in declared}
        return {**self.main.readers, **mine}


class BroadcastOperator:
    """One subtask: the operator that gets the records, whose object has the broadcast state too."""

    def __init__(self, config: BroadcastConfig, main: Operator, process: Any) -> None:
        """`process`: the object of the user's class that `main` calls."""
        self._config = config
        self._uid = config.main.uid
        self._main = main
        self._process = process
        self._watermark = WATERMARK_MIN_MS
        self._states: dict[str, BroadcastState[Any, Any]] = {}
        for attribute, declared in declared_broadcast(config.main.process, self._uid).items():
            bound = copy.copy(declared)
            bound._entries = {}
            setattr(self._process, attribute, bound)
            self._states[declared.name] = bound

    def open(self, context: OperatorContext, out: Output) -> None:
        self._main.open(context, out)

    def restore(self, states: Sequence[RestoredState]) -> None:
        self._main.restore(states)
        copies: list[Any] = [self._named(state.meta.get("broadcast") or {}) for state in states]
        for name, state in self._states.items():
            found = [copied[name] for copied in copies if name in copied]
            if not all(are_same(state, found[0], other) for other in found[1:]):
                raise UserFunctionError(
                    f"operator {self._uid!r}: subtasks have come to different broadcast states "
                    f"{name!r}: process_broadcast() may hang on nothing but rules and broadcast state, and "
                    "rules that replace each other have to come from one split. Correct it, and start from a "
                    "checkpoint before, or with a new uid"
                )
            state._entries = decoded(state, found[0]) if found else {}

    def _named(self, kept: Any) -> dict[str, Any]:
        """What was kept, by the names of now."""
        meant = names_kept_as(self._config.readers, self._config.readers, kept)
        return {**kept, **{name: kept[names[0]] for name, names in meant.items()}}

    def on_records(self, records: Records) -> None:
        self._main.on_records(records)

    def on_right_records(self, records: Records) -> None:
        uid, process = self._uid, self._process
        for value in vars(process).values():
            if isinstance(value, State):
                value.of_rows.cursor.row = _NO_KEY  # type: ignore[assignment]
        typed = read_records(uid, self._config.rules, records)
        times = [None] * len(records) if records.event_time is None else records.event_time.tolist()
        self._open(True)
        for n, (rule, time) in enumerate(zip(typed, times, strict=True)):
            try:
                process.process_broadcast(rule, BroadcastCtx(time, self._watermark))
            except Exception as error:
                place = shown_record(records, n, rule)
                raise user_error_at(uid, process.process_broadcast, error, place, records, n) from error
        self._open(False)

    def on_watermark(self, time_ms: int) -> None:
        self._watermark = max(self._watermark, time_ms)
        self._main.on_watermark(time_ms)

    def snapshot(self) -> FrozenState:
        main = self._main.snapshot()
        assert main is not None
        copies: dict[str, Json] = {name: encoded(state) for name, state in self._states.items()}
        size = sum(len(str(text)) for text in copies.values())
        if size > STATE_BYTES_MAX:
            raise UserFunctionError(
                f"operator {self._uid!r}: its broadcast state has {size} bytes, more than "
                f"{STATE_BYTES_MAX}: each subtask writes it with each checkpoint. Keep what is large by key, "
                "with key_by on both streams"
            )
        return FrozenState(main.key_groups, main.tables, {**main.meta, "broadcast": copies})

    def close(self) -> None:
        self._main.close()

    def _open(self, is_open: bool) -> None:
        for state in self._states.values():
            state._is_open = is_open


class KeyedBroadcastOperator(BroadcastOperator):
    """One subtask of a KeyedBroadcastProcess."""

    def __init__(self, config: BroadcastConfig, main: ProcessOperator) -> None:
        super().__init__(config, main, main.function)
        self._keyed = main

    def peek(self, asked: AskedKeys) -> Sequence[pa.RecordBatch]:
        return self._keyed.peek(asked)

    def fire(self, rows_max: int) -> int:
        return self._keyed.fire(rows_max)

    @property
    def wake_at_ms(self) -> int | None:
        return self._keyed.wake_at_ms

    def on_clock(self, now_ms: int, rows_max: int) -> int:
        return self._keyed.on_clock(now_ms, rows_max)
