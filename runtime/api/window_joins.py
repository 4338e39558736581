"""Window joins and co-groups of two keyed streams, as steps: what KeyedStream's methods lead to.

Tumbling and sliding windows have an operator of their own, which keeps rows by window in columns. For all
other windows the two streams become one, whose windows hold the rows of both.
"""

from __future__ import annotations

import typing
from functools import partial
from typing import TYPE_CHECKING, Any

import polars as pl
import pyarrow as pa

from onceflow.runtime.api.connected_streams import check_pair
from onceflow.runtime.api.joins import add_join, check_join, columns_of
from onceflow.runtime.api.records_of_functions import records_made
from onceflow.runtime.api.splits import SideOutput
from onceflow.runtime.errors import GraphError
from onceflow.runtime.graph.functions import check_record, hints
from onceflow.runtime.graph.steps import Built, Call, Input, Rows, Step
from onceflow.runtime.operators.aggregation.aggregates import collect_list
from onceflow.runtime.operators.assigners.by_clock import ByClock, TimeWindow
from onceflow.runtime.operators.assigners.session import Session
from onceflow.runtime.operators.assigners.sliding import Sliding
from onceflow.runtime.operators.assigners.tumbling import Tumbling
from onceflow.runtime.operators.declared import declared_types
from onceflow.runtime.operators.joins.frozen_sides import NAMES
from onceflow.runtime.operators.joins.joined_columns import LEFT, RIGHT, JoinedColumns
from onceflow.runtime.operators.joins.united_sides import (
    ROWS,
    SIDE_COLUMNS,
    SideStep,
    UnitedJoin,
    UnitedSides,
)
from onceflow.runtime.operators.joins.window_groups import CoGroup, GroupConfig
from onceflow.runtime.operators.joins.window_join import WindowJoin
from onceflow.runtime.operators.joins.window_pairs import WINDOW_FIELDS
from onceflow.runtime.operators.operator import MAIN
from onceflow.runtime.types.declared_fields import is_record_type
from onceflow.runtime.types.hints import type_name
from onceflow.runtime.types.record_types import record_class
from onceflow.runtime.types.records_of_columns import RecordReader

if TYPE_CHECKING:
    from onceflow.runtime.api.keyed_stream import KeyedStream
    from onceflow.runtime.api.stream import Stream

JoinWindow = TimeWindow | ByClock
"""Windows in which two streams may meet."""


def window_join(
    left: KeyedStream[Any, Any],
    right: KeyedStream[Any, Any],
    window: JoinWindow,
    how: str,
    where: pl.Expr | None,
    late_to: str | None,
    uid: str | None,
) -> Stream[Any]:
    """See KeyedStream.window_join."""
    uid = left._job.new_uid(uid, "window-join", left._input.step.anchor)
    check_windows(uid, left, right, window)
    columns = JoinedColumns(uid, (left._keys, right._keys), how)
    schemas = (left._input.rows.schema, right._input.rows.schema)
    passes = columns.passes(*schemas)
    for field in WINDOW_FIELDS:
        if field.name in passes:
            raise GraphError(
                f"operator {uid!r}: the join adds a column {field.name!r}: rename yours before "
                "the join, with select(...)"
            )
    reads = (
        [set(), set()] if where is None else columns_of(uid, where, columns.schema(passes, *schemas), passes)
    )
    if not isinstance(window, Tumbling | Sliding):
        united = UnitedJoin(UnitedSides(columns.keys, schemas), columns, passes, where)
        return _united(left, right, uid, f"{how} join of rows in windows", united, window, late_to)
    config = WindowJoin(columns, schemas, window, passes, where, late_to is not None)
    name = f"{how} window join {_shown_window(window)} by {', '.join(left._keys)}"
    return add_join(left, right, uid, name, config, reads, late_to)


def co_group(
    left: KeyedStream[Any, Any],
    right: KeyedStream[Any, Any],
    window: JoinWindow,
    function: CoGroup[Any, Any, Any],
    returns: type | None,
    late_to: str | None,
    uid: str | None,
) -> Stream[Any]:
    """See KeyedStream.co_group."""
    if not isinstance(function, CoGroup):
        raise GraphError(f"co_group({function!r}): expected an object of a class derived from CoGroup")
    uid = left._job.new_uid(uid, f"co-group-{type(function).__name__}", left._input.step.anchor)
    check_windows(uid, left, right, window)
    of_left, of_right, of_made = declared_types(function, CoGroup) or [None] * 3
    readers = tuple(
        RecordReader(_listed(function, uid, declared, stream, name))
        for declared, stream, name in zip((of_left, of_right), (left, right), NAMES, strict=True)
    )
    rows, writer = records_made(function.group, returns or of_made, uid, True)
    columns = JoinedColumns(uid, (left._keys, right._keys), "full")
    schemas = (left._input.rows.schema, right._input.rows.schema)
    group = GroupConfig(uid, function, (readers[0], readers[1]), writer)
    if not isinstance(window, Tumbling | Sliding):
        united = UnitedJoin(UnitedSides(columns.keys, schemas), columns, {}, None, group)
        name = f"co-group {type(function).__name__} of rows in windows"
        return _united(left, right, uid, name, united, window, late_to, rows)
    config = WindowJoin(columns, schemas, window, {}, None, late_to is not None, group)
    name = f"co-group {type(function).__name__} {_shown_window(window)} by {', '.join(left._keys)}"
    reads = [set(reader.columns) for reader in readers]
    return add_join(left, right, uid, name, config, reads, late_to, rows)


