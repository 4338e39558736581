"""union: the rows of several streams with the same columns as one stream."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeVar

import pyarrow as pa

from onceflow.runtime.errors import GraphError
from onceflow.runtime.graph.columns import check_same_columns
from onceflow.runtime.graph.steps import Merge, Rows, Step
from onceflow.runtime.operators.operator import MAIN

if TYPE_CHECKING:
    from onceflow.runtime.api.stream import Stream

T = TypeVar("T")


def united(stream: Stream[T], others: tuple[Stream[Any], ...]) -> Stream[T]:
    """See Stream.union. Raises GraphError if they don't have the same columns, or event time only in part."""
    uid = stream._uid(None, "union")
    all_rows = [stream._input.rows, *(other._input.rows for other in others)]
    for other, rows in zip(others, all_rows[1:], strict=True):
        if other._job is not stream._job:
            raise GraphError(f"operator {uid!r}: {other._input.step.uid!r} belongs to another job")
        check_same_columns(uid, stream._input, other._input)
        if rows.has_event_time != all_rows[0].has_event_time:
            raise GraphError(
                f"operator {uid!r}: one of {stream._input.step.uid!r} and {other._input.step.uid!r} has "
                "event time, the other has not: give both sources watermarks, or neither"
            )
    schema = pa.schema(
        [f.with_nullable(any(r.schema.field(f.name).nullable for r in all_rows)) for f in stream.schema]
    )
    is_same = all(r.record_type is all_rows[0].record_type for r in all_rows)
    first = all_rows[0]
    event_time = first.event_time if all(r.event_time == first.event_time for r in all_rows) else None
    rows = Rows(schema, first.record_type if is_same else None, first.has_event_time, event_time)
    inputs = (stream._input, *(other._input for other in others))
    return stream._job.add(Step(uid, "union", Merge(), inputs, {MAIN: rows}, stream._input.step.anchor))
