"""Finds out what has to be there of a step's rows: columns that somebody reads, where each row came from.

Pure. Both are asked from the ends of a program backwards: the source decodes no other columns, and the
exchange carries no others.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from onceflow.runtime.graph.steps import (
    Call,
    Express,
    Keyed,
    LoopHead,
    Merge,
    Read,
    Route,
    Step,
    TwoInputs,
)
from onceflow.runtime.operators import expressions
from onceflow.runtime.operators.operator import MAIN

Consumers = Mapping[str, Sequence[tuple[Step, str]]]
"""Who reads a step's rows, and on which tag, by the step's uid."""


def find_needed_columns(steps: Sequence[Step], consumers: Consumers) -> dict[str, set[str]]:
    """The columns of each step's main output that somebody reads, by uid."""
    needed: dict[str, set[str]] = {s.uid: set() for s in steps}
    for step in reversed(steps):
        for number, source in enumerate(step.inputs):
            if source.tag == MAIN:
                given = set(source.rows.schema.names)
                needed[source.step.uid] |= read_columns(step, number, needed[step.uid], given, consumers)
    return needed


def read_columns(
    step: Step, number: int, wanted: set[str], given: set[str], consumers: Consumers
) -> set[str]:
    """The columns that a step needs of its input of this number, which gives so many, if `wanted` are those
    of its main output that are read."""
    match step.work:
        case Express(one):
            return expressions.needed_columns([one], wanted)
        case Call(reads=reads, passes=passes):
            return set(reads) | (wanted & given if passes else set())
        case Keyed(keys=keys, reads=reads, row_tags=row_tags):
            whole_rows = any(tag in row_tags for _, tag in consumers[step.uid])
            return given if whole_rows else set(keys) | reads
        case TwoInputs(passes=passes):
            side = step.work.sides[number]
            if any(tag == side.row_tag for _, tag in consumers[step.uid]):
                return given
            passed = {passes[name] for name in wanted if name in passes}
            return {*side.keys, *side.reads, *(name for of, name in passed if of == number)}
        case Merge():
            return wanted
        case Route(keys=keys):
            return wanted | set(keys)
        case _:
            return given


def has_origin(step: Step, wanted: Mapping[str, bool], has: Mapping[str, bool]) -> bool:
    """Whether a step's rows say where they came from. `has`: of the steps before it."""
    if isinstance(step.work, Read):
        return wanted[step.uid]
    is_new = isinstance(step.work, Call) and (step.work.answers_later or step.work.makes_rows)
    return not (is_new or isinstance(step.work, Keyed | TwoInputs | LoopHead)) and all(
        source.tag == MAIN and has[source.step.uid] for source in step.inputs
    )


def find_origin(steps: Sequence[Step]) -> dict[str, bool]:
    """Whether a per-record function gets a step's rows (to be named if it raises), by the step's uid."""
    wants = {s.uid: False for s in steps}
    for step in reversed(steps):
        is_stateless = isinstance(step.work, Express | Call | Merge | Route)
        is_function = isinstance(step.work, Call | Keyed | TwoInputs) and step.work.is_per_record
        if is_function or (is_stateless and wants[step.uid]):
            for source in step.inputs:
                wants[source.step.uid] |= source.tag == MAIN
    return wants
