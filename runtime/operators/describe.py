"""Descriptions of the state of operators, made of how they are configured.

The tables that are described, one row for each key or for each key and window:

- `windows`, `panes`: key_group, key (struct), window_start or pane_start (ms), value (struct, a field for
  each aggregate, of approximate ones the bytes of a KLL or HLL sketch of Apache DataSketches, of rows with an
  evictor a list of structs of event_time and row; or the record so far);
- `spans`: key_group, key, window_start, window_end, fired (boolean; left out if no window has, and stays),
  value: windows that merge, or that fire more than once. Of windows with a trigger also rows (how many they
  hold), changed (whether some are new since they fired), sent (struct: the last result, with the bounds and
  the time it was sent with; null if nothing was sent) where results are taken back, and what the trigger
  keeps: seen, early_ms, clock_ms, anchor; or trigger_state, timers, processing_timers;
- `counts`: key_group, key, rows (how many are in the window that is not full), value;
- `count_panes`: key_group, key, first (the number of the pane's first row among those of the key, from 0),
  rows (how many are in it), value: of sliding count windows;
- `reduced`: key_group, key, value (struct: the record so far);
- `keys`: key_group, key, state (struct, a field for each declared state), expires (struct, a field for each
  state with a TTL in event time: ms; of a list or map a list of ms, in the order of its items) and
  processing_expires (of those by the clock), each left out if no state has one, timers (list of ms).

Where a snapshot fell between two pieces of firing, `panes` have a column fired_ms (see PaneOperator); `keys`
have processing_timers (list of ms) if there are any.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import polars as pl
import pyarrow as pa
from msgspec import structs

from onceflow.runtime.operators.aggregation.accumulators import accumulator
from onceflow.runtime.operators.aggregation.aggregates import BuiltinAggregate
from onceflow.runtime.operators.aggregation.typed_aggregates import TypedAggregate
from onceflow.runtime.operators.assigners.by_clock import ByClock, TimeWindow
from onceflow.runtime.operators.assigners.counting import CountWindow
from onceflow.runtime.operators.assigners.cumulative import Cumulative
from onceflow.runtime.operators.assigners.firings import Firings
from onceflow.runtime.operators.assigners.global_window import GlobalWindow
from onceflow.runtime.operators.assigners.own_gaps import OwnGap
from onceflow.runtime.operators.assigners.own_windows import WindowAssigner
from onceflow.runtime.operators.assigners.session import Session
from onceflow.runtime.operators.assigners.sliding import Sliding
from onceflow.runtime.operators.declared import declared_states
from onceflow.runtime.operators.triggers.built_in import BuiltInTrigger
from onceflow.runtime.state.declared_state import State
from onceflow.runtime.state.description import (
    KEPT_BY,
    RECORD,
    Expression,
    KeyColumn,
    StateDescription,
    StatePart,
    Windows,
    type_text,
)
from onceflow.runtime.state.evolution.readers import Reader
from onceflow.runtime.state.handles import ListState, MapState
from onceflow.runtime.state.table import LiveRows
from onceflow.runtime.types.user_functions import function_name
from onceflow.runtime.types.value_types import ValueType

FUNCTION = "function"
"""The kind of a user's own aggregate."""


def key_columns(names: Iterable[str], schema: pa.Schema) -> tuple[KeyColumn, ...]:
    return tuple(KeyColumn(name, type_text(schema.field(name).type)) for name in names)


def with_key_expressions(
    description: StateDescription,
    expressions: Mapping[str, pl.Expr],
    right: Mapping[str, pl.Expr] | None = None,
) -> StateDescription:
    """The same, and what key_by computes its columns from; `right`: those of the right input."""
    keys = tuple(_with_expression(key, expressions) for key in description.keys)
    right_keys = tuple(_with_expression(key, right or {}) for key in description.right_keys)
    return structs.replace(description, keys=keys, right_keys=right_keys)


def _with_expression(key: KeyColumn, expressions: Mapping[str, pl.Expr]) -> KeyColumn:
    if key.name not in expressions:
        return key
    return structs.replace(key, expression=expression_form(expressions[key.name]))


def windows_of(window: TimeWindow | ByClock | CountWindow | GlobalWindow, firings: Firings) -> Windows:
    if isinstance(window, ByClock):
        return structs.replace(windows_of(window.window, firings), is_by_clock=True)
    if isinstance(window, CountWindow):
        return Windows("count", window.rows, window.slide or window.rows)
    if isinstance(window, GlobalWindow):
        described = Windows("global", 0, 0)
    elif isinstance(window, WindowAssigner):
        described = Windows("own", 0, 0, function=function_name(type(window)))
    elif isinstance(window, Cumulative):
        described = Windows("cumulative", window.size_ms, window.step_ms, window.offset_ms)
    elif isinstance(window, Session):
        described = _session(window)
    else:
        kind = "sliding" if isinstance(window, Sliding) else "tumbling"
        described = Windows(kind, window.size_ms, window.slide_ms, window.offset_ms)
    if not firings.is_repeated:
        return described
    return structs.replace(
        described,
        lateness_ms=firings.lateness_ms,
        results=str(firings.results),
        trigger=firings.trigger_title,
    )


