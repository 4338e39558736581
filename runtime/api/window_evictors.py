"""Evictors of windows: checked when the graph is built, and made into what the operator asks."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from onceflow.runtime.api.window_functions import ROWS
from onceflow.runtime.errors import GraphError
from onceflow.runtime.graph.steps import Rows
from onceflow.runtime.operators.aggregation.aggregates import BuiltinAggregate, Kind, collect_list
from onceflow.runtime.operators.aggregation.evicted_rows import (
    ChosenRows,
    Eviction,
    LastRows,
    LatestRows,
    NearRows,
)
from onceflow.runtime.operators.aggregation.typed_aggregates import argument_field
from onceflow.runtime.operators.assigners.by_clock import ByClock
from onceflow.runtime.operators.triggers.evictors import BuiltInEvictor, Evictor
from onceflow.runtime.operators.windows.new_spans import Window
from onceflow.runtime.types.record_types import record_class
from onceflow.runtime.types.records_of_columns import RecordReader
from onceflow.runtime.types.user_functions import function_name

AnyEvictor = BuiltInEvictor | Evictor[Any]


def check_evictor(evictor: AnyEvictor, rows: Rows, has_event_time: bool, window: Window, uid: str) -> None:
    """Raises GraphError for what is no evictor, or does not go with these rows and windows."""
    where = f"operator {uid!r}: evictor"
    if not isinstance(evictor, BuiltInEvictor | Evictor):
        raise GraphError(
            f"{where}({evictor!r}): use evict_count(...), evict_time(...), evict_delta(...) or an object of "
            "a class derived from Evictor"
        )
    if isinstance(evictor, Evictor):
        return
    if evictor.age_ms is not None and not has_event_time and not isinstance(window, ByClock):
        raise GraphError(f"{where}(evict_time(...)) needs event time: pass watermarks= to the source")
    if isinstance(evictor.delta, str):
        arrow, t = argument_field(evictor.delta, rows.schema, f"{where}: evict_delta").type, pa.types
        if not (t.is_integer(arrow) or t.is_floating(arrow) or t.is_decimal(arrow)):
            raise GraphError(f"{where}(evict_delta(..., {evictor.delta!r})): it is {arrow}: give a number")
    elif evictor.delta is not None:
        try:
            inspect.signature(evictor.delta).bind(None, None)
        except TypeError as error:
            raise GraphError(
                f"{where}: {function_name(evictor.delta)} can't be called with a record and the last one "
                f"({error}): write it as `def {function_name(evictor.delta)}(record, last)`"
            ) from error


def refuse_evictor(evictor: AnyEvictor | None, aggregates: Mapping[str, Any], uid: str) -> None:
    """Raises GraphError if a window with an evictor computes anything else than its rows."""
    if evictor is not None and ROWS not in aggregates:
        raise GraphError(
            f"operator {uid!r}: an evictor leaves out rows, and aggregate() and reduce() keep none: use "
            ".process(fn), or leave the evictor out"
        )


def all_rows(evictor: AnyEvictor | None, rows: Rows, uid: str) -> BuiltinAggregate:
    """The aggregate that keeps the rows of a window for a function of the user's."""
    if evictor is None:
        return collect_list()
    return BuiltinAggregate(Kind.EVICTED_ROWS, eviction=_eviction(evictor, rows, uid))


def _eviction(evictor: AnyEvictor, rows: Rows, uid: str) -> Eviction:
    if isinstance(evictor, Evictor):
        title = f"rows kept by {function_name(type(evictor))}"
        return ChosenRows(uid, evictor.keeps, evictor.keeps, _reader(rows), title)
    if evictor.rows is not None:
        return LastRows(evictor.rows, evictor.title)
    if evictor.age_ms is not None:
        return LatestRows(evictor.age_ms, evictor.title)
    if isinstance(evictor.delta, str):
        return NearRows(evictor.delta, evictor.threshold, evictor.title)
    assert evictor.delta is not None
    near = Near(evictor.delta, evictor.threshold)
    return ChosenRows(uid, evictor.delta, near, _reader(rows), evictor.title)


def _reader(rows: Rows) -> RecordReader:
    return RecordReader(rows.record_type or record_class(rows.schema))


@dataclass(frozen=True)
class Near:
    """Keeps the records whose distance to the last one is below a threshold."""

    distance: Callable[[Any, Any], Any]
    threshold: float

    def __call__(self, records: list[Any], timestamps: list[int]) -> Iterable[bool]:
        return [self.distance(record, records[-1]) < self.threshold for record in records]
