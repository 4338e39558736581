"""A stream beside rules that every subtask gets."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Generic, TypeVar, cast

import pyarrow as pa

from onceflow.runtime.api.connected_streams import side_of
from onceflow.runtime.api.near_misses import no_such_name
from onceflow.runtime.api.record_functions import kept_by
from onceflow.runtime.api.records_of_functions import record_taken, records_made
from onceflow.runtime.errors import GraphError
from onceflow.runtime.explained_calls import explained_methods
from onceflow.runtime.functions.lives import check_life
from onceflow.runtime.graph.keys import declared_keys
from onceflow.runtime.graph.steps import BuildOfTwo, Built, Input, Rows, Side, Step, TwoInputs
from onceflow.runtime.operators.declared import check_states, declared_sides, declared_types
from onceflow.runtime.operators.operator import MAIN
from onceflow.runtime.operators.processing.broadcast import (
    BroadcastConfig,
    KeyedBroadcastOperator,
    KeyedBroadcastProcess,
)
from onceflow.runtime.operators.processing.broadcast_state import declared_broadcast
from onceflow.runtime.operators.processing.keyless_broadcast import (
    BroadcastProcess,
    KeylessBroadcastOperator,
)
from onceflow.runtime.operators.processing.keyless_process import KeylessConfig, check_keyless
from onceflow.runtime.operators.processing.process import ProcessConfig
from onceflow.runtime.types.records_of_columns import RecordReader

if TYPE_CHECKING:
    from onceflow.runtime.api.keyed_stream import KeyedStream
    from onceflow.runtime.api.stream import Stream

K = TypeVar("K")
L = TypeVar("L")
R = TypeVar("R")
Out = TypeVar("Out")


@explained_methods
class BroadcastStream(Generic[R]):
    """A stream whose rows go to every subtask: what `stream.broadcast()` gives, for connect."""

    def __init__(self, stream: Stream[R]) -> None:
        self.stream = stream


@explained_methods
class BroadcastConnectedStreams(Generic[K, L, R]):
    """A keyed stream beside one that every subtask gets, before it is said which function gets both."""

    def __init__(self, left: KeyedStream[K, L], right: BroadcastStream[R]) -> None:
        self._left = left
        self._right = right.stream

    if not TYPE_CHECKING:

        def __getattr__(self, name: str) -> Any:
            raise no_such_name(self, name)

    def process(
        self,
        process: KeyedBroadcastProcess[Any, L, R, Out],
        returns: type[Out] | None = None,
        uid: str | None = None,
    ) -> Stream[Out]:
        """The user's code with state and timers for each key, and rules that all subtasks have:
        `.process(YourBroadcastProcess())`."""
        if not isinstance(process, KeyedBroadcastProcess):
            raise GraphError(
                f"process({process!r}): expected an object of a class derived from KeyedBroadcastProcess"
            )
        left, rules = self._left, self._right._input
        rows = left._input.rows
        uid = left._job.new_uid(uid, f"process-{type(process).__name__}", left._input.step.anchor)
        key, of_left, of_rule, of_made = declared_types(process, KeyedBroadcastProcess) or [None] * 4
        keys = declared_keys(key, left._keys, rows.schema, uid)
        made, writer = records_made(process.process, returns or of_made, uid, rows.has_event_time)
        check_states(process, uid, rows.has_event_time)
        reader = RecordReader(record_taken(process.process, of_left, uid, rows))
        keyed = ProcessConfig(
            uid,
            process,
            left._keys,
            rows.schema,
            writer,
            reader,
            rows.has_event_time,
            tuple(keys.get(name, left._types.get(name)) for name in left._keys),
        )
        reads_rules = _reads_rules(process, of_rule, uid, rules)

        def build(left: pa.Schema, right: pa.Schema) -> Built:
            main = replace(keyed, schema=left)
            config = BroadcastConfig(main, reads_rules)
            return Built(
                lambda: KeyedBroadcastOperator(config, main.create()),
                writer.schema,
                config.description,
                config.readers,
            )

        side = side_of(left, frozenset(reader.columns))
        name = f"process {type(process).__name__} by {', '.join(left._keys)}"
        return _added(
            left._job, Beside(uid, name, process, side, left._input), rules, reads_rules, build, made
        )


@explained_methods
class KeylessBroadcastStreams(Generic[L, R]):
    """A stream without a key beside one that every subtask gets, before it is said which function gets
    both."""

    def __init__(self, left: Stream[L], right: BroadcastStream[R]) -> None:
        self._left = left
        self._right = right.stream

    if not TYPE_CHECKING:

        def __getattr__(self, name: str) -> Any:
            raise no_such_name(self, name)

    def process(
        self,
        process: BroadcastProcess[L, R, Out],
        returns: type[Out] | None = None,
        uid: str | None = None,
    ) -> Stream[Out]:
        """The user's code for each record, and rules that all subtasks have:
        `.process(YourBroadcastProcess())`."""
        if not isinstance(process, BroadcastProcess):
            raise GraphError(
                f"process({process!r}): expected an object of a class derived from BroadcastProcess; with a "
                "KeyedBroadcastProcess write stream.key_by(...).connect(rules.broadcast())"
            )
        left, rules = self._left._input, self._right._input
        rows, job = left.rows, self._left._job
        uid = job.new_uid(uid, f"process-{type(process).__name__}", left.step.anchor)
        check_life(process, uid)
        check_keyless(process, uid)
        of_left, of_rule, of_made = declared_types(process, BroadcastProcess) or [None] * 3
        made, writer = records_made(process.process, returns or of_made, uid, rows.has_event_time)
        reader = RecordReader(record_taken(process.process, of_left, uid, rows))
        lists = kept_by(cast(Any, process), uid, None)
        main = KeylessConfig(uid, process, reader, writer, rows.has_event_time, lists)
        reads_rules = _reads_rules(process, of_rule, uid, rules)
        config = BroadcastConfig(main, reads_rules)
        built = Built(
            lambda: KeylessBroadcastOperator(config, main.create()),
            writer.schema,
            config.description,
            config.readers,
        )
        name = f"process {type(process).__name__}"
        beside = Beside(uid, name, process, Side(frozenset(reader.columns)), left)
        return _added(job, beside, rules, reads_rules, lambda *_: built, made)


@dataclass(frozen=True, slots=True)
class Beside:
    """The stream that has rules beside it, and the function for both."""

    uid: str
    name: str
    process: Any
    side: Side
    input: Input


def _reads_rules(process: Any, declared: type | None, uid: str, rules: Input) -> RecordReader:
    declared_broadcast(process, uid)
    return RecordReader(record_taken(process.process_broadcast, declared, uid, rules.rows))


def _added(
    job: Any, beside: Beside, rules: Input, reads_rules: RecordReader, build: BuildOfTwo, made: Rows
) -> Stream[Any]:
    work = TwoInputs(
        beside.side, Side(frozenset(reads_rules.columns), is_broadcast=True), build, is_per_record=True
    )
    has_event_time = beside.input.rows.has_event_time
    sides = declared_sides(beside.process, beside.uid)
    outputs = {MAIN: made} | {
        name: Rows(side.schema, side.record_type, has_event_time) for name, side in sides.items()
    }
    step = Step(beside.uid, beside.name, work, (beside.input, rules), outputs, beside.uid)
    stream: Stream[Any] = job.add(step, {name: name for name in sides})
    return stream
