"""Event-time windows: what a window computes per key, checked when the graph is built."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import cached_property, partial
from typing import Any

import pyarrow as pa

from onceflow.runtime.errors import GraphError
from onceflow.runtime.functions.lives import own_instance
from onceflow.runtime.nearest import nearest
from onceflow.runtime.operators.aggregation.aggregates import Aggregate
from onceflow.runtime.operators.aggregation.typed_aggregates import (
    TypedAggregate,
    check_aggregate,
    columns_read,
    plain_argument,
)
from onceflow.runtime.operators.assigners.by_clock import ByClock
from onceflow.runtime.operators.assigners.counting import CountWindow
from onceflow.runtime.operators.assigners.firings import ONCE, Firings
from onceflow.runtime.operators.assigners.global_window import GlobalWindow
from onceflow.runtime.operators.assigners.own_gaps import OwnGap
from onceflow.runtime.operators.assigners.own_windows import WindowAssigner
from onceflow.runtime.operators.assigners.session import Session
from onceflow.runtime.operators.assigners.sliding import Sliding
from onceflow.runtime.operators.assigners.tumbling import Tumbling
from onceflow.runtime.operators.describe import (
    aggregate_parts,
    aggregate_readers,
    key_columns,
    record_reader,
    reduce_part,
    trigger_parts,
    windows_of,
)
from onceflow.runtime.operators.operator import Operator
from onceflow.runtime.operators.triggers.own import Trigger
from onceflow.runtime.operators.user_state import RecordRows
from onceflow.runtime.operators.windows.clock_windows import ClockWindowOperator
from onceflow.runtime.operators.windows.count_operator import TABLE as COUNTS
from onceflow.runtime.operators.windows.count_operator import CountOperator
from onceflow.runtime.operators.windows.keyed_pane_operator import KeyedPaneOperator
from onceflow.runtime.operators.windows.new_spans import Window, check_gap
from onceflow.runtime.operators.windows.pane_operator import TABLE as PANES
from onceflow.runtime.operators.windows.pane_operator import MergeableValues, PaneOperator
from onceflow.runtime.operators.windows.reduce_values import ReduceValues
from onceflow.runtime.operators.windows.sliding_count_operator import TABLE as COUNT_PANES
from onceflow.runtime.operators.windows.sliding_count_operator import SlidingCountOperator
from onceflow.runtime.operators.windows.sliding_operator import SlidingOperator
from onceflow.runtime.operators.windows.span_operator import SpanOperator
from onceflow.runtime.operators.windows.span_rows import TABLE as SPANS
from onceflow.runtime.operators.windows.trigger_rules import check_trigger, trigger_rows
from onceflow.runtime.operators.windows.triggered_operator import TriggeredOperator, TriggeredWindows
from onceflow.runtime.operators.windows.window_operator import LATE, WindowOperator
from onceflow.runtime.operators.windows.window_operator import TABLE as WINDOWS
from onceflow.runtime.operators.windows.window_values import AggregateValues
from onceflow.runtime.state.description import StateDescription
from onceflow.runtime.state.evolution.readers import Readers
from onceflow.runtime.state.hashing import is_hashable
from onceflow.runtime.types.record_types import record_class
from onceflow.runtime.types.records_of_columns import RecordReader
from onceflow.runtime.types.user_functions import function_name

WINDOW_START, WINDOW_END = "window_start", "window_end"


@dataclass(frozen=True)
class WindowAggregate:
    """Aggregates per key and window: `key_by(...).window(...).aggregate(...)`.

    Rows out: the key columns, window_start and window_end (int64, ms), the aggregates in their order;
    event time window_end - 1. `record_type` is what AggregateFunctions get (None: a named tuple of
    the columns). With `late`, late rows go out on the tag "late" with the input's schema. `firings`: beside
    the one at the watermark. Raises GraphError naming uid and the nearest column.
    """

    uid: str
    key_columns: tuple[str, ...]
    window: Window
    aggregates: Mapping[str, Aggregate]
    input_schema: pa.Schema
    late: bool = False
    record_type: type | None = None
    firings: Firings = ONCE
    has_event_time: bool = True
    """Whether the rows that come have."""

    def __post_init__(self) -> None:
        check_keys(self.key_columns, self.input_schema, self.uid)
        check_gap(self.window, self.input_schema, self.uid)
        check_trigger(self.firings, self.window, self.input_schema, self.has_event_time, self.uid)
        if not self.aggregates:
            raise GraphError(f"operator {self.uid!r}: a window needs at least one aggregate, as in n=count()")
        names = Counter([*self.key_columns, *self._bounds, *self.aggregates])
        if doubled := [name for name, times in names.items() if times > 1]:
            raise GraphError(f"operator {self.uid!r}: two output columns are called {doubled[0]!r}")
        assert self.typed is not None
        assert self._reader is not None

    @cached_property
    def typed(self) -> list[TypedAggregate]:
        """Found out when the graph is built, like the reader, and shipped: a slot could not any more."""
        return [
            plain_argument(check_aggregate(name, aggregate, self.input_schema, self.uid))
            for name, aggregate in self.aggregates.items()
        ]

    @property
    def output_schema(self) -> pa.Schema:
        keys = [self.input_schema.field(name) for name in self.key_columns]
        bounds = [pa.field(name, pa.int64(), nullable=False) for name in self._bounds]
        return pa.schema([*keys, *bounds, *(t.result for t in self.typed)])

    @property
    def _bounds(self) -> tuple[str, ...]:
        has_none = isinstance(self.window, CountWindow | GlobalWindow)
        return () if has_none else (WINDOW_START, WINDOW_END)

    @property
    def description(self) -> StateDescription:
        has_panes = isinstance(self.window, Sliding) and self.firings == ONCE
        table = PANES if has_panes else _table(self.window, self.firings)
        keys = key_columns(self.key_columns, self.input_schema)
        parts = (*aggregate_parts(self.typed), *trigger_parts(self.firings, self.uid))
        return StateDescription("window aggregate", table, keys, parts, windows_of(self.window, self.firings))

    @property
    def readers(self) -> Readers:
        return aggregate_readers(self.typed)

    @property
    def side_schemas(self) -> dict[str, pa.Schema]:
        return {LATE: self.input_schema} if self.late else {}

    @cached_property
    def _reader(self) -> RecordReader:
        return RecordReader(self.record_type or record_class(self.input_schema))

    @property
    def columns_read(self) -> frozenset[str]:
        """The input columns that are needed; others may be left out of the rows that come in."""
        read = [columns_read(aggregate) for aggregate in self.aggregates.values()]
        trigger = self.firings.trigger
        window = self.window.window if isinstance(self.window, ByClock) else self.window
        if self.late or None in read or isinstance(trigger, Trigger) or isinstance(window, WindowAssigner):
            return frozenset(self.input_schema.names)
        by_trigger = frozenset() if trigger is None else trigger.columns_read
        gap = window.columns_read if isinstance(window, Session) else frozenset()
        return frozenset(self.key_columns).union(gap, by_trigger, *(r for r in read if r is not None))

    def create(self) -> Operator:
        """A fresh operator for one subtask and attempt."""
        schema = self.input_schema
        typed = [replace(t, aggregate=own_instance(t.aggregate, self.uid)) for t in self.typed]
        values = AggregateValues(self.uid, typed, self._reader, self.output_schema)
        if isinstance(self.window, Sliding) and self.firings == ONCE:
            of = (self.key_columns, schema, self.window, values, self.late)
            return SlidingOperator(partial(PaneOperator, *of), partial(KeyedPaneOperator, *of))
        return _operator(self, values, self._reader)


@dataclass(frozen=True)
class WindowReduce:
    """The user's `fn(a, b) -> record` per key and window: `key_by(...).window(...).reduce(fn)`.

    Rows out: one record per key and window; event time window_end - 1. A row goes through `fn` once for
    each window that it is in, since `fn` need not be associative; where windows merge, it has to be.
    """

    uid: str
    key_columns: tuple[str, ...]
    window: Window
    fn: Callable[[Any, Any], Any]
    input_schema: pa.Schema
    late: bool = False
    record_type: type | None = None
    firings: Firings = ONCE
    has_event_time: bool = True
    """Whether the rows that come have."""

    def __post_init__(self) -> None:
        check_keys(self.key_columns, self.input_schema, self.uid)
        check_gap(self.window, self.input_schema, self.uid)
        check_trigger(self.firings, self.window, self.input_schema, self.has_event_time, self.uid)
        assert self._rows is not None
        assert self._reader is not None

    @property
    def output_schema(self) -> pa.Schema:
        return self._rows.schema

    @property
    def description(self) -> StateDescription:
        keys = key_columns(self.key_columns, self.input_schema)
        parts = (reduce_part(self.fn, self.output_schema), *trigger_parts(self.firings, self.uid))
        table = _table(self.window, self.firings)
        return StateDescription("window reduce", table, keys, parts, windows_of(self.window, self.firings))

    @property
    def readers(self) -> Readers:
        """None with a trigger, which may keep results under the columns that they were sent with."""
        return {} if self.firings.trigger is not None else record_reader(self._rows.reads)

    @property
    def side_schemas(self) -> dict[str, pa.Schema]:
        return {LATE: self.input_schema} if self.late else {}

    def create(self) -> Operator:
        """A fresh operator for one subtask and attempt."""
        values = ReduceValues(self.uid, own_instance(self.fn, self.uid), self._rows)
        return _operator(self, values, self._reader)

    @cached_property
    def _reader(self) -> RecordReader:
        return RecordReader(self.record_type or record_class(self.input_schema))

    @cached_property
    def _rows(self) -> RecordRows:
        """Made when the graph is built, and shipped."""
        what = f"operator {self.uid!r}: {function_name(self.fn)}"
        return RecordRows(self.input_schema, self.record_type, what)


def _operator(
    config: WindowAggregate | WindowReduce, values: MergeableValues, reader: RecordReader
) -> Operator:
    """The operator whose table has a row for each key and window."""
    keys, schema, window = config.key_columns, config.input_schema, config.window
    if isinstance(window, Tumbling | Sliding) and config.firings == ONCE:
        return WindowOperator(keys, schema, window, values, config.late)
    if isinstance(window, CountWindow):
        by_count = CountOperator if window.slide is None else SlidingCountOperator
        return by_count(keys, schema, window, values, config.has_event_time)
    of_time = window.window if isinstance(window, ByClock) else window
    if isinstance(of_time, WindowAssigner):
        of_time = own_instance(of_time, config.uid)
    elif isinstance(of_time, Session) and isinstance(of_time.gap, OwnGap):
        own = replace(of_time.gap, fn=own_instance(of_time.gap.fn, config.uid))
        of_time = replace(of_time, gap=own)
    spans: SpanOperator | TriggeredOperator
    if config.firings.trigger is None:
        assert not isinstance(of_time, GlobalWindow), "it has a trigger"
        spans = SpanOperator(config.uid, keys, schema, of_time, values, config.firings, config.late)
    else:
        has_time = config.has_event_time or isinstance(window, ByClock)
        of = TriggeredWindows(
            config.uid, keys, schema, of_time, config.firings, config.late, has_time, config.output_schema
        )
        trigger = trigger_rows(config.uid, config.firings, window, reader, config.has_event_time)
        spans = TriggeredOperator(of, values, trigger)
    return ClockWindowOperator(spans, config.has_event_time) if isinstance(window, ByClock) else spans


def calls_functions(window: Window, firings: Firings) -> bool:
    """Whether a function of the user's is called for each record, by the window or its trigger."""
    of_time = window.window if isinstance(window, ByClock) else window
    has_gap = isinstance(of_time, Session) and isinstance(of_time.gap, OwnGap)
    return has_gap or isinstance(firings.trigger, Trigger)


def _table(window: Window, firings: Firings) -> str:
    """The table of the operator that `_operator` makes."""
    if isinstance(window, Tumbling | Sliding) and firings == ONCE:
        return WINDOWS
    if isinstance(window, CountWindow):
        return COUNTS if window.slide is None else COUNT_PANES
    return SPANS


def check_keys(key_columns: tuple[str, ...], schema: pa.Schema, uid: str) -> None:
    """Raises GraphError if a key column is not there or can't be hashed."""
    if not key_columns:
        raise GraphError(f"operator {uid!r}: the key has no columns")
    for name in key_columns:
        where = f"operator {uid!r}: "
        if schema.get_field_index(name) < 0:
            raise GraphError(f"{where}there is no key column {name!r}{nearest(name, schema.names)}")
        if not is_hashable(schema.field(name).type):
            raise GraphError(
                f"{where}the key column {name!r} is {schema.field(name).type}, which can't be a key"
            )
