"""What windows compute: AggregateValues (built-in and user aggregates) and ReduceValues (the user's fn)."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, Protocol

import polars as pl
import pyarrow as pa

from onceflow.runtime.errors import UserFunctionError
from onceflow.runtime.operators.accumulators import Rows, SumOverflow, accumulator, valid_rows
from onceflow.runtime.operators.aggregates import (
    AggregateFunction,
    BuiltinAggregate,
    TypedAggregate,
    python_type,
)
from onceflow.runtime.operators.user_functions import user_function_error
from onceflow.runtime.operators.user_state import (
    EMPTY,
    RecordRows,
    UserColumn,
    declared_type,
    typed_array,
)
from onceflow.runtime.records import Indices, Int64s, Records
from onceflow.runtime.state.values import Frozen
from onceflow.runtime.types import RecordReader, record_class

Argument = str | int | None
"""What an aggregate takes: a column by name, an expression by number, or (None) just rows."""


class Arguments:
    """The polars expressions among the arguments, evaluated together once per batch."""

    def __init__(self, uid: str) -> None:
        self._uid = uid
        self._expressions: list[pl.Expr] = []
        self._types: list[pa.DataType] = []
        self._reads: list[str] = []

    def add(self, typed: TypedAggregate) -> Argument:
        """By which name or number `Batch.rows` knows this aggregate's argument."""
        assert isinstance(typed.aggregate, BuiltinAggregate)
        argument = typed.aggregate.argument
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
    """A batch on its way into a window: arguments and typed records are made once, when first asked for."""

    def __init__(
        self, records: Records, slots: Indices, computed: Sequence[pa.Array], reader: RecordReader
    ) -> None:
        self.records = records
        self.slots = slots
        self._computed = computed
        self._reader = reader
        self._typed: list[Any] | None = None
        self._rows: dict[Argument, Rows] = {}

    def rows(self, argument: Argument) -> Rows:
        """The rows whose argument is not null."""
        if argument not in self._rows:
            assert self.records.event_time is not None
            values = self._values(argument)
            self._rows[argument] = valid_rows(self.slots, values, self.records.event_time)
        return self._rows[argument]

    def typed(self) -> list[Any]:
        """The rows as the user's records."""
        if self._typed is None:
            self._typed = self._reader.read(self.records.batch)
        return self._typed

    def _values(self, argument: Argument) -> pa.Array | None:
        if isinstance(argument, int):
            return self._computed[argument]
        return None if argument is None else self.records.batch.column(argument)


class AggregateColumn(Protocol):
    """One aggregate of all slots."""

    def grow(self, size: int) -> None: ...

    def update(self, batch: Batch) -> None: ...

    def results(self, slots: Indices) -> pa.Array: ...

    def keep(self, slots: Indices) -> None: ...

    def freeze(self, live: Indices) -> Frozen: ...

    def load(self, slots: Indices, state: pa.Array) -> None: ...


class BuiltinColumn:
    """A built-in aggregate and the argument it takes."""

    def __init__(self, typed: TypedAggregate, argument: Argument) -> None:
        assert isinstance(typed.aggregate, BuiltinAggregate)
        self._argument = argument
        arrow = None if typed.argument is None else typed.argument.type
        self._accumulator = accumulator(typed.aggregate.kind, arrow)
        self.grow = self._accumulator.grow
        self.results = self._accumulator.results
        self.keep = self._accumulator.keep
        self.load = self._accumulator.load

    def update(self, batch: Batch) -> None:
        self._accumulator.update(batch.rows(self._argument))

    def freeze(self, live: Indices) -> Frozen:
        return self._accumulator.freeze()


