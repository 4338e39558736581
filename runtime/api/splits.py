"""Side outputs; and Stream.split: one stream becomes several, each row in one of them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

import polars as pl
import pyarrow as pa

from onceflow.runtime.errors import GraphError
from onceflow.runtime.graph.columns import ColumnCheck
from onceflow.runtime.graph.functions import record_reader
from onceflow.runtime.graph.steps import Built, Call, Input, Rows, Step
from onceflow.runtime.nearest import nearest
from onceflow.runtime.operators.function_state import refuse_function_state
from onceflow.runtime.operators.operator import MAIN
from onceflow.runtime.operators.splitting import Choice, FirstThatHolds, NamedByFunction, SplitRows
from onceflow.runtime.types.user_functions import function_name

if TYPE_CHECKING:
    from onceflow.runtime.api.stream import Stream


SideOutput = Input | Callable[[], Input]
"""Where its rows are, or what adds the step whose rows they are when the program asks for them."""
SideOutputs = Mapping[str, SideOutput]
"""Side outputs by the names that the program knows."""


def side_of(tag: object, sides: SideOutputs, uid: str) -> Input:
    """The side output of this operator for a tag of the user's. Raises GraphError if there is none."""
    name = str(getattr(tag, "name", tag))
    if name not in sides:
        known = f"there are {', '.join(sides)}" if sides else "there is none"
        raise GraphError(
            f"operator {uid!r} has no side output {name!r}{nearest(name, sides)}; "
            f"{known}. Call side_output directly on what the operator returned"
        )
    side = sides[name]
    return side if isinstance(side, Input) else side()


def split(
    stream: Stream[Any], by: object, into: Sequence[str] | None, default: str | None, uid: str | None
) -> dict[str, Stream[Any]]:
    """See Stream.split."""
    rows = stream._input.rows
    if isinstance(by, Mapping):
        uid = stream._uid(uid, "split")
        names = _names(by, "its streams have no names: write {name: condition, ...}", uid)
        if into is not None:
            raise GraphError(f"operator {uid!r}: into= is for a function: leave it out")
        _check_conditions(by, rows.schema, uid)
        make: Callable[[], Choice] = partial(FirstThatHolds, list(by.values()))
    elif callable(by):
        refuse_function_state(by, uid or "split", "split")
        uid = stream._uid(uid, "split", by)
        names = _names(into, f'say what {function_name(by)} returns: into=["large", "small"]', uid)
        reader = record_reader(by, uid, rows.schema, rows.record_type)
        make = partial(NamedByFunction, uid, by, reader, names)
    else:
        uid = stream._uid(uid, "split")
        raise GraphError(
            f"operator {uid!r}: split({by!r}): give conditions by name, or a function of a record that names "
            "its stream"
        )
    if default is not None:
        _names([*names, default], "", uid)
    return _split(stream, make, names, default, uid)


def _split(
    stream: Stream[Any], make: Callable[[], Choice], names: list[str], default: str | None, uid: str
) -> dict[str, Stream[Any]]:
    rows, anchor = stream._input.rows, stream._input.step.anchor
    every = [*names, *([] if default is None else [default])]
    tags = {name: f"split into {name}" for name in every}
    # A list with an end for the rows that meet no condition: the default's tag, or None.
    numbered = [*(tags[name] for name in names), None if default is None else tags[default]]
    build = partial(_built, make, numbered)
    work = Call(build, frozenset(rows.schema.names), is_per_record=True, splits=True)
    outputs: dict[str, Rows] = {MAIN: rows, **{tag: rows for tag in tags.values()}}
    others = "others are dropped" if default is None else f"others to {default}"
    step = Step(uid, f"split into {', '.join(names)}; {others}", work, (stream._input,), outputs, anchor)
    made = stream._job.add(step, tags)
    return {name: made.side_output(name) for name in every}


def _built(make: Callable[[], Choice], tags: list[str | None], schema: pa.Schema) -> Built:
    return Built(lambda: SplitRows(make(), tags), schema)


def _check_conditions(by: Mapping[str, pl.Expr], schema: pa.Schema, uid: str) -> None:
    check = ColumnCheck(uid, schema)
    for name, condition in by.items():
        if not isinstance(condition, pl.Expr):
            raise GraphError(
                f"operator {uid!r}: split({name!r}: {condition!r}): a condition is a polars expression: "
                'write col("amount") > 100'
            )
        check.predicate(condition)


def _names(names: object, missing: str, uid: str) -> list[str]:
    """Different names, at least one. Raises GraphError, with `missing` if there is none."""
    found = list(names) if isinstance(names, Sequence | Mapping) and not isinstance(names, str) else []
    if not found:
        raise GraphError(f"operator {uid!r}: split: {missing}")
    for name in found:
        if not (isinstance(name, str) and name):
            raise GraphError(f"operator {uid!r}: split: {name!r} is not the name of a stream: give a string")
    if doubled := [name for name in found if found.count(name) > 1]:
        raise GraphError(f"operator {uid!r}: split: two streams are called {doubled[0]!r}: rename one")
    return found
