"""The two ends of a loop, as steps of the program: `stream.iterate(step)`."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from onceflow.runtime.errors import GraphError
from onceflow.runtime.graph.columns import check_same_columns
from onceflow.runtime.graph.steps import Input, LoopHead, LoopTail, Rows, Step
from onceflow.runtime.operators.operator import MAIN

if TYPE_CHECKING:
    from onceflow.runtime.api.graph_builder import JobGraphBuilder
    from onceflow.runtime.api.stream import Stream

Body = Callable[["Stream[Any]"], "tuple[Stream[Any], Stream[Any]]"]
"""Gets the stream of the rows in the loop; returns those that go round again, and those that leave."""


def add_loop(job: JobGraphBuilder, source: Input, uid: str, body: Body) -> Stream[Any]:
    """The stream of the rows that leave. Raises GraphError if the body does not return two streams of this
    job, the first with the columns of the loop and coming from it."""
    rows = Rows(source.rows.schema, source.rows.record_type, has_event_time=False)
    loop = job.add(Step(uid, "iterate", LoopHead(), (source,), {MAIN: rows}, uid))
    made = body(loop)
    if not isinstance(made, tuple) or len(made) != 2 or not all(isinstance(s, type(loop)) for s in made):
        raise GraphError(
            f"loop {uid!r}: its function must return two streams, those of the rows that go round again and "
            f"of the rows that leave, as in `return again, done`; it returned {type(made).__name__}"
        )
    again, leaves = made
    for stream in (again, leaves):
        if stream._job is not job:
            raise GraphError(f"loop {uid!r}: {stream._input.step.uid!r} belongs to another job")
    head = loop._input.step
    if not _comes_from(again._input.step, head):
        raise GraphError(
            f"loop {uid!r}: {again._input.step.uid!r}, whose rows are to go round, does not come from the "
            "loop: make it from the stream that the function gets"
        )
    check_same_columns(uid, loop._input, again._input)
    for ours, theirs in zip(rows.schema, again._input.rows.schema, strict=True):
        if theirs.nullable and not ours.nullable:
            raise GraphError(
                f"loop {uid!r}: column {ours.name!r} may be null in what goes round again and not in what "
                f"comes in: declare it as `{ours.name}: ... | None` in the type of the input"
            )
    _refuse_inner_loops(again._input.step, head, uid)
    tail_uid = job.new_uid(None, "back", uid)
    job.add(Step(tail_uid, f"back to {uid}", LoopTail(uid, rows.schema), (again._input,), {}, uid))
    return leaves


def _comes_from(step: Step, head: Step) -> bool:
    return step is head or any(_comes_from(i.step, head) for i in step.inputs)


def _refuse_inner_loops(step: Step, head: Step, uid: str) -> None:
    """A token of the outer loop would have to find out whether an inner one is empty."""
    if step is head:
        return
    if isinstance(step.work, LoopHead) and _comes_from(step, head):
        raise GraphError(f"loop {uid!r}: there is a loop in it, {step.uid!r}: make one loop of them")
    for source in step.inputs:
        _refuse_inner_loops(source.step, head, uid)
