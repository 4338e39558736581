"""Where a stream ends: its rows into a sink."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from onceflow.runtime.contracts import PartitionedSink, Sink
from onceflow.runtime.errors import GraphError
from onceflow.runtime.graph.keys import check_key
from onceflow.runtime.graph.step_rules import is_partitioned, unbounded_source
from onceflow.runtime.graph.steps import Route, Step, Write

if TYPE_CHECKING:
    from onceflow.runtime.api.stream import Stream


def write(stream: Stream[Any], sink: Sink, uid: str, name: str) -> None:
    """Add the step that writes the rows. Raises what the sink says against their columns."""
    if not stream.schema.names:
        raise GraphError(f"sink {uid!r}: the stream has no columns")
    sink.check(stream.schema, uid)
    rows = (
        _partitioned(stream, tuple(sink.partition_columns), uid)
        if isinstance(sink, PartitionedSink)
        else stream
    )
    stream._job.add(Step(uid, name, Write(sink), (rows._input,)))


def refuse_endless(step: Step, uid: str) -> None:
    """Raises GraphError if a source without an end feeds this step, whose rows are collected."""
    if endless := unbounded_source(step):
        raise GraphError(
            f"sink {uid!r}: collect() has the rows when the input has ended, and source {endless!r} "
            'has no end: bound it (until="latest", count=), or take the rows as they come, with print(), '
            "foreach(...) or to_files(...)"
        )


def _partitioned(stream: Stream[Any], columns: tuple[str, ...], uid: str) -> Stream[Any]:
    """The rows, those with the same values in these columns in one subtask."""
    if not columns or is_partitioned(stream._input.step, columns):
        return stream
    for name in columns:
        check_key(stream.schema.field(name), uid)
    return stream._add(f"{uid}.by-key", f"by {', '.join(columns)}", Route(columns), stream._input.rows)
