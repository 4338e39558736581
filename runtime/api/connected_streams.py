"""Two streams for one operator: connect, and what it leads to."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any, Generic, TypeVar, cast

import pyarrow as pa

from onceflow.runtime.api.near_misses import no_such_name
from onceflow.runtime.api.record_functions import kept_by
from onceflow.runtime.api.records_of_functions import record_taken, records_made
from onceflow.runtime.errors import GraphError
from onceflow.runtime.explained_calls import explained_methods
from onceflow.runtime.functions.lives import check_life
from onceflow.runtime.graph.functions import returned_record, yielded_record
from onceflow.runtime.graph.keys import declared_keys
from onceflow.runtime.graph.steps import Built, Input, Rows, Side, Step, TwoInputs
from onceflow.runtime.operators.declared import check_states, declared_sides, declared_types
from onceflow.runtime.operators.function_state import function_state
from onceflow.runtime.operators.operator import MAIN
from onceflow.runtime.operators.processing.co_functions import (
    AnyCoFunction,
    CoFlatMap,
    CoFunctionConfig,
    CoMap,
)
from onceflow.runtime.operators.processing.keyed_process import KeyedCoProcess
from onceflow.runtime.operators.processing.keyless_co_process import CoProcess, KeylessCoOperator
from onceflow.runtime.operators.processing.keyless_process import KeylessConfig, check_keyless
from onceflow.runtime.operators.processing.process import ProcessConfig
from onceflow.runtime.operators.two_keys import RightInput
from onceflow.runtime.types.records_of_columns import RecordReader
from onceflow.runtime.types.user_functions import function_name

if TYPE_CHECKING:
    from onceflow.runtime.api.keyed_stream import KeyedStream
    from onceflow.runtime.api.stream import Stream

K = TypeVar("K")
L = TypeVar("L")
R = TypeVar("R")
Out = TypeVar("Out")


@explained_methods
class ConnectedStreams(Generic[L, R]):
    """Two streams, a left and a right one, before it is said which function gets their records."""

    def __init__(self, left: Stream[L], right: Stream[R]) -> None:
        self._left = left
        self._right = right

    if not TYPE_CHECKING:

        def __getattr__(self, name: str) -> Any:
            raise no_such_name(self, name)

    def map(
        self, function: CoMap[L, R, Out], returns: type[Out] | None = None, uid: str | None = None
    ) -> Stream[Out]:
        """One record for each record of either stream, in no order between the two: `map(YourCoMap())`."""
        uid = self._uid(uid, function, CoMap, "map")
        methods = (function.map_left, function.map_right)
        declared = returns or (declared_types(function, CoMap) or [None])[-1]
        made = {returned_record(method, uid, declared) for method in methods}
        return self._add(uid, "map", function, methods, _one(made, uid, methods))

    def flat_map(
        self, function: CoFlatMap[L, R, Out], returns: type[Out] | None = None, uid: str | None = None
    ) -> Stream[Out]:
        """Any number of records for each record of either stream: `flat_map(YourCoFlatMap())`."""
        uid = self._uid(uid, function, CoFlatMap, "flat_map")
        methods = (function.flat_map_left, function.flat_map_right)
        declared = returns or (declared_types(function, CoFlatMap) or [None])[-1]
        made = {yielded_record(method, uid, declared) for method in methods}
        return self._add(uid, "flat_map", function, methods, _one(made, uid, methods))

    def process(
        self, process: CoProcess[L, R, Out], returns: type[Out] | None = None, uid: str | None = None
    ) -> Stream[Out]:
        """The user's code for each record of either stream, with side outputs and the watermark of both:
        `process(YourCoProcess())`. With state by key and timers: key_by both, and a KeyedCoProcess."""
        uid, name = self._uid(uid, process, CoProcess, "process"), type(process).__name__
        check_life(process, uid)
        keyed = f"write class {name}(KeyedCoProcess[K, L, R, O]), and key_by(...) both streams"
        check_keyless(process, uid, keyed)
        left, right = self._left._input, self._right._input
        has_event_time = left.rows.has_event_time
        of_left, of_right, of_made = declared_types(process, CoProcess) or [None] * 3
        made, writer = records_made(process.process_left, returns or of_made, uid, has_event_time)
        reader = RecordReader(record_taken(process.process_left, of_left, uid, left.rows))
        other = RecordReader(record_taken(process.process_right, of_right, uid, right.rows))
        config = KeylessConfig(
            uid, process, reader, writer, has_event_time, kept_by(cast(Any, process), uid, None)
        )
        built = Built(
            lambda: KeylessCoOperator(config, other), writer.schema, config.description, config.readers
        )
        both = [Side(frozenset(each.columns)) for each in (reader, other)]
        sides = declared_sides(process, uid)
        outputs = {MAIN: made} | {
            side: Rows(each.schema, each.record_type, has_event_time) for side, each in sides.items()
        }
        work = TwoInputs(both[0], both[1], lambda *_: built, is_per_record=True)
        step = Step(uid, f"process {name}", work, (left, right), outputs, uid)
        return self._left._job.add(step, {side: side for side in sides})

    def _uid(self, given: str | None, function: Any, base: type, name: str) -> str:
        if not isinstance(function, base):
            keyed = "; or key_by(...) both, for a KeyedCoProcess" if base is CoProcess else ""
            raise GraphError(
                f"connect(...).{name}({function!r}): expected an object of a class derived from "
                f"{base.__name__}{keyed}"
            )
        kind = f"co-{name.replace('_', '-')}-{type(function).__name__}"
        return self._left._job.new_uid(given, kind, self._left._input.step.anchor)

    def _add(
        self,
        uid: str,
        kind: str,
        function: AnyCoFunction,
        methods: tuple[Callable[..., Any], Callable[..., Any]],
        made: type,
    ) -> Stream[Any]:
        left, right = self._left._input, self._right._input
        declared = declared_types(function, CoMap) or declared_types(function, CoFlatMap) or [None, None]
        readers = [
            RecordReader(record_taken(method, of, uid, source.rows))
            for method, of, source in zip(methods, declared[:2], (left, right), strict=True)
        ]
        rows, writer = records_made(methods[0], made, uid, left.rows.has_event_time)
        kept = function_state(function, uid)
        config = CoFunctionConfig(uid, function, readers[0], readers[1], writer, kept)
        state, read = (None, {}) if kept is None else (kept.description, kept.readers)
        sides = [Side(frozenset(reader.columns)) for reader in readers]
        work = TwoInputs(
            sides[0], sides[1], lambda *_: Built(config.create, writer.schema, state, read), True
        )
        name = f"{kind} {type(function).__name__}"
        return self._left._job.add(Step(uid, name, work, (left, right), {MAIN: rows}, uid))


@explained_methods
class KeyedConnectedStreams(Generic[K, L, R]):
    """Two streams by the same kind of key, before it is said which function gets their records."""

    def __init__(self, left: KeyedStream[K, L], right: KeyedStream[K, R]) -> None:
        self._left = left
        self._right = right

    if not TYPE_CHECKING:

        def __getattr__(self, name: str) -> Any:
            raise no_such_name(self, name)

    def process(
        self,
        process: KeyedCoProcess[Any, L, R, Out],
        returns: type[Out] | None = None,
        uid: str | None = None,
    ) -> Stream[Out]:
        """The user's code with state and timers for each key, of which both streams' records see the same:
        `.process(Match())`. The record types are those of `class Match(KeyedCoProcess[K, L, R, Out])`, or of
        the annotations of process_left() and process_right()."""
        if not isinstance(process, KeyedCoProcess):
            raise GraphError(
                f"process({process!r}): expected an object of a class derived from KeyedCoProcess"
            )
        left, right = self._left, self._right
        job, has_event_time = left._job, left._input.rows.has_event_time
        uid = job.new_uid(uid, f"process-{type(process).__name__}", left._input.step.anchor)
        key, of_left, of_right, made = declared_types(process, KeyedCoProcess) or [None] * 4
        keys = declared_keys(key, left._keys, left._input.rows.schema, uid)
        rows, writer = records_made(process.process_left, returns or made, uid, has_event_time)
        sides, schema = declared_sides(process, uid), right._input.rows.schema
        check_states(process, uid, has_event_time)
        reader = RecordReader(record_taken(process.process_left, of_left, uid, left._input.rows))
        other = RecordReader(record_taken(process.process_right, of_right, uid, right._input.rows))
        config = ProcessConfig(
            uid,
            process,
            left._keys,
            left._input.rows.schema,
            writer,
            reader,
            has_event_time,
            tuple(keys.get(name, left._types.get(name)) for name in left._keys),
            right=RightInput(right._keys, schema, other),
        )
        work = TwoInputs(
            side_of(left, frozenset(reader.columns)),
            side_of(right, frozenset(other.columns)),
            partial(_process_with_schemas, config),
            is_per_record=True,
        )
        outputs = {MAIN: rows} | {
            name: Rows(side.schema, side.record_type, has_event_time) for name, side in sides.items()
        }
        name = f"process {type(process).__name__} by {', '.join(left._keys)}"
        step = Step(uid, name, work, (left._input, right._input), outputs, uid)
        return job.add(step, {name: name for name in sides})


def side_of(stream: KeyedStream[Any, Any], reads: frozenset[str], row_tag: str | None = None) -> Side:
    """One input of an operator with two, by key."""
    return Side(reads, stream._keys, stream._expressions, row_tag)


def check_job(where: str, left: Any, right: Any) -> None:
    """Raises GraphError, beginning with `where`, unless both streams are of one job."""
    if right._job is not left._job:
        raise GraphError(f"{where}: {right._input.step.uid!r} belongs to another job")


def check_pair(where: str, left: Any, right: Any, kind: type[Any]) -> None:
    """Raises GraphError, beginning with `where`, unless the two can be the inputs of one operator."""
    if not isinstance(right, kind):
        wanted = "key_by(...) both" if kind.__name__ == "KeyedStream" else "key_by(...) both, or neither"
        raise GraphError(f"{where}: expected a {kind.__name__}, not a {type(right).__name__}: {wanted}")
    ours, theirs = left._input, right._input
    check_job(where, left, right)
    if ours.rows.has_event_time != theirs.rows.has_event_time:
        raise GraphError(
            f"{where}: one of {ours.step.uid!r} and {theirs.step.uid!r} has event time and the other doesn't"
            ": give both sources watermarks, or neither"
        )
    if kind.__name__ == "KeyedStream":
        _check_keys(where, left, right)


def _check_keys(where: str, left: KeyedStream[Any, Any], right: KeyedStream[Any, Any]) -> None:
    shown = [_shown_key(stream._keys, stream._input) for stream in (left, right)]
    if len(left._keys) != len(right._keys):
        raise GraphError(
            f"{where}: the keys have not as many columns: {shown[0]} on the left, {shown[1]} on the right: "
            "key_by as many on both sides, in the same order"
        )
    for ours, theirs in zip(left._keys, right._keys, strict=True):
        fields = (left._input.rows.schema.field(ours), right._input.rows.schema.field(theirs))
        if fields[0].type != fields[1].type:
            raise GraphError(
                f"{where}: the keys are of other types, and would never be equal: {shown[0]} on the left, "
                f"{shown[1]} on the right: .cast(...) one of them in key_by"
            )


def _shown_key(names: tuple[str, ...], source: Input) -> str:
    return ", ".join(f"{name} {source.rows.schema.field(name).type}" for name in names)


def _one(made: set[type], uid: str, methods: tuple[Callable[..., Any], ...]) -> type:
    if len(made) > 1:
        names = " and ".join(function_name(method) for method in methods)
        types = ", ".join(sorted(each.__name__ for each in made))
        raise GraphError(
            f"operator {uid!r}: {names} make records of two types ({types}): both go into one stream"
        )
    return made.pop()


def _process_with_schemas(config: ProcessConfig, left: pa.Schema, right: pa.Schema) -> Built:
    assert config.right is not None
    narrow = replace(config, schema=left, right=replace(config.right, schema=right))
    return Built(narrow.create, config.made.schema, narrow.description, narrow.readers)
