"""Streams by key and window: when windows fire, and what they compute."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any, Generic, Literal, TypeVar

import polars as pl
import pyarrow as pa

from onceflow.runtime.api.near_misses import no_such_name
from onceflow.runtime.api.window_evictors import all_rows, check_evictor, refuse_evictor
from onceflow.runtime.api.window_functions import ROWS, WindowFunction, check_window_function, process_windows
from onceflow.runtime.durations import duration_ms
from onceflow.runtime.errors import GraphError
from onceflow.runtime.explained_calls import explained_methods
from onceflow.runtime.graph.functions import hints, taken_record
from onceflow.runtime.graph.steps import Build, Built, Input, Keyed, Rows, Step
from onceflow.runtime.operators.aggregation.aggregates import Aggregate, AggregateFunction
from onceflow.runtime.operators.assigners.by_clock import ByClock
from onceflow.runtime.operators.assigners.counting import CountWindow
from onceflow.runtime.operators.assigners.firings import ONCE, Firings, Results
from onceflow.runtime.operators.assigners.global_window import GlobalWindow
from onceflow.runtime.operators.declared import check_lasting
from onceflow.runtime.operators.operator import MAIN
from onceflow.runtime.operators.triggers.built_in import BuiltInTrigger
from onceflow.runtime.operators.triggers.evictors import BuiltInEvictor, Evictor
from onceflow.runtime.operators.triggers.own import Trigger
from onceflow.runtime.operators.windows.new_spans import Window
from onceflow.runtime.operators.windows.reduce import RollingReduce
from onceflow.runtime.operators.windows.trigger_rules import AT_WATERMARK
from onceflow.runtime.operators.windows.window import WindowAggregate, WindowReduce, calls_functions
from onceflow.runtime.operators.windows.window_operator import LATE
from onceflow.runtime.types.hints import type_name
from onceflow.runtime.types.user_functions import function_name

if TYPE_CHECKING:
    from onceflow.runtime.api.graph_builder import JobGraphBuilder
    from onceflow.runtime.api.stream import Stream

T = TypeVar("T")
R = TypeVar("R")
ALL_ROWS = "(all rows)"
"""The only key column of window_all, the same in all rows."""
ResultsName = Literal["retracting", "accumulating", "discarding"]


@explained_methods
class WindowedStream(Generic[T]):
    """Rows by key and window, before it is said what to compute."""

    def __init__(
        self,
        job: JobGraphBuilder,
        source: Input,
        keys: tuple[str, ...],
        expressions: Mapping[str, pl.Expr],
        window: Window,
        late_tag: str | None = None,
        firings: Firings = ONCE,
        said: Results | None = None,
    ) -> None:
        """`said`: what the program says of results of a window that fires again."""
        self._evictor: BuiltInEvictor | Evictor[Any] | None = None
        self._job = job
        self._input = source
        self._keys = keys
        self._expressions = expressions
        self._window = window
        self._late_tag = late_tag
        self._firings = firings
        self._said = said

    if not TYPE_CHECKING:

        def __getattr__(self, name: str) -> Any:
            raise no_such_name(self, name)

    def late_to(self, tag: str) -> WindowedStream[T]:
        """Rows that come after all their windows have fired go to side_output(tag) of the result, as they
        came. Without it they are counted only."""
        self._check_lateness("late_to")
        if self._is_all:
            raise GraphError(
                f"operator {self._input.step.uid!r}: late_to of window_all: use "
                '.key_by(lit(0).alias("all")).window(...), which has it'
            )
        return self._with(tag, self._firings, self._said)

    def trigger(
        self, trigger: BuiltInTrigger | Trigger[T], results: ResultsName | None = None
    ) -> WindowedStream[T]:
        """When windows send their result: at_watermark(early=...), every_rows(100), every("10 s"),
        every_processing_time("10 s"), at_processing_time(), delta("price", 5), purging(...) around one of
        these, or an object of your own class derived from Trigger. It takes the place of the trigger at the
        watermark, as in Flink.

        `results`: what a window sends when it fires again, see allowed_lateness; "retracting" if nothing is
        said, and always "discarding" with purging(...).
        """
        uid = self._input.step.uid
        if not isinstance(trigger, BuiltInTrigger | Trigger):
            raise GraphError(
                f"operator {uid!r}: trigger({trigger!r}): use at_watermark(...), every_rows(...), every(...) "
                "and the like, or an object of a class derived from Trigger"
            )
        if isinstance(trigger, Trigger):
            check_lasting(trigger, uid)
        if isinstance(trigger, BuiltInTrigger) and trigger.purges:
            if results not in (None, Results.DISCARDING):
                raise GraphError(
                    f"operator {uid!r}: trigger(purging(...), results={results!r}): what is purged can't be "
                    "sent again: leave results= out, or use the trigger without purging(...)"
                )
            results, trigger = "discarding", replace(trigger, purges=False)
        # By its title: an expression in it can't be compared.
        is_default = isinstance(trigger, BuiltInTrigger) and trigger.title == AT_WATERMARK.title
        chosen = None if is_default else trigger
        return self._fired(replace(self._firings, trigger=chosen), results, "trigger")

    def allowed_lateness(self, lateness: str | int, results: ResultsName | None = None) -> WindowedStream[T]:
        """Rows that come up to so long after the end of their window, in event time, still count: the window
        fires again. Later ones are late.

        `results`: what it sends then. "retracting", if nothing is said: its last result as an update_before
        (a delete, if its bounds have changed), and the new one as an update_after, for a sink that takes
        changes; "accumulating": the whole new result, as one more row; "discarding": the result of the new
        rows only.
        """
        self._check_lateness("allowed_lateness")
        lateness_ms = duration_ms(lateness, "allowed_lateness")
        return self._fired(replace(self._firings, lateness_ms=lateness_ms), results, "allowed_lateness")

    def evictor(self, evictor: BuiltInEvictor | Evictor[T]) -> WindowedStream[T]:
        """Which rows of a window stay when it fires, before process(fn) gets them: evict_count(10),
        evict_time("10 s"), evict_delta(5, "price"), or an object of your own class derived from Evictor. What
        is left out is gone for later results of the window, too."""
        check_evictor(evictor, self._input.rows, self._has_event_time, self._window, self._input.step.uid)
        args = (self._late_tag, self._firings, self._said)
        return self._with(*args, evictor)

    def aggregate(self, *, uid: str | None = None, **aggregates: Aggregate) -> Stream[Any]:
        """One row per key and window: the key columns, window_start, window_end (ms), and an output
        column for each aggregate, as in total=sum_("amount"). Sent when the watermark passes."""
        rows = self._input.rows
        uid = self._uid(uid)
        refuse_evictor(self._evictor, aggregates, uid)
        is_per_record = calls_functions(self._window, self._firings) or any(
            isinstance(a, AggregateFunction) for a in aggregates.values()
        )
        config = WindowAggregate(
            uid,
            self._keys,
            self._window,
            aggregates,
            rows.schema,
            late=False,
            record_type=rows.record_type if is_per_record else None,
            firings=self._firings,
            has_event_time=self._has_event_time,
        )
        read = config.columns_read
        config = replace(config, late=self._late_tag is not None)
        made = Rows(config.output_schema, None, self._has_event_time)
        results = self._add(config, partial(with_schema, config), read, made, is_per_record)
        return results.select(*made.schema.names[1:]) if self._is_all else results

    def reduce(self, fn: Callable[[T, T], T], uid: str | None = None) -> Stream[T]:
        """One record per key and window: fn(fn(first, second), third), and so on, in the order in which
        they came."""
        rows = self._input.rows
        uid = self._uid(uid)
        refuse_evictor(self._evictor, {}, uid)
        record_type = reduced_record(fn, uid, rows)
        config = WindowReduce(
            uid,
            self._keys,
            self._window,
            fn,
            rows.schema,
            self._late_tag is not None,
            record_type,
            self._firings,
            self._has_event_time,
        )
        read = frozenset(rows.schema.names)
        return self._add(
            config,
            partial(with_schema, config),
            read,
            Rows(config.output_schema, rows.record_type, self._has_event_time),
            True,
        )

    def process(
        self, fn: WindowFunction[R, T], returns: type[R] | None = None, uid: str | None = None
    ) -> Stream[R]:
        """What `fn(key, window, records)` yields for each window that fires: any number of records of the
        type in its annotation `-> Iterator[YourType]`, or `returns`.

        `key`: the value of the key's column, a tuple of them if there are several, None in window_all.
        `window`: a WindowBounds with `start` and `end` in ms; None for count_window and global_window.
        `records`: all of the window, a list, in the order of collect_list. They are kept until the window is
        over, so prefer aggregate() and reduce() where they do. The results have the window's event time.
        With state of the window or the key: an object of a class derived from WindowProcess.
        """
        uid = self._uid(uid)
        check_window_function(fn, uid)
        collected = self.aggregate(uid=uid, **{ROWS: all_rows(self._evictor, self._input.rows, uid)})
        return process_windows(self, collected, fn, returns)

    def _check_lateness(self, method: str) -> None:
        if isinstance(self._window, ByClock | CountWindow | GlobalWindow):
            raise GraphError(
                f"operator {self._input.step.uid!r}: {method} of a window {self._window.title}: nothing is "
                "late there; leave it out"
            )

    def _fired(self, firings: Firings, results: str | None, method: str) -> WindowedStream[T]:
        """These firings, with what a further one sends; said twice it has to be the same."""
        uid, said = self._input.step.uid, self._said
        if results is not None and results not in set(Results):
            known = ", ".join(map(repr, map(str, Results)))
            raise GraphError(f"operator {uid!r}: {method}(results={results!r}): use one of {known}")
        if results is not None and said is not None and results != said:
            raise GraphError(
                f"operator {uid!r}: {method}(results={results!r}), but its results were said to be "
                f"{str(said)!r}: say it once"
            )
        said = said if results is None else Results(results)
        firings = replace(firings, results=said or Results.RETRACTING) if firings.is_repeated else ONCE
        return self._with(self._late_tag, firings, said)

    @property
    def _is_all(self) -> bool:
        """Whether the windows are those of window_all."""
        return self._keys == (ALL_ROWS,)

    @property
    def _has_event_time(self) -> bool:
        """Whether results have."""
        return self._input.rows.has_event_time

    def _with(
        self, late_tag: str | None, firings: Firings, said: Results | None, evictor: Any = None
    ) -> WindowedStream[T]:
        made = (self._job, self._input, self._keys, self._expressions, self._window)
        windows: WindowedStream[T] = WindowedStream(*made, late_tag, firings, said)
        windows._evictor = evictor or self._evictor
        return windows

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
        work = Keyed(
            self._keys,
            build,
            read,
            frozenset(outputs) - {MAIN},
            is_per_record,
            self._expressions,
            self._firings.has_kinds,
        )
        of = "of all rows, in one subtask" if self._is_all else f"by {', '.join(self._keys)}"
        name = f"window {self._window.title}{self._firings.title} {of}"
        step = Step(config.uid, name, work, (self._input,), outputs, config.uid)
        return self._job.add(step, tags)


def reduced_record(fn: Callable[[Any, Any], Any], uid: str, rows: Rows) -> type:
    """What fn takes twice and returns. Raises GraphError if it returns something else."""
    record_type = taken_record(fn, uid, rows.schema, rows.record_type)
    returned = hints(fn, uid).get("return", record_type)
    if returned not in (record_type, Any):
        raise GraphError(
            f"operator {uid!r}: {function_name(fn)} takes {type_name(record_type)} but returns "
            f"{type_name(returned)}; reduce returns what it takes (aggregate for another type)"
        )
    return record_type


def with_schema(config: WindowAggregate | WindowReduce | RollingReduce, schema: pa.Schema) -> Built:
    """The operator for the columns that are really there, after the unused ones were left out."""
    narrow = replace(config, input_schema=schema)
    return Built(narrow.create, narrow.output_schema, narrow.description, narrow.readers)
