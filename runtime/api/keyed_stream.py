"""Streams by key: windows with aggregates, reduce, and process."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any, Generic, TypeVar

import polars as pl
import pyarrow as pa

from onceflow.runtime.api.connected_streams import KeyedConnectedStreams, check_pair
from onceflow.runtime.api.error_policies import OnError, aside_of
from onceflow.runtime.api.joins import interval_join
from onceflow.runtime.api.near_misses import no_such_name
from onceflow.runtime.api.records_of_functions import record_taken, records_made
from onceflow.runtime.api.windowed_stream import WindowedStream, reduced_record, with_schema
from onceflow.runtime.errors import GraphError
from onceflow.runtime.graph.keys import declared_keys
from onceflow.runtime.graph.steps import Built, Input, Keyed, Rows, Step
from onceflow.runtime.operators.operator import MAIN
from onceflow.runtime.operators.processing.keyed_process import (
    KeyedProcess,
    declared_sides,
    declared_states,
    declared_types,
)
from onceflow.runtime.operators.processing.process import ProcessConfig
from onceflow.runtime.operators.windows.new_spans import Window
from onceflow.runtime.operators.windows.reduce import RollingReduce
from onceflow.runtime.types.records_of_columns import RecordReader
from onceflow.runtime.types.value_types import ValueType

if TYPE_CHECKING:
    from onceflow.runtime.api.graph_builder import JobGraphBuilder
    from onceflow.runtime.api.stream import Stream

K = TypeVar("K")
T = TypeVar("T")
R = TypeVar("R")


class KeyedStream(Generic[K, T]):
    """Rows by key. What comes next works on each key alone."""

    def __init__(
        self,
        job: JobGraphBuilder,
        source: Input,
        keys: tuple[str, ...],
        expressions: Mapping[str, pl.Expr],
        types: Mapping[str, ValueType],
    ) -> None:
        """`expressions`: of the keys that are computed; `types`: of those that have one of the user's."""
        self._job = job
        self._input = source
        self._keys = keys
        self._expressions = expressions
        self._types = types

    if not TYPE_CHECKING:

        def __getattr__(self, name: str) -> Any:
            raise no_such_name(self, name)

    def window(self, window: Window) -> WindowedStream[T]:
        """The rows of each key by event-time window: tumbling("10 s"), sliding("10 s", "1 s") or
        session("30 min")."""
        uid = self._input.step.uid
        if not isinstance(window, Window):
            raise GraphError(
                f"operator {uid!r}: window({window!r}): use tumbling(...), sliding(...) or session(...)"
            )
        if not self._input.rows.has_event_time:
            raise GraphError(
                f"operator {uid!r}: a window needs event time: pass watermarks= to the source, as in "
                'WatermarkStrategy.bounded_out_of_orderness("2 s", event_time="ts")'
            )
        return WindowedStream(self._job, self._input, self._keys, self._expressions, window)

    def reduce(self, fn: Callable[[T, T], T], uid: str | None = None) -> Stream[T]:
        """One record for each that comes: fn(result so far of the key, record). A key's first record is
        its first result. Without a window the state of a key stays for good."""
        rows = self._input.rows
        uid = self._job.new_uid(uid, "reduce", self._input.step.anchor)
        config = RollingReduce(uid, self._keys, fn, rows.schema, reduced_record(fn, uid, rows))
        outputs = {MAIN: Rows(config.output_schema, rows.record_type, rows.has_event_time)}
        build = partial(with_schema, config)
        reads = frozenset(rows.schema.names)
        work = Keyed(self._keys, build, reads, frozenset(), True, self._expressions)
        step = Step(uid, f"reduce by {', '.join(self._keys)}", work, (self._input,), outputs, uid)
        return self._job.add(step)

    def process(
        self,
        process: KeyedProcess[Any, T, R],
        returns: type[R] | None = None,
        uid: str | None = None,
        on_error: OnError = "fail",
    ) -> Stream[R]:
        """The user's code with state and timers for each key: `.process(Alert())`.

        The record types are those of `class Alert(KeyedProcess[K, I, O])`, or of process()'s annotations.
        `on_error`: as for map, of a record for which process() raises: what the call did to state and timers,
        yielded and sent is undone. A failing on_timer() fails the attempt always.
        """
        rows = self._input.rows
        if not isinstance(process, KeyedProcess):
            raise GraphError(f"process({process!r}): expected an object of a class derived from KeyedProcess")
        uid = self._job.new_uid(uid, f"process-{type(process).__name__}", self._input.step.anchor)
        key, taken, given = declared_types(process, KeyedProcess) or [None] * 3
        keys = declared_keys(key, self._keys, rows.schema, uid)
        key_types = tuple(keys.get(name, self._types.get(name)) for name in self._keys)
        reader = RecordReader(record_taken(process.process, taken, uid, rows))
        made, writer = records_made(process.process, returns or given, uid, rows.has_event_time)
        sides = declared_sides(process, uid)
        declared_states(process, uid)
        aside = aside_of(on_error, uid, process.process, rows.schema)
        if aside.tag in sides:
            raise GraphError(f"operator {uid!r}: its class has a side output {aside.tag!r}: name another")
        config = ProcessConfig(
            uid,
            process,
            self._keys,
            rows.schema,
            writer,
            reader,
            rows.has_event_time,
            key_types,
            on_error=aside.policy,
        )
        outputs = aside.outputs(made) | {
            name: Rows(side.schema, side.record_type, rows.has_event_time) for name, side in sides.items()
        }
        reads, build = frozenset(reader.columns), partial(_process_with_schema, config)
        work = Keyed(self._keys, build, reads, frozenset(aside.tags.values()), True, self._expressions)
        name = f"process {type(process).__name__} by {', '.join(self._keys)}"
        step = Step(uid, name, work, (self._input,), outputs, uid)
        return self._job.add(step, {**{name: name for name in sides}, **aside.tags})

    def connect(self, other: KeyedStream[K, R]) -> KeyedConnectedStreams[K, T, R]:
        """This stream, the left one, and another with the same kind of key, for one function that sees
        records of both, and state by key: `a.key_by(k).connect(b.key_by(k)).process(YourCoProcess())`."""
        check_pair(f"connect at {self._input.step.uid!r}", self, other, KeyedStream)
        return KeyedConnectedStreams(self, other)

    def interval_join(
        self,
        other: KeyedStream[K, Any],
        lower: str | int,
        upper: str | int,
        *,
        closed: str = "both",
        how: str = "inner",
        where: pl.Expr | None = None,
        late_to: str | None = None,
        uid: str | None = None,
    ) -> Stream[Any]:
        """Each row of this stream, the left one, with those of the other that have the same key and happened
        from `lower` to `upper` after it ("-5 min": before it), the bounds included (`closed`: "both", "left",
        "right", "none").

        The result has the left columns and the right ones but for the key; a right column of the same name
        is called name_right. `where`: an expression over these columns that has to be true as well. `how`:
        "inner", or "left", "right", "full" for rows without a partner too, with nulls, sent when none can
        come any more. A row whose event time the watermark has reached joins nothing: it is counted and,
        with `late_to="late"`, goes to side_output("late_left") or ("late_right"). A key with a null equals
        none. Event time of a pair is the later one of both.
        """
        return interval_join(self, other, (lower, upper), closed, how, where, late_to, uid)


def _process_with_schema(config: ProcessConfig, schema: pa.Schema) -> Built:
    narrow = replace(config, schema=schema)
    return Built(narrow.create, config.made.schema, narrow.description)
