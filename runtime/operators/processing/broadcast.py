"""Broadcast state: a few rules that every subtask has, written by one stream and read beside another one."""

from __future__ import annotations

import base64
import copy
from collections.abc import ItemsView, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Generic, NoReturn, TypeVar, overload

import pyarrow as pa

from onceflow.runtime.contracts import Json
from onceflow.runtime.errors import GraphError, UserFunctionError
from onceflow.runtime.operators.operator import FrozenState, OperatorContext, Output, RestoredState
from onceflow.runtime.operators.processing.keyed_process import KeyedProcess
from onceflow.runtime.operators.processing.process import ProcessConfig, ProcessOperator
from onceflow.runtime.records import WATERMARK_MIN_MS, Records, UInt64s
from onceflow.runtime.state.description import StateDescription, StatePart, type_text
from onceflow.runtime.state.evolution.conversion import converted
from onceflow.runtime.state.evolution.readers import Reader, Readers, names_kept_as
from onceflow.runtime.state.handles import State
from onceflow.runtime.state.row_values import MapCodec, NoKey
from onceflow.runtime.state.state_names import checked_former_names
from onceflow.runtime.types.records_of_columns import RecordReader
from onceflow.runtime.types.user_functions import read_records, shown_record, user_error_at

KeyT = TypeVar("KeyT")
In = TypeVar("In")
Rule = TypeVar("Rule")
Out = TypeVar("Out")
K = TypeVar("K")
V = TypeVar("V")
D = TypeVar("D")

STATE_BYTES_MAX = 4 << 20
"""The most bytes of all broadcast state of an operator: each subtask writes it with each checkpoint."""


class BroadcastState(Generic[K, V]):
    """A dictionary that all subtasks have, declared in a KeyedBroadcastProcess:
    `rules = BroadcastState("rules", str, Rule)`. Only process_broadcast() writes it."""

    def __init__(
        self, name: str, key_type: type[K], value_type: type[V], former_names: Iterable[str] = ()
    ) -> None:
        if not name:
            raise GraphError("a broadcast state needs a name")
        self.name = name
        self.former_names = checked_former_names(name, former_names)
        self.codec = MapCodec(name, key_type, value_type)
        self._entries: dict[K, V] | None = None
        self._is_open = False

    @overload
    def get(self, key: K) -> V | None: ...
    @overload
    def get(self, key: K, default: V | D) -> V | D: ...
    def get(self, key: K, default: Any = None) -> Any:
        """The entry, or `default` if there is none."""
        return self._here().get(key, default)

    def items(self) -> ItemsView[K, V]:
        """All entries; what is in them must not be changed."""
        return self._here().items()

    def put(self, key: K, value: V) -> None:
        self._writable()[key] = value

    def remove(self, key: K) -> None:
        """Nothing happens if there is no such entry."""
        self._writable().pop(key, None)

    def clear(self) -> None:
        """Forget all entries."""
        self._writable().clear()

    def __contains__(self, key: object) -> bool:
        return key in self._here()

    def __len__(self) -> int:
        return len(self._here())

    def __bool__(self) -> bool:
        return True  # a handle, not a container: `if self.rules:` would be a trap

    def _here(self) -> dict[K, V]:
        if self._entries is None:
            raise UserFunctionError(f"broadcast state {self.name!r} is there only inside a running job")
        return self._entries

    def _writable(self) -> dict[K, V]:
        entries = self._here()
        if not self._is_open:
            raise UserFunctionError(
                f"broadcast state {self.name!r} is written outside of process_broadcast(): only there do all "
                "subtasks do the same"
            )
        return entries


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


@dataclass(frozen=True)
class BroadcastConfig:
    """A KeyedBroadcastProcess, checked when the graph is built. `rules` makes records of the other stream."""

    keyed: ProcessConfig
    rules: RecordReader

    @property
    def description(self) -> StateDescription:
        keyed = self.keyed.description
        parts = [
            StatePart(state.name, "broadcast", type_text(state.codec.field.type), is_nullable=True)
            for state in declared_broadcast(self.keyed.process, self.keyed.uid).values()
        ]
        return StateDescription(
            keyed.kind, keyed.table, keyed.keys, (*keyed.parts, *parts), has_timers=keyed.has_timers
        )

    @property
    def readers(self) -> Readers:
        declared = declared_broadcast(self.keyed.process, self.keyed.uid).values()
        mine = {each.name: Reader((), each.codec.reads, each.former_names) for each in declared}
        return {**self.keyed.readers, **mine}

    def create(self) -> BroadcastProcessOperator:
        """A fresh operator for one subtask and attempt."""
        return BroadcastProcessOperator(self)