class UserAggregate:
    """The user's AggregateFunction: called per record, its accumulators by slot."""

    def __init__(self, uid: str, typed: TypedAggregate) -> None:
        assert isinstance(typed.aggregate, AggregateFunction)
        self._uid = uid
        self._function: AggregateFunction[Any, Any, Any] = typed.aggregate
        self._result = typed.result
        what = f"operator {uid!r}: {type(self._function).__name__}"
        self._what = f"{what}.get_result"
        field = pa.field("accumulator", typed.state)
        declared = python_type(self._function, "create_accumulator")
        self._column = UserColumn(declared_type(declared, field, f"{what}: its accumulator"))
        self.grow = self._column.grow
        self.keep = self._column.keep
        self.freeze = self._column.freeze
        self.load = self._column.load

    def update(self, batch: Batch) -> None:
        add, create = self._function.add, self._function.create_accumulator
        mine, typed, row = self._column.values, batch.typed(), 0
        try:
            for row, slot in enumerate(batch.slots.tolist()):
                current = mine[slot]
                mine[slot] = add(typed[row], create() if current is EMPTY else current)
        except Exception as error:
            raise user_function_error(self._uid, add, error, batch.records, row, typed[row]) from error

    def results(self, slots: Indices) -> pa.Array:
        get_result, mine, results = self._function.get_result, self._column.values, []
        current: Any = None
        try:
            for slot in slots.tolist():
                current = mine[slot]
                results.append(get_result(current))
        except Exception as error:
            raise user_function_error(self._uid, get_result, error, None, 0, current) from error
        return typed_array(results, self._result, self._what)


class AggregateValues:
    """WindowValues of `aggregate(...)`: one column per aggregate, in the order of the output."""

    def __init__(
        self,
        uid: str,
        aggregates: Sequence[TypedAggregate],
        schema: pa.Schema,
        record_type: type | None,
        output: pa.Schema,
    ) -> None:
        self._output = output
        self._arguments = Arguments(uid)
        self._reader = RecordReader(record_type or record_class(schema))
        self._columns: dict[str, AggregateColumn] = {
            typed.name: UserAggregate(uid, typed)
            if typed.state is not None
            else BuiltinColumn(typed, self._arguments.add(typed))
            for typed in aggregates
        }

    def update(self, records: Records, slots: Indices, size: int) -> None:
        batch = Batch(records, slots, self._arguments.compute(records.batch), self._reader)
        for name, column in self._columns.items():
            column.grow(size)
            try:
                column.update(batch)
            except SumOverflow as error:
                error.column = name
                raise

    def results(self, keys: pa.RecordBatch, start: Int64s, end: Int64s, slots: Indices) -> pa.RecordBatch:
        results = [column.results(slots) for column in self._columns.values()]
        columns = [*keys.columns, pa.array(start), pa.array(end), *results]
        return pa.RecordBatch.from_arrays(columns, schema=self._output)

    def keep(self, slots: Indices) -> None:
        for column in self._columns.values():
            column.keep(slots)

    def freeze(self, live: Indices) -> Callable[[Indices], pa.StructArray]:
        frozen = {name: column.freeze(live) for name, column in self._columns.items()}
        return lambda slots: pa.StructArray.from_arrays([f(slots) for f in frozen.values()], [*frozen])

    def load(self, slots: Indices, size: int, state: pa.StructArray) -> None:
        for name, column in self._columns.items():
            column.grow(size)
            column.load(slots, state.field(name))


class ReduceValues:
    """WindowValues of `reduce(fn)`: the record so far of each slot."""

    def __init__(self, uid: str, fn: Callable[[Any, Any], Any], rows: RecordRows) -> None:
        self._uid = uid
        self._fn = fn
        self._rows = rows
        self._column = UserColumn(rows.as_user_type())
        self.keep = self._column.keep

    def update(self, records: Records, slots: Indices, size: int) -> None:
        self._column.grow(size)
        typed = self._rows.read(records.batch)
        for _ in reduce_each(self._uid, self._fn, self._column.values, slots, typed, records):
            pass

    def results(self, keys: pa.RecordBatch, start: Int64s, end: Int64s, slots: Indices) -> pa.RecordBatch:
        mine = self._column.values
        return self._rows.write([mine[slot] for slot in slots.tolist()])

    def freeze(self, live: Indices) -> Callable[[Indices], pa.StructArray]:
        return self._column.freeze(live)

    def load(self, slots: Indices, size: int, state: pa.StructArray) -> None:
        self._column.grow(size)
        self._column.load(slots, state)


def reduce_each(
    uid: str,
    fn: Callable[[Any, Any], Any],
    values: list[Any],
    slots: Indices,
    typed: list[Any],
    records: Records,
) -> Iterator[Any]:
    """Set each row's slot to fn(value so far, record), or to the first record; yields each new value,
    which the next call of fn may change if its type allows it."""
    for row, slot in enumerate(slots.tolist()):
        current, record = values[slot], typed[row]
        try:
            values[slot] = value = record if current is EMPTY else fn(current, record)
        except Exception as error:
            raise user_function_error(uid, fn, error, records, row, record) from error
        yield value