def _listed(
    function: CoGroup[Any, Any, Any], uid: str, declared: Any, stream: KeyedStream[Any, Any], name: str
) -> type:
    """The record type of one side's list: what the class declares, or the annotation of the parameter."""
    rows = stream._input.rows
    annotated = hints(function.group, uid).get(name)
    found = declared or next(iter(typing.get_args(annotated)), None) or rows.record_type
    if found is None:
        return record_class(rows.schema)
    if not is_record_type(found):
        raise GraphError(
            f"operator {uid!r}: {type(function).__name__} takes {type_name(found)} on the {name}; expected "
            "a record type: write class YourCoGroup(CoGroup[Left, Right, Out]) with dataclasses"
        )
    check_record(found, rows.schema, f"operator {uid!r}: {type(function).__name__}")
    return typing.cast(type, found)


def _united(
    left: KeyedStream[Any, Any],
    right: KeyedStream[Any, Any],
    uid: str,
    name: str,
    join: UnitedJoin,
    window: JoinWindow,
    late_to: str | None,
    made: Rows | None = None,
) -> Stream[Any]:
    """The join over windows of both streams as one. `made`: what comes out of the user's function, where one
    makes the rows. The windows are what has this uid, since they have the state."""
    sides = join.sides
    together = [_together(stream, sides, side) for side, stream in enumerate((left, right))]
    windows = together[LEFT].union(together[RIGHT]).key_by(*sides.keys[LEFT]).window(window)
    if late_to is not None:
        windows = windows.late_to(late_to)
    collected = windows.aggregate(uid=uid, **{ROWS: collect_list()})
    has_event_time = collected._input.rows.has_event_time
    build = partial(_always, Built(join.create, join.output_schema))
    reads = frozenset([*sides.keys[LEFT], *(field.name for field in WINDOW_FIELDS), ROWS])
    work = Call(build, reads, is_per_record=join.group is not None, makes_rows=True)
    rows = made or Rows(join.output_schema, None, has_event_time)
    anchor = collected._input.step.anchor
    step = Step(
        left._job.new_uid(None, "joined", anchor), name, work, (collected._input,), {MAIN: rows}, anchor
    )
    late: dict[str, SideOutput] = {}
    if late_to is not None:
        late_rows = collected.side_output(late_to)
        late = {
            f"{late_to}_{NAMES[n]}": partial(_apart, late_rows, sides, n, its)
            for n, its in enumerate((left, right))
        }
    results = left._job.add(step)
    results._tags.update(late)
    return results


def _together(stream: KeyedStream[Any, Any], sides: UnitedSides, side: int) -> Stream[Any]:
    """The rows of one side as rows of both."""
    transform = SideStep(sides, side, is_together=True)
    work = Call(partial(_always, Built(transform.create, sides.schema)), frozenset(sides.schemas[side].names))
    rows = Rows(sides.schema, None, stream._input.rows.has_event_time)
    anchor = stream._input.step.anchor
    uid = stream._job.new_uid(None, NAMES[side], anchor)
    return stream._job.add(Step(uid, f"as {NAMES[side]} rows", work, (stream._input,), {MAIN: rows}, anchor))


def _apart(late: Stream[Any], sides: UnitedSides, side: int, stream: KeyedStream[Any, Any]) -> Input:
    """The late rows of one side."""
    transform = SideStep(sides, side, is_together=False)
    work = Call(partial(_always, Built(transform.create, sides.schemas[side])), frozenset(SIDE_COLUMNS))
    anchor = late._input.step.anchor
    uid = stream._job.new_uid(None, f"late-{NAMES[side]}", anchor)
    step = Step(uid, f"late {NAMES[side]} rows", work, (late._input,), {MAIN: stream._input.rows}, anchor)
    return stream._job.add(step)._input


def _always(built: Built, schema: pa.Schema) -> Built:
    return built


def check_windows(uid: str, left: KeyedStream[Any, Any], right: Any, window: Any) -> None:
    """Raises GraphError unless these streams can be joined in such windows."""
    if not isinstance(window, JoinWindow):
        raise GraphError(
            f"operator {uid!r}: window={window!r}: use tumbling(...), sliding(...), session(...), "
            "cumulative(...), processing_time(...) or an object of a class derived from WindowAssigner"
        )
    spans = window.window if isinstance(window, ByClock) else window
    if isinstance(spans, Session) and spans.gap is not None:
        raise GraphError(
            f"operator {uid!r}: window={window.title}: the rows of two streams have no columns in common "
            'that could say the gap: write a fixed one, as in session("10 min")'
        )
    if isinstance(window, ByClock):
        check_pair(f"operator {uid!r}", left, right, type(left))
    else:
        check_join(uid, left, right)
    taken = sorted({*left._keys} & {*SIDE_COLUMNS})
    if taken and not isinstance(window, Tumbling | Sliding):
        raise GraphError(
            f"operator {uid!r}: in these windows the rows of both streams are in columns called 'left' and "
            f"'right', and so is the key {taken[0]!r}: give it another name, with .alias(...) in key_by"
        )


def _shown_window(window: Tumbling | Sliding) -> str:
    every = f" every {window.slide_ms} ms" if isinstance(window, Sliding) else ""
    return f"{window.size_ms} ms{every}"
