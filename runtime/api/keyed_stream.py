"""Streams by key: windows with aggregates, reduce, and process."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any, Generic, TypeVar, overload

import polars as pl

from onceflow.runtime.api.broadcast_streams import BroadcastConnectedStreams, BroadcastStream
from onceflow.runtime.api.connected_streams import (
    KeyedConnectedStreams,
    check_job,
    check_pair,
)
from onceflow.runtime.api.error_policies import OnError
from onceflow.runtime.api.joins import interval_join, regular_join, temporal_join
from onceflow.runtime.api.keyed_processes import processed
from onceflow.runtime.api.near_misses import no_such_name
from onceflow.runtime.api.window_joins import JoinWindow, co_group, window_join
from onceflow.runtime.api.windowed_stream import WindowedStream, reduced_record, with_schema
from onceflow.runtime.errors import GraphError
from onceflow.runtime.explained_calls import explained_methods
from onceflow.runtime.functions.lives import check_life
from onceflow.runtime.graph.functions import taken_record
from onceflow.runtime.graph.steps import Input, Keyed, Rows, Step
from onceflow.runtime.operators.assigners.by_clock import ByClock
from onceflow.runtime.operators.assigners.counting import CountWindow
from onceflow.runtime.operators.assigners.global_window import GlobalWindow
from onceflow.runtime.operators.assigners.own_gaps import OwnGap
from onceflow.runtime.operators.assigners.own_windows import WindowAssigner
from onceflow.runtime.operators.assigners.session import Session
from onceflow.runtime.operators.joins.window_groups import CoGroup
from onceflow.runtime.operators.operator import MAIN
from onceflow.runtime.operators.processing.keyed_process import (
    KeyedProcess,
)
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


@explained_methods
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
        """The rows of each key by window: tumbling("10 s"), sliding("10 s", "1 s"), cumulative("1 d", "1 h")
        or session("30 min") in event time, or an object of your own class derived from WindowAssigner; the
        same in processing_time(...); count_window(100, slide=10); or global_window(), which needs a
        trigger."""
        uid = self._input.step.uid
        if not isinstance(window, Window):
            raise GraphError(
                f"operator {uid!r}: window({window!r}): use tumbling(...), sliding(...), session(...), "
                "cumulative(...), count_window(...), global_window(), processing_time(...) or an object of "
                "a class derived from WindowAssigner"
            )
        if isinstance(window, WindowAssigner):
            check_life(window, uid)
        window = self._with_reader(window)
        needs_time = not isinstance(window, ByClock | CountWindow | GlobalWindow)
        if needs_time and not self._input.rows.has_event_time:
            raise GraphError(
                f"operator {uid!r}: a window needs event time: pass watermarks= to the source, as in "
                'WatermarkStrategy.bounded_out_of_orderness("2 s", event_time="ts")'
            )
        return WindowedStream(self._job, self._input, self._keys, self._expressions, window)

    def _with_reader(self, window: Window) -> Window:
        """The same window. A session's own gap knows now which records its function takes."""
        if isinstance(window, ByClock) and isinstance(window.window, Session):
            return replace(window, window=self._with_gap(window.window))
        return self._with_gap(window) if isinstance(window, Session) else window

    def _with_gap(self, window: Session) -> Session:
        if not isinstance(window.gap, OwnGap):
            return window
        rows, fn = self._input.rows, window.gap.fn
        taken = taken_record(fn, self._input.step.uid, rows.schema, rows.record_type)
        return replace(window, gap=replace(window.gap, reader=RecordReader(taken)))

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
        """The user's code with state and timers for each key: `.process(Alert())`, of the record types in
        `class Alert(KeyedProcess[K, I, O])`, or of process()'s annotations. `on_error`: as for map, of a
        record for which process() raises: what the call did to state and timers, yielded and sent is undone.
        A failing on_timer() fails the attempt always.
        """
        return processed(self, process, returns, uid, on_error)

    @overload
    def connect(self, other: KeyedStream[K, R]) -> KeyedConnectedStreams[K, T, R]: ...
    @overload
    def connect(self, other: BroadcastStream[R]) -> BroadcastConnectedStreams[K, T, R]: ...
    def connect(self, other: Any) -> Any:
        """This stream, the left one, and another by the same kind of key, for a KeyedCoProcess; or one that
        all subtasks get, `rules.broadcast()`, for a KeyedBroadcastProcess."""
        where = f"connect at {self._input.step.uid!r}"
        if isinstance(other, BroadcastStream):
            check_job(where, self, other.stream)
            return BroadcastConnectedStreams(self, other)
        check_pair(where, self, other, KeyedStream)
        return KeyedConnectedStreams(self, other)

    def join(
        self,
        other: KeyedStream[K, Any],
        *,
        how: str = "inner",
        where: pl.Expr | None = None,
        ttl: str | int | None = None,
        ttl_time: str = "event",
        uid: str | None = None,
    ) -> Stream[Any]:
        """Each row of this stream, the left one, with all rows of the other that have the same key, whenever
        they come; updates and deletes of both are taken. Columns, `how`, `where`: see interval_join; there
        are no late rows.

        Rows are kept for good, or for `ttl` ("1 d"): two rows meet if they come less than that apart, by
        their event time, or by the clock with ttl_time="processing". A row without a partner comes at once,
        with nulls, and is deleted when its first partner comes: the result of a join that is not inner, or of
        inputs with updates and deletes, is inserts and deletes, for a sink that takes them.
        """
        return regular_join(self, other, how, where, ttl, ttl_time, uid)

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
        is called name_right. `where`: an expression over these that has to be true as well. `how`: "inner",
        or "left", "right", "full" for rows without a partner too, with nulls, sent when none can come any
        more. A row whose event time the watermark has reached is late: counted and, with `late_to="late"`,
        sent to side_output("late_left") or ("late_right"). A key with a null equals none.
        """
        return interval_join(self, other, (lower, upper), closed, how, where, late_to, uid)

    def window_join(
        self,
        other: KeyedStream[K, Any],
        window: JoinWindow,
        *,
        how: str = "inner",
        where: pl.Expr | None = None,
        late_to: str | None = None,
        uid: str | None = None,
    ) -> Stream[Any]:
        """Each row of this stream, the left one, with those of the other that have the same key and are in
        the same window, sent when both streams have come to its end: tumbling("10 s"), sliding(...),
        session(...), cumulative(...), processing_time(...), or an object of a class derived from
        WindowAssigner. Columns, and window_start and window_end (ms); `how`, `where`, `late_to`: see
        interval_join. Late is a row all of whose windows were sent."""
        return window_join(self, other, window, how, where, late_to, uid)

    def temporal_join(
        self,
        other: KeyedStream[K, Any],
        *,
        how: str = "inner",
        where: pl.Expr | None = None,
        deleted: pl.Expr | None = None,
        late_to: str | None = None,
        uid: str | None = None,
    ) -> Stream[Any]:
        """Each row of this stream with the latest row of the other, a table's versions, that has its key and
        happened at its time or before: when both streams have come so far. `deleted`: an expression over the
        other's columns, true where the key is gone. Columns, `how` ("inner", "left"), `where`, `late_to`:
        see interval_join; no older version is taken where the latest fails `where`. A late version is
        counted, and holds for later rows."""
        return temporal_join(self, other, how, where, deleted, late_to, uid)

    def co_group(
        self,
        other: KeyedStream[K, Any],
        window: JoinWindow,
        function: CoGroup[Any, Any, R],
        *,
        returns: type[R] | None = None,
        late_to: str | None = None,
        uid: str | None = None,
    ) -> Stream[R]:
        """The user's code for all rows of both streams in a window, key by key. `window`: see window_join."""
        return co_group(self, other, window, function, returns, late_to, uid)
