"""Joins of two keyed streams, as steps: what KeyedStream's methods lead to."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

import polars as pl
import pyarrow as pa

from onceflow.runtime.api.connected_streams import check_pair, side_of
from onceflow.runtime.durations import signed_duration_ms
from onceflow.runtime.errors import GraphError
from onceflow.runtime.graph.columns import ColumnCheck
from onceflow.runtime.graph.steps import Built, Rows, Step, TwoInputs
from onceflow.runtime.operators.joins.frozen_sides import NAMES
from onceflow.runtime.operators.joins.interval_join import LATE_SIDES, IntervalJoin
from onceflow.runtime.operators.joins.joined_columns import JoinedColumns
from onceflow.runtime.operators.operator import MAIN

if TYPE_CHECKING:
    from onceflow.runtime.api.keyed_stream import KeyedStream
    from onceflow.runtime.api.stream import Stream

_CLOSED = {"both": (0, 0), "left": (0, 1), "right": (1, 0), "none": (1, 1)}
"""How many ms are taken off the lower and the upper bound."""


def interval_join(
    left: KeyedStream[Any, Any],
    right: KeyedStream[Any, Any],
    bounds: tuple[str | int, str | int],
    closed: str,
    how: str,
    where: pl.Expr | None,
    late_to: str | None,
    uid: str | None,
) -> Stream[Any]:
    """See KeyedStream.interval_join."""
    uid = left._job.new_uid(uid, "interval-join", left._input.step.anchor)
    check_join(uid, left, right)
    lower_ms, upper_ms = _bounds(uid, bounds, closed)
    columns = JoinedColumns(uid, (left._keys, right._keys), how)
    schemas = (left._input.rows.schema, right._input.rows.schema)
    passes = columns.passes(*schemas)
    made = columns.schema(passes, *schemas)
    reads = [set(), set()] if where is None else _reads(uid, where, made, passes)
    late = late_to is not None
    config = IntervalJoin(columns, schemas, passes, lower_ms, upper_ms, where, (late, late))
    tags = LATE_SIDES if late else (None, None)
    work = TwoInputs(
        side_of(left, frozenset(reads[0]), tags[0]),
        side_of(right, frozenset(reads[1]), tags[1]),
        partial(_with_schemas, config),
        passes=passes,
        delays_watermark_ms=config.delay_ms,
    )
    outputs = {MAIN: Rows(made, None, True)}
    if late:
        outputs |= {LATE_SIDES[0]: left._input.rows, LATE_SIDES[1]: right._input.rows}
    name = f"{how} interval join {lower_ms} to {upper_ms} ms by {', '.join(left._keys)}"
    step = Step(uid, name, work, (left._input, right._input), outputs, uid)
    names = {f"{late_to}_{side}": tag for side, tag in zip(NAMES, LATE_SIDES, strict=True)} if late else {}
    return left._job.add(step, names)


def check_join(uid: str, left: KeyedStream[Any, Any], right: Any) -> None:
    """Raises GraphError unless these can be joined by event time."""
    check_pair(f"operator {uid!r}", left, right, type(left))
    if not left._input.rows.has_event_time:
        raise GraphError(
            f"operator {uid!r}: this join needs event time: pass watermarks= to both sources, as in "
            'WatermarkStrategy.bounded_out_of_orderness("2 s", event_time="ts")'
        )


def _bounds(uid: str, bounds: tuple[str | int, str | int], closed: str) -> tuple[int, int]:
    """The bounds in ms, both of them within the interval."""
    if closed not in _CLOSED:
        raise GraphError(f"operator {uid!r}: closed={closed!r}: write one of {', '.join(_CLOSED)}")
    lower, upper = (signed_duration_ms(b, name) for b, name in zip(bounds, ("lower", "upper"), strict=True))
    first, last = _CLOSED[closed]
    if lower + first > upper - last:
        raise GraphError(
            f"operator {uid!r}: no time is from lower={bounds[0]!r} to upper={bounds[1]!r} "
            f"(closed={closed!r}): a right row's time less its left row's has to be from lower to upper"
        )
    return lower + first, upper - last


def _reads(uid: str, where: Any, made: pa.Schema, passes: dict[str, tuple[int, str]]) -> list[set[str]]:
    """The columns that the condition reads of each side."""
    if not isinstance(where, pl.Expr):
        raise GraphError(f"operator {uid!r}: where={where!r}: expected a polars expression")
    ColumnCheck(uid, made).predicate(where)
    asked = [passes[name] for name in where.meta.root_names()]
    return [{column for of, column in asked if of == side} for side in (0, 1)]


def _with_schemas(config: IntervalJoin, left: pa.Schema, right: pa.Schema) -> Built:
    narrow = replace(config, schemas=(left, right))
    return Built(narrow.create, narrow.output_schema, narrow.description)
