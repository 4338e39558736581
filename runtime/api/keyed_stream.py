"""Streams by key: windows with aggregates, reduce, and process."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any, Generic, TypeVar

import polars as pl
import pyarrow as pa

from onceflow.runtime.api.connected_streams import KeyedConnectedStreams, check_pair
from onceflow.runtime.api.error_policies import OnError
from onceflow.runtime.api.joins import co_group, interval_join, window_join
from onceflow.runtime.api.keyed_processes import processed
from onceflow.runtime.api.near_misses import no_such_name
from onceflow.runtime.errors import GraphError
from onceflow.runtime.graph.functions import hints, taken_record
from onceflow.runtime.graph.steps import Build, Built, Input, Keyed, Rows, Step
from onceflow.runtime.operators.aggregation.aggregates import Aggregate, AggregateFunction
from onceflow.runtime.operators.assigners.sliding import Sliding
from onceflow.runtime.operators.assigners.tumbling import Tumbling
from onceflow.runtime.operators.joins.window_join import CoGroup
from onceflow.runtime.operators.operator import MAIN
from onceflow.runtime.operators.processing.keyed_process import (
    KeyedProcess,
)
from onceflow.runtime.operators.windows.reduce import RollingReduce
from onceflow.runtime.operators.windows.window import WindowAggregate, WindowReduce
from onceflow.runtime.operators.windows.window_operator import LATE
from onceflow.runtime.types.hints import type_name
from onceflow.runtime.types.user_functions import function_name
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

    def window(self, window: Tumbling | Sliding) -> WindowedStream[T]:
        """The rows of each key by event-time window: tumbling("10 s") or sliding("10 s", "1 s")."""
        uid = self._input.step.uid
        if not isinstance(window, Tumbling | Sliding):
            raise GraphError(f"operator {uid!r}: window({window!r}): use tumbling(...) or sliding(...)")
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
        config = RollingReduce(uid, self._keys, fn, rows.schema, _reduced_record(fn, uid, rows))
        outputs = {MAIN: Rows(config.output_schema, rows.record_type, rows.has_event_time)}
        build = partial(_with_schema, config)
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
        return processed(self, process, returns, uid, on_error)

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

    def window_join(
        self,
        other: KeyedStream[K, Any],
        window: Tumbling | Sliding,
        *,
        how: str = "inner",
        where: pl.Expr | None = None,
        late_to: str | None = None,
        uid: str | None = None,
    ) -> Stream[Any]:
        """Each row of this stream, the left one, with those of the other that have the same key and are in
        the same window, sent when both streams have come to its end. The result has the columns of an
        interval_join, and window_start and window_end (ms); `how`, `where`, `late_to`: see there. Late is a
        row all of whose windows have been sent."""
        return window_join(self, other, window, how, where, late_to, uid)

    def co_group(
        self,
        other: KeyedStream[K, Any],
        window: Tumbling | Sliding,
        function: CoGroup[Any, Any, R],
        *,
        returns: type[R] | None = None,
        late_to: str | None = None,
        uid: str | None = None,
    ) -> Stream[R]:
        """The user's code for all rows of both streams in a window, key by key: see CoGroup."""
        return co_group(self, other, window, function, returns, late_to, uid)


class WindowedStream(Generic[T]):
    """Rows by key and window, before it is said what to compute."""

    def __init__(
        self,
        job: JobGraphBuilder,
        source: Input,
        keys: tuple[str, ...],
        expressions: Mapping[str, pl.Expr],
        window: Tumbling | Sliding,
        late_tag: str | None = None,
    ) -> None:
        self._job = job
        self._input = source
        self._keys = keys
        self._expressions = expressions
        self._window = window
        self._late_tag = late_tag

    if not TYPE_CHECKING:

        def __getattr__(self, name: str) -> Any:
            raise no_such_name(self, name)

    def late_to(self, tag: str) -> WindowedStream[T]:
        """Rows that come after all their windows have fired go to side_output(tag) of the result, as they
        came. Without it they are counted only."""
        return WindowedStream(self._job, self._input, self._keys, self._expressions, self._window, tag)

    def aggregate(self, *, uid: str | None = None, **aggregates: Aggregate) -> Stream[Any]:
        """One row per key and window: the key columns, window_start, window_end (ms), and an output
        column for each aggregate, as in total=sum_("amount"). Sent once, when the watermark passes."""
        rows = self._input.rows
        uid = self._uid(uid)
        is_per_record = any(isinstance(a, AggregateFunction) for a in aggregates.values())
        config = WindowAggregate(
            uid,
            self._keys,
            self._window,
            aggregates,
            rows.schema,
            late=False,
            record_type=rows.record_type if is_per_record else None,
        )
        read = config.columns_read
        config = replace(config, late=self._late_tag is not None)
        return self._add(
            config, partial(_with_schema, config), read, Rows(config.output_schema, None, True), is_per_record
        )

    def reduce(self, fn: Callable[[T, T], T], uid: str | None = None) -> Stream[T]:
        """One record per key and window: fn(fn(first, second), third), and so on, in the order in which
        they came."""
        rows = self._input.rows
        uid = self._uid(uid)
        record_type = _reduced_record(fn, uid, rows)
        config = WindowReduce(
            uid, self._keys, self._window, fn, rows.schema, self._late_tag is not None, record_type
        )
        read = frozenset(rows.schema.names)
        return self._add(
            config,
            partial(_with_schema, config),
            read,
            Rows(config.output_schema, rows.record_type, True),
            True,
        )

    def _uid(self, given: str | None) -> str:
        return self._job.new_uid(given, "window", self._input.step.anchor)

    def _add(
        self,
        config: WindowAggregate | WindowReduce,
        build: Build,
        read: frozenset[str],
        rows: Rows,
        is_per_record: bool,
    ) -> Stream[Any]:
        outputs = {MAIN: rows}
        tags: Mapping[str, str] = {}
        if self._late_tag is not None:
            outputs[LATE] = self._input.rows
            tags = {self._late_tag: LATE}
        work = Keyed(self._keys, build, read, frozenset(outputs) - {MAIN}, is_per_record, self._expressions)
        every = f" every {self._window.slide_ms} ms" if isinstance(self._window, Sliding) else ""
        name = f"window {self._window.size_ms} ms{every} by {', '.join(self._keys)}"
        step = Step(config.uid, name, work, (self._input,), outputs, config.uid)
        return self._job.add(step, tags)


def _reduced_record(fn: Callable[[Any, Any], Any], uid: str, rows: Rows) -> type:
    """What fn takes twice and returns. Raises GraphError if it returns something else."""
    record_type = taken_record(fn, uid, rows.schema, rows.record_type)
    returned = hints(fn, uid).get("return", record_type)
    if returned not in (record_type, Any):
        raise GraphError(
            f"operator {uid!r}: {function_name(fn)} takes {type_name(record_type)} but returns "
            f"{type_name(returned)}; reduce returns what it takes (aggregate for another type)"
        )
    return record_type


def _with_schema(config: WindowAggregate | WindowReduce | RollingReduce, schema: pa.Schema) -> Built:
    """The operator for the columns that are really there, after the unused ones were left out."""
    narrow = replace(config, input_schema=schema)
    return Built(narrow.create, narrow.output_schema, narrow.description)
