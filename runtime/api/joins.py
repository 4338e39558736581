"""Joins of two keyed streams, as steps: what KeyedStream's methods lead to."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

import polars as pl
import pyarrow as pa

from onceflow.runtime.api.connected_streams import check_pair, side_of
from onceflow.runtime.durations import duration_ms, signed_duration_ms
from onceflow.runtime.errors import GraphError
from onceflow.runtime.graph.columns import ColumnCheck
from onceflow.runtime.graph.steps import Built, Rows, Step, TwoInputs
from onceflow.runtime.operators.joins.frozen_sides import NAMES
from onceflow.runtime.operators.joins.interval_join import IntervalJoin
from onceflow.runtime.operators.joins.joined_columns import LATE_SIDES, JoinedColumns
from onceflow.runtime.operators.joins.regular_join import RegularJoin
from onceflow.runtime.operators.joins.temporal_join import TemporalJoin
from onceflow.runtime.operators.joins.window_join import WindowJoin
from onceflow.runtime.operators.operator import MAIN
from onceflow.runtime.state.description import TimeToLive

if TYPE_CHECKING:
    from onceflow.runtime.api.keyed_stream import KeyedStream
    from onceflow.runtime.api.stream import Stream

AnyJoin = IntervalJoin | WindowJoin | TemporalJoin | RegularJoin
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
    reads = columns_of(uid, where, made, passes)
    late = late_to is not None
    config = IntervalJoin(columns, schemas, passes, lower_ms, upper_ms, where, (late, late))
    name = f"{how} interval join {lower_ms} to {upper_ms} ms by {', '.join(left._keys)}"
    return add_join(left, right, uid, name, config, reads, late_to)


def regular_join(
    left: KeyedStream[Any, Any],
    right: KeyedStream[Any, Any],
    how: str,
    where: pl.Expr | None,
    ttl: str | int | None,
    ttl_time: str,
    uid: str | None,
) -> Stream[Any]:
    """See KeyedStream.join."""
    uid = left._job.new_uid(uid, "join", left._input.step.anchor)
    check_pair(f"operator {uid!r}", left, right, type(left))
    columns = JoinedColumns(uid, (left._keys, right._keys), how)
    schemas = (left._input.rows.schema, right._input.rows.schema)
    passes = columns.passes(*schemas)
    reads = (
        [set(), set()] if where is None else columns_of(uid, where, columns.schema(passes, *schemas), passes)
    )
    has_event_time = left._input.rows.has_event_time
    lasting = _lasting(uid, ttl, ttl_time, has_event_time)
    config = RegularJoin(columns, schemas, passes, where, lasting, has_event_time)
    name = f"{how} join by {', '.join(left._keys)}, {config.kept}"
    return add_join(left, right, uid, name, config, reads, None)


def temporal_join(
    left: KeyedStream[Any, Any],
    right: KeyedStream[Any, Any],
    how: str,
    where: pl.Expr | None,
    deleted: pl.Expr | None,
    late_to: str | None,
    uid: str | None,
) -> Stream[Any]:
    """See KeyedStream.temporal_join."""
    uid = left._job.new_uid(uid, "temporal-join", left._input.step.anchor)
    check_join(uid, left, right)
    if how not in ("inner", "left"):
        raise GraphError(f"operator {uid!r}: how={how!r}: write one of inner, left")
    columns = JoinedColumns(uid, (left._keys, right._keys), how)
    schemas = (left._input.rows.schema, right._input.rows.schema)
    passes = columns.passes(*schemas)
    reads = (
        [set(), set()] if where is None else columns_of(uid, where, columns.schema(passes, *schemas), passes)
    )
    if deleted is not None:
        if not isinstance(deleted, pl.Expr):
            raise GraphError(f"operator {uid!r}: deleted={deleted!r}: expected a polars expression")
        ColumnCheck(uid, schemas[1]).predicate(deleted)
        reads[1] |= set(deleted.meta.root_names())
    config = TemporalJoin(columns, schemas, passes, deleted, late_to is not None, where)
    name = f"{how} temporal join by {', '.join(left._keys)}"
    return add_join(left, right, uid, name, config, reads, late_to)


def add_join(
    left: KeyedStream[Any, Any],
    right: KeyedStream[Any, Any],
    uid: str,
    name: str,
    config: AnyJoin,
    reads: Sequence[set[str]],
    late_to: str | None,
    made: Rows | None = None,
) -> Stream[Any]:
    """The step of a join, with side outputs for late rows if they are wanted. `reads`: the columns that it
    looks at, of each side; `made`: what comes out of the user's function, where one makes the rows."""
    tags = LATE_SIDES if late_to is not None else (None, None)
    is_regular = isinstance(config, RegularJoin)
    work = TwoInputs(
        side_of(left, frozenset(reads[0]), tags[0]),
        side_of(right, frozenset(reads[1]), tags[1]),
        partial(_with_schemas, config),
        passes=config.passes,
        is_per_record=made is not None,
        delays_watermark_ms=config.delay_ms if isinstance(config, IntervalJoin) else 0,
        takes_kinds=is_regular,
        has_kinds=is_regular and bool(config.columns.padded),
    )
    has_event_time = left._input.rows.has_event_time
    outputs, names = {MAIN: made or Rows(config.output_schema, None, has_event_time)}, {}
    if late_to is not None:
        outputs |= {LATE_SIDES[0]: left._input.rows, LATE_SIDES[1]: right._input.rows}
        names = {f"{late_to}_{side}": tag for side, tag in zip(NAMES, LATE_SIDES, strict=True)}
    return left._job.add(Step(uid, name, work, (left._input, right._input), outputs, uid), names)


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


def _lasting(uid: str, ttl: str | int | None, time: str, has_event_time: bool) -> TimeToLive | None:
    """How long the rows of a regular join are kept; None: for good."""
    if time not in ("event", "processing"):
        raise GraphError(f"operator {uid!r}: ttl_time={time!r}: use 'event' or 'processing'")
    if ttl is None:
        if time != "event":
            raise GraphError(f"operator {uid!r}: ttl_time={time!r} says how a ttl counts: pass ttl= too")
        return None
    ms = duration_ms(ttl, f"operator {uid!r}: ttl")
    if not ms:
        raise GraphError(f"operator {uid!r}: ttl={ttl!r}: no row would meet any; write a longer one")
    if time == "event" and not has_event_time:
        raise GraphError(
            f"operator {uid!r}: ttl={ttl!r} counts event time, and these streams have none: pass watermarks= "
            'to both sources, or write ttl_time="processing"'
        )
    return TimeToLive(ms, time == "processing")


def columns_of(uid: str, where: Any, made: pa.Schema, passes: dict[str, tuple[int, str]]) -> list[set[str]]:
    """The columns that the condition, if there is one, reads of each side."""
    if where is None:
        return [set(), set()]
    if not isinstance(where, pl.Expr):
        raise GraphError(f"operator {uid!r}: where={where!r}: expected a polars expression")
    ColumnCheck(uid, made).predicate(where)
    asked = [passes[name] for name in where.meta.root_names()]
    return [{column for of, column in asked if of == side} for side in (0, 1)]


def _with_schemas(config: AnyJoin, left: pa.Schema, right: pa.Schema) -> Built:
    narrow = replace(config, schemas=(left, right))
    return Built(narrow.create, narrow.output_schema, narrow.description, narrow.readers)
