"""A keyed stream beside rules that every subtask gets."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any, Generic, TypeVar

import pyarrow as pa

from onceflow.runtime.api.connected_streams import side_of
from onceflow.runtime.api.near_misses import no_such_name
from onceflow.runtime.api.records_of_functions import record_taken, records_made
from onceflow.runtime.errors import GraphError
from onceflow.runtime.explained_calls import explained_methods
from onceflow.runtime.graph.keys import declared_keys
from onceflow.runtime.graph.steps import Built, Rows, Side, Step, TwoInputs
from onceflow.runtime.operators.declared import check_states, declared_sides, declared_types
from onceflow.runtime.operators.operator import MAIN
from onceflow.runtime.operators.processing.broadcast import (
    BroadcastConfig,
    KeyedBroadcastProcess,
    declared_broadcast,
)
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
        job, has_event_time = left._job, left._input.rows.has_event_time
        uid = job.new_uid(uid, f"process-{type(process).__name__}", left._input.step.anchor)
        key, of_left, of_rule, made = declared_types(process, KeyedBroadcastProcess) or [None] * 4
        keys = declared_keys(key, left._keys, left._input.rows.schema, uid)
        rows, writer = records_made(process.process, returns or made, uid, has_event_time)
        sides = declared_sides(process, uid)
        check_states(process, uid, has_event_time)
        declared_broadcast(process, uid)
        reader = RecordReader(record_taken(process.process, of_left, uid, left._input.rows))
        reads_rules = RecordReader(record_taken(process.process_broadcast, of_rule, uid, rules.rows))
        keyed = ProcessConfig(
            uid,
            process,
            left._keys,
            left._input.rows.schema,
            writer,
            reader,
            has_event_time,
            tuple(keys.get(name, left._types.get(name)) for name in left._keys),
        )
        work = TwoInputs(
            side_of(left, frozenset(reader.columns)),
            Side(frozenset(reads_rules.columns), is_broadcast=True),
            partial(_broadcast_with_schemas, BroadcastConfig(keyed, reads_rules)),
            is_per_record=True,
        )
        outputs = {MAIN: rows} | {
            name: Rows(side.schema, side.record_type, has_event_time) for name, side in sides.items()
        }
        name = f"process {type(process).__name__} by {', '.join(left._keys)}"
        step = Step(uid, name, work, (left._input, rules), outputs, uid)
        return job.add(step, {name: name for name in sides})


def _broadcast_with_schemas(config: BroadcastConfig, left: pa.Schema, right: pa.Schema) -> Built:
    narrow = replace(config, keyed=replace(config.keyed, schema=left))
    return Built(narrow.create, config.keyed.made.schema, narrow.description, narrow.readers)
