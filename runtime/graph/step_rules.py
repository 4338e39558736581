"""What a program's steps have to keep to, beyond what each of them checks when it is written. Pure."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from onceflow.runtime.contracts import ChangelogSink, ChangelogSource, PartialChangelogSource
from onceflow.runtime.errors import GraphError
from onceflow.runtime.graph.steps import (
    Call,
    Express,
    Keyed,
    LoopTail,
    Merge,
    Read,
    Route,
    Step,
    TwoInputs,
    Work,
    Write,
)
from onceflow.runtime.operators.failed_records import FAILED
from onceflow.runtime.operators.operator import MAIN


def refuse_loose_ends(job: str, steps: Sequence[Step]) -> None:
    """Raises GraphError if there is nothing to run, or if a step's rows go nowhere."""
    if not steps:
        raise GraphError(f"job {job!r} has no source: begin with job.source(...)")
    used = {i.step.uid for s in steps for i in s.inputs}
    ends = {(i.step.uid, i.tag) for s in steps for i in s.inputs}
    for step in steps:
        if FAILED in step.outputs and (step.uid, FAILED) not in ends:
            raise GraphError(
                f"the failed records of {step.uid!r} ({step.name}) go nowhere: take them by "
                '.side_output(tag) of what the step returned, or write on_error="drop"'
            )
        if step.uid not in used and not isinstance(step.work, Write | LoopTail):
            raise GraphError(
                f"the rows of {step.uid!r} ({step.name}) go nowhere: end the stream with sink_to(...); "
                "every step returns a new stream and leaves the old one as it was"
            )


def unbounded_source(step: Step) -> str | None:
    """The uid of a source without an end whose rows come to this step; None: there is none."""
    if isinstance(step.work, Read):
        return None if step.work.source.is_bounded else step.uid
    return next((uid for i in step.inputs if (uid := unbounded_source(i.step)) is not None), None)


def is_partitioned(step: Step, columns: Collection[str]) -> bool:
    """Whether rows of this step with the same values in these columns are in one subtask already: they have
    the operator's own key among them. What a function of the user's returns may have other values there."""
    work = step.work
    return isinstance(work, Keyed) and not work.is_per_record and set(work.keys) <= set(columns)


def find_changelogs(steps: Sequence[Step]) -> frozenset[str]:
    """The uids of the steps whose rows may be updates and deletes.

    Raises GraphError if one of the others gets such rows: it would count a deletion as one more row.
    """
    changelogs: dict[str, str] = {}
    partial: dict[str, str] = {}
    for step in steps:
        if isinstance(step.work, Read):
            source = step.work.source
            if isinstance(source, ChangelogSource) and source.has_kinds:
                changelogs[step.uid] = step.uid
                if isinstance(source, PartialChangelogSource) and source.lacks_before:
                    partial[step.uid] = step.uid
            continue
        if isinstance(step.work, Keyed | TwoInputs) and step.work.has_kinds:
            changelogs[step.uid] = step.uid
        came_from = [
            changelogs[i.step.uid] for i in step.inputs if i.tag == MAIN and i.step.uid in changelogs
        ]
        if came_from:
            made_by = next(s.work for s in steps if s.uid == came_from[0])
            _refuse_ignorant(step, came_from[0], _without(made_by))
            changelogs[step.uid] = came_from[0]
        incomplete = [partial[i.step.uid] for i in step.inputs if i.tag == MAIN and i.step.uid in partial]
        if incomplete:
            _refuse_who_needs_rows_as_they_were(step, incomplete[0])
            partial[step.uid] = incomplete[0]
    return frozenset(changelogs)


def _refuse_who_needs_rows_as_they_were(step: Step, source: str) -> None:
    if isinstance(step.work, TwoInputs):
        raise GraphError(
            f"{step.uid!r} ({step.name}) would keep rows that {source!r} has changed, since its updates come "
            'without the row as it was: read them with before="required"'
        )


def _without(made_by: Work) -> str:
    """What to do for rows without updates and deletes."""
    match made_by:
        case Keyed():
            return 'let the window send rows only: results="accumulating" in its allowed_lateness or trigger'
        case TwoInputs():
            return 'let the join send pairs only: how="inner"'
        case _:
            return "read the source without them"


def _refuse_ignorant(step: Step, source: str, without: str) -> None:
    changes = f"the updates and deletes of {source!r}"
    match step.work:
        case (
            Express()
            | Merge()
            | Call(is_per_record=True, sets_aside=False, answers_later=False, splits=False, makes_rows=False)
        ):
            return
        case TwoInputs(takes_kinds=True):
            return
        case Write(sink) if isinstance(sink, ChangelogSink) and sink.takes_kinds:
            return
        case Write():
            raise GraphError(
                f"sink {step.uid!r} would write {changes} as if they were new rows: write them to a sink "
                f"that takes changes, or {without}"
            )
        case Route(keys=()):
            raise GraphError(
                f"{step.uid!r} ({step.name}) would bring {changes} out of their order, so that a delete may "
                "come before its insert: leave it out"
            )
        case Route():
            return
        case Call(splits=True):
            raise GraphError(
                f"{step.uid!r} ({step.name}) would send {changes} to different streams, so that what takes a "
                f"row back may not be where the row is: filter a stream for each condition, or {without}"
            )
        case Call(answers_later=True):
            raise GraphError(
                f"{step.uid!r} ({step.name}) asks for each of {changes} at another time, so that what takes "
                f"a row back may not be what it was: ask before rows become changes, or {without}"
            )
        case Call(is_per_record=True, makes_rows=False):
            raise GraphError(
                f"{step.uid!r} ({step.name}) with on_error= would leave out one of {changes} and not the "
                "others of its row: a changed result; let it fail"
            )
        case _:
            raise GraphError(
                f"{step.uid!r} ({step.name}) would take {changes} for new rows: only map, flat_map, filter, "
                f"select, with_columns, union and join pass them on, to a sink that takes them; or {without}"
            )
