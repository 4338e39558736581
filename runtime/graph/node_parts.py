"""Small parts of which the compiler makes nodes."""

from __future__ import annotations

from functools import partial

import pyarrow as pa

from onceflow.runtime.graph.steps import (
    Built,
    Keyed,
    LoopTail,
    Step,
    TwoInputs,
    Work,
)
from onceflow.runtime.operators import expressions
from onceflow.runtime.operators.describe import with_key_expressions
from onceflow.runtime.operators.iteration.head import IterationHead
from onceflow.runtime.operators.iteration.tail import IterationTail, in_flight_description
from onceflow.runtime.operators.operator import Operator
from onceflow.runtime.operators.stateless import Stateless, pass_on
from onceflow.runtime.state.description import StateDescription


def only(schema: pa.Schema, names: set[str]) -> pa.Schema:
    """These columns in the schema's order; one at least, since rows without columns can't be counted."""
    return pa.schema([f for f in schema if f.name in names] or [schema.field(0)])


def described(work: Work, state: StateDescription | None) -> StateDescription | None:
    """The state of a step with what key_by computes its keys from, which only the step knows."""
    if state is None or not isinstance(work, Keyed | TwoInputs):
        return state
    if isinstance(work, Keyed):
        return with_key_expressions(state, work.key_expressions)
    return with_key_expressions(state, work.left.key_expressions, work.right.key_expressions)


def expressions_operator(steps: tuple[expressions.Step, ...], schema: pa.Schema) -> Operator:
    return Stateless(expressions.Expressions(steps, schema))


def identity() -> Operator:
    return Stateless(pass_on)


def loop_end(step: Step) -> Built:
    """The operator at the head or at the tail of a loop."""
    if isinstance(step.work, LoopTail):
        loop, schema = step.work.loop, step.work.schema
        return Built(partial(IterationTail, loop, schema), schema, in_flight_description(schema))
    return Built(partial(IterationHead, step.uid), step.rows.schema)
