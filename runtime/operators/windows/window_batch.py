"""A batch on its way into a window's aggregates: their arguments, computed once."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import polars as pl
import pyarrow as pa

from onceflow.runtime.errors import UserFunctionError
from onceflow.runtime.operators.aggregation.accumulator import Arrivals, valid_arrivals
from onceflow.runtime.operators.aggregation.aggregates import BuiltinAggregate
from onceflow.runtime.operators.aggregation.typed_aggregates import TypedAggregate
from onceflow.runtime.records import Indices, Records
from onceflow.runtime.types.records_of_columns import RecordReader
from onceflow.runtime.types.user_functions import read_records

Argument = str | int | None
"""What an aggregate takes: a column by name, an expression by number, or (None) just that there are rows."""
_WHOLE_ROWS = -1
"""The number of the argument that is the rows, as structs."""


class Arguments:
    """The polars expressions among the arguments, evaluated together once per batch."""

    def __init__(self, uid: str) -> None:
        self._uid = uid
        self._expressions: list[pl.Expr] = []
        self._types: list[pa.DataType] = []
        self._reads: list[str] = []

    def add(self, typed: TypedAggregate) -> Argument:
        """Add an aggregate; returns the name or number by which `Batch.arrivals` knows its argument."""
        assert isinstance(typed.aggregate, BuiltinAggregate)
        argument = typed.aggregate.argument
        if argument is None and typed.argument is not None:
            return _WHOLE_ROWS
        if not isinstance(argument, pl.Expr):
            return argument
        assert typed.argument is not None
        self._expressions.append(argument)
        self._types.append(typed.argument.type)
        self._reads = list(dict.fromkeys([*self._reads, *argument.meta.root_names()]))
        return len(self._expressions) - 1

    def compute(self, batch: pa.RecordBatch) -> list[pa.Array]:
        """The values of the expressions, by number."""
        if not self._expressions:
            return []
        frame = pl.from_arrow(batch.select(self._reads))
        assert isinstance(frame, pl.DataFrame)
        try:
            columns = frame.select(e.alias(str(i)) for i, e in enumerate(self._expressions))
        except pl.exceptions.PolarsError as error:
            shown = ", ".join(str(e) for e in self._expressions)
            raise UserFunctionError(f"operator {self._uid!r}: {shown} failed: {error}") from error
        return [
            column.to_arrow().cast(arrow)
            for column, arrow in zip(columns.iter_columns(), self._types, strict=True)
        ]


class Batch:
    """A batch on its way into a window: arguments and typed records are made once, when first asked for.

    Each row of the table that is new with it has a record in it.
    """

    def __init__(
        self, uid: str, records: Records, rows: Indices, computed: Sequence[pa.Array], reader: RecordReader
    ) -> None:
        self._uid = uid
        self.records = records
        self.rows = rows
        self._computed = computed
        self._reader = reader
        self._typed: list[Any] | None = None
        self._arrivals: dict[Argument, Arrivals] = {}

    def arrivals(self, argument: Argument) -> Arrivals:
        """The records whose argument is not null."""
        if argument not in self._arrivals:
            assert self.records.event_time is not None
            values = self._values(argument)
            self._arrivals[argument] = valid_arrivals(
                self.rows, values, self.records.event_time, all_new=True
            )
        return self._arrivals[argument]

    def typed(self) -> list[Any]:
        """The rows as the user's records."""
        if self._typed is None:
            self._typed = read_records(self._uid, self._reader, self.records)
        return self._typed

    def _values(self, argument: Argument) -> pa.Array | None:
        if argument == _WHOLE_ROWS:
            return self.records.batch.to_struct_array()
        if isinstance(argument, int):
            return self._computed[argument]
        return None if argument is None else self.records.batch.column(argument)