def _session(window: Session) -> Windows:
    described = Windows("session", window.gap_ms, window.gap_ms)
    match window.gap:
        case None:
            return described
        case str(column):
            return structs.replace(described, gap_column=column)
        case OwnGap():
            return structs.replace(described, function=str(window.gap))
        case expression:
            return structs.replace(described, gap=expression_form(expression))


def aggregate_parts(aggregates: Sequence[TypedAggregate]) -> tuple[StatePart, ...]:
    """The parts of the state, one for each aggregate, in the order of the output."""
    return tuple(map(_aggregate_part, aggregates))


def reduce_part(fn: Callable[..., Any], record: pa.Schema) -> StatePart:
    return StatePart(RECORD, "reduce", type_text(pa.struct(list(record))), function=function_name(fn))


def trigger_parts(firings: Firings, uid: str) -> tuple[StatePart, ...]:
    """What a trigger of the user's keeps of each window, one part for each state that it declares."""
    if firings.trigger is None or isinstance(firings.trigger, BuiltInTrigger):
        return ()
    states = map(state_part, declared_states(firings.trigger, uid).values())
    return tuple(structs.replace(part, name=f"trigger's {part.name}") for part in states)


def state_part(state: State) -> StatePart:
    """A declared state of a KeyedProcess."""
    kind = "list" if isinstance(state, ListState) else "map" if isinstance(state, MapState) else "value"
    kept = type_text(state.of_rows.codec.field.type)
    of, codec = ("", "") if state.objects is None else (state.objects.title, state.objects.name)
    return StatePart(state.name, kind, kept, function=of, is_nullable=True, ttl=state.ttl, codec=codec)


def state_readers(states: Iterable[State], column: str) -> dict[str, Reader]:
    """The types of declared states, which are fields of this column."""
    return {
        state.name: Reader((column, state.name), state.of_rows.codec.reads, state.former_names)
        for state in states
    }


def aggregate_readers(aggregates: Sequence[TypedAggregate]) -> dict[str, Reader]:
    """The types of the accumulators of the user's aggregates. Built-in ones know theirs."""
    return {a.name: Reader(("value", a.name), a.state) for a in aggregates if a.state is not None}


def record_reader(of: ValueType) -> dict[str, Reader]:
    """The type of the record so far."""
    return {RECORD: Reader(("value",), of)}


def expression_form(expression: pl.Expr) -> Expression:
    """The part of an expression that can be written down and compared."""
    text = str(expression)
    reads = tuple(sorted(set(expression.meta.root_names())))
    return Expression(text, reads, _digest(expression, text), pl.__version__)


def _digest(expression: pl.Expr, text: str) -> str:
    if "python_udf" in text:
        return ""  # its form would be the function's code
    try:
        form = expression.meta.serialize(format="json")
    except pl.exceptions.PolarsError:
        return ""
    return hashlib.sha256(form.encode()).hexdigest()[:16]


def _aggregate_part(typed: TypedAggregate) -> StatePart:
    name, nullable, aggregate = typed.name, typed.result.nullable, typed.aggregate
    if not isinstance(aggregate, BuiltinAggregate):
        assert typed.state is not None
        kept, function = type_text(typed.state.arrow), function_name(type(aggregate))
        if typed.objects is None:
            return StatePart(name, FUNCTION, kept, function=function, is_nullable=nullable)
        function, codec = f"{typed.objects.title}{KEPT_BY}{function}", typed.objects.name
        return StatePart(name, FUNCTION, kept, function=function, is_nullable=nullable, codec=codec)
    arrow = None if typed.argument is None else typed.argument.type
    kept = accumulator(aggregate, arrow).freeze(LiveRows(0))(np.empty(0, np.int64)).type
    if isinstance(aggregate.argument, pl.Expr):
        expression = expression_form(aggregate.argument)
        return StatePart(
            name, aggregate.kind.value, type_text(kept), expression=expression, is_nullable=nullable
        )
    column, evicted = aggregate.argument or "", "" if aggregate.eviction is None else aggregate.eviction.title
    return StatePart(
        name, aggregate.kind.value, type_text(kept), column, function=evicted, is_nullable=nullable
    )