class BroadcastProcessOperator:
    """One subtask: a ProcessOperator for the keyed stream, whose object has the broadcast state too."""

    def __init__(self, config: BroadcastConfig) -> None:
        self._config = config
        self._keyed = ProcessOperator(config.keyed)
        self._process: Any = self._keyed.function
        self._watermark = WATERMARK_MIN_MS
        self._states: dict[str, BroadcastState[Any, Any]] = {}
        for attribute, declared in declared_broadcast(config.keyed.process, config.keyed.uid).items():
            bound = copy.copy(declared)
            bound._entries = {}
            setattr(self._process, attribute, bound)
            self._states[declared.name] = bound

    def open(self, context: OperatorContext, out: Output) -> None:
        self._keyed.open(context, out)

    def peek(self, keys: pa.RecordBatch, key_hash: UInt64s) -> Sequence[pa.RecordBatch]:
        return self._keyed.peek(keys, key_hash)

    def restore(self, states: Sequence[RestoredState]) -> None:
        self._keyed.restore(states)
        copies: list[Any] = [self._named(state.meta.get("broadcast") or {}) for state in states]
        for name, state in self._states.items():
            found = [_decoded(state, copied[name]) for copied in copies if name in copied]
            if any(other != found[0] for other in found[1:]):
                raise UserFunctionError(
                    f"operator {self._config.keyed.uid!r}: subtasks have come to different broadcast states "
                    f"{name!r}: process_broadcast() may hang on nothing but rules and broadcast state, and "
                    "rules that replace each other have to come from one split. Correct it, and start from a "
                    "checkpoint before, or with a new uid"
                )
            state._entries = found[0] if found else {}

    def _named(self, kept: Any) -> dict[str, Any]:
        """What was kept, by the names of now."""
        meant = names_kept_as(self._config.readers, self._config.readers, kept)
        return {**kept, **{name: kept[names[0]] for name, names in meant.items()}}

    def on_records(self, records: Records) -> None:
        self._keyed.on_records(records)

    def on_right_records(self, records: Records) -> None:
        uid, process = self._config.keyed.uid, self._process
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
        self._keyed.on_watermark(time_ms)

    def fire(self, rows_max: int) -> int:
        return self._keyed.fire(rows_max)

    @property
    def wake_at_ms(self) -> int | None:
        return self._keyed.wake_at_ms

    def on_clock(self, now_ms: int, rows_max: int) -> int:
        return self._keyed.on_clock(now_ms, rows_max)

    def snapshot(self) -> FrozenState:
        keyed = self._keyed.snapshot()
        copies: dict[str, Json] = {name: _encoded(state) for name, state in self._states.items()}
        size = sum(len(str(text)) for text in copies.values())
        if size > STATE_BYTES_MAX:
            raise UserFunctionError(
                f"operator {self._config.keyed.uid!r}: its broadcast state has {size} bytes, more than "
                f"{STATE_BYTES_MAX}: each subtask writes it with each checkpoint. Keep what is large by key, "
                "with key_by on both streams"
            )
        return FrozenState(keyed.key_groups, keyed.tables, {**keyed.meta, "broadcast": copies})

    def close(self) -> None:
        self._keyed.close()

    def _open(self, is_open: bool) -> None:
        for state in self._states.values():
            state._is_open = is_open


def declared_broadcast(process: Any, uid: str) -> dict[str, BroadcastState[Any, Any]]:
    """The broadcast states declared in a class, by attribute. Raises GraphError if two have one name."""
    found: dict[str, BroadcastState[Any, Any]] = {}
    for owner in reversed(type(process).__mro__):
        found |= {name: value for name, value in vars(owner).items() if isinstance(value, BroadcastState)}
    names = [state.name for state in found.values()]
    for name in names:
        if names.count(name) > 1:
            raise GraphError(f"operator {uid!r}: two broadcast states are called {name!r}")
    return found


def _encoded(state: BroadcastState[Any, Any]) -> str:
    column = state.codec.to_arrow([dict(state.items())])
    batch = pa.RecordBatch.from_arrays([column], names=["entries"])
    sink = pa.BufferOutputStream()
    options = pa.ipc.IpcWriteOptions(compression="lz4", use_threads=False)
    with pa.ipc.new_stream(sink, batch.schema, options=options) as writer:
        writer.write_batch(batch)
    return base64.b64encode(sink.getvalue()).decode()


def _decoded(state: BroadcastState[Any, Any], text: str) -> dict[Any, Any]:
    (batch,) = pa.ipc.open_stream(base64.b64decode(text))
    column = converted(batch.column(0), state.codec.reads, f"broadcast state {state.name!r}")
    return dict(state.codec.from_arrow(column)[0] or {})
