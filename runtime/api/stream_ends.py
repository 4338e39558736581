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


class StreamEnd:
    """What a call returns that writes a stream's rows: nothing can follow it. The stream itself may still go
    on elsewhere, in another statement."""

    def __init__(self, call: str) -> None:
        """`call`: the method that was called, such as "print"."""
        self._call = call

    if not TYPE_CHECKING:

        def __getattr__(self, name: str) -> Any:
            raise AttributeError(
                f"a StreamEnd has no {name!r}: {self._call}(...) writes the rows and gives no stream to go "
                "on with. Name the stream, and write two statements: "
                f"stream.{self._call}(...), and stream.{name}(...)",
                name=name,
                obj=self,
            )

    def __repr__(self) -> str:
        return f"the rows go to {self._call}(...); write job.run() to run the job"


def write(stream: Stream[Any], sink: Sink, uid: str, name: str) -> StreamEnd:
    """Add the step that writes the rows; its name begins with the method that was called. Raises what the
    sink says against their columns."""
    if not stream.schema.names:
        raise GraphError(f"sink {uid!r}: the stream has no columns")
    sink.check(stream.schema, uid)
    rows = (
        _partitioned(stream, tuple(sink.partition_columns), uid)
        if isinstance(sink, PartitionedSink)
        else stream
    )
    stream._job.add(Step(uid, name, Write(sink), (rows._input,)))
    return StreamEnd(name.split()[0])


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
