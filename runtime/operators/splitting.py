"""SplitRows: each row to one of several side outputs, by expressions or by a function of the user's."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Protocol

import numpy as np
import polars as pl

from onceflow.runtime.errors import UserFunctionError
from onceflow.runtime.functions.lives import own_instance
from onceflow.runtime.nearest import nearest
from onceflow.runtime.operators.expressions import frame_of
from onceflow.runtime.operators.operator import FrozenState, OperatorContext, Output, RestoredState
from onceflow.runtime.operators.stateless import call_each
from onceflow.runtime.records import Int64s, Records
from onceflow.runtime.types.records_of_columns import RecordReader
from onceflow.runtime.types.user_functions import function_name, read_records, shown_record


class Choice(Protocol):
    """Says to which output each row goes, by its number; the number behind the last one: to none of them."""

    def open(self, context: OperatorContext) -> None: ...

    def of(self, records: Records) -> Int64s: ...


class FirstThatHolds:
    """The first of several expressions that is true; null is not."""

    def __init__(self, predicates: Sequence[pl.Expr]) -> None:
        """Gets the outputs, at least one."""
        self._reads = {name for predicate in predicates for name in predicate.meta.root_names()}
        chosen: Any = pl
        for number, predicate in enumerate(predicates):
            chosen = chosen.when(predicate).then(number)
        self._number = chosen.otherwise(len(predicates)).cast(pl.Int64).alias("number")

    def open(self, context: OperatorContext) -> None:
        pass

    def of(self, records: Records) -> Int64s:
        numbers = frame_of(records.batch, self._reads).select(self._number)["number"].to_numpy()
        return np.broadcast_to(numbers, len(records))  # of nothing but literals there is one


class NamedByFunction:
    """The output that a function of each record names; None: none of them."""

    def __init__(
        self, uid: str, fn: Callable[[Any], Any], reader: RecordReader, names: Sequence[str]
    ) -> None:
        self._uid, self._fn, self._reader = uid, own_instance(fn, uid), reader
        self._number = {None: len(names)} | {name: number for number, name in enumerate(names)}

    def open(self, context: OperatorContext) -> None:
        context.open_function(self._fn)

    def of(self, records: Records) -> Int64s:
        names = call_each(self._uid, self._fn, read_records(self._uid, self._reader, records), records)
        number = self._number
        try:
            return np.fromiter((number[name] for name in names), np.int64, len(names))
        except (KeyError, TypeError):
            row = next(n for n, name in enumerate(names) if not self._is_known(name))
        known = [name for name in number if name is not None]
        near = nearest(names[row], known) if isinstance(names[row], str) else ""
        shown = shown_record(records, row, records.batch.slice(row, 1).to_pylist()[0])
        raise UserFunctionError(
            f"operator {self._uid!r}: {function_name(self._fn)} returned {names[row]!r} for {shown}{near}: "
            f"return {', '.join(map(repr, known))} or None"
        )

    def _is_known(self, name: object) -> bool:
        return name is None or (isinstance(name, str) and name in self._number)


class SplitRows:
    """A stateless operator that sends each row to one output at most, whole and as it came."""

    def __init__(self, choice: Choice, tags: Sequence[str | None]) -> None:
        """`tags`: of the outputs, by number; the last one is for rows that go to none of the others, None:
        they are dropped."""
        self._choice = choice
        self._tags = tags

    def open(self, context: OperatorContext, out: Output) -> None:
        self._out = out
        self._choice.open(context)

    def restore(self, states: Sequence[RestoredState]) -> None:
        assert not states, "it has no state"

    def on_records(self, records: Records) -> None:
        numbers = self._choice.of(records)
        for number, tag in enumerate(self._tags):
            chosen = numbers == number
            if tag is not None and chosen.any():
                self._out.emit(records if chosen.all() else records.filter(chosen), tag)

    def on_watermark(self, time_ms: int) -> None:
        pass

    def snapshot(self) -> FrozenState | None:
        return None

    def close(self) -> None:
        pass
