"""AggregateValues: what windows compute by aggregates, built-in ones and the user's."""

from __future__ import annotations

import copy
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, Protocol

import pyarrow as pa

from onceflow.runtime.errors import UsageError
from onceflow.runtime.operators.aggregation.accumulator import SumOverflow
from onceflow.runtime.operators.aggregation.accumulators import accumulator
from onceflow.runtime.operators.aggregation.aggregates import AggregateFunction, BuiltinAggregate
from onceflow.runtime.operators.aggregation.typed_aggregates import TypedAggregate
from onceflow.runtime.operators.user_state import EMPTY, UserColumn, declared_type, object_type, typed_array
from onceflow.runtime.operators.windows.begun import BEGUN_BEFORE, Begun
from onceflow.runtime.operators.windows.window_batch import Argument, Arguments, Batch
from onceflow.runtime.records import Indices, Int64s, Records
from onceflow.runtime.state.table import Frozen, LiveRows
from onceflow.runtime.types.records_of_columns import RecordReader
from onceflow.runtime.types.user_functions import user_function_error


class AggregateColumn(Protocol):
    """One aggregate of all rows."""

    def grow(self, size: int) -> None: ...

    def update(self, batch: Batch) -> None: ...

    def merge(self, into: Indices, rows: Indices) -> None:
        """Take in, for each row of `into`, what is in the other one, in this order."""
        ...

    def merged(self, rows: Indices, groups: Indices, size: int) -> AggregateColumn:
        """A column of `size` rows; each of `rows` is merged into the one that `groups` says, in order."""
        ...

    def results(self, rows: Indices) -> pa.Array: ...

    def clear(self, rows: Indices) -> None: ...

    def keep(self, rows: Indices) -> None: ...

    def freeze(self, live: LiveRows) -> Frozen: ...

    def load(self, rows: Indices, state: pa.Array) -> None: ...


class BuiltinColumn:
    """A built-in aggregate and the argument it takes."""

    def __init__(self, typed: TypedAggregate, argument: Argument) -> None:
        assert isinstance(typed.aggregate, BuiltinAggregate)
        self._typed = typed
        self._argument = argument
        arrow = None if typed.argument is None else typed.argument.type
        self._accumulator = accumulator(typed.aggregate, arrow)
        self.grow = self._accumulator.grow
        self.results = self._accumulator.results
        self.clear = self._accumulator.clear
        self.keep = self._accumulator.keep
        self.load = self._accumulator.load

    def update(self, batch: Batch) -> None:
        self._accumulator.update(batch.arrivals(self._argument))

    def merge(self, into: Indices, rows: Indices) -> None:
        self._accumulator.merge(into, self._accumulator, rows)

    def merged(self, rows: Indices, groups: Indices, size: int) -> BuiltinColumn:
        fresh = BuiltinColumn(self._typed, self._argument)
        fresh.grow(size)
        fresh._accumulator.merge(groups, self._accumulator, rows)
        return fresh

    def freeze(self, live: LiveRows) -> Frozen:
        return self._accumulator.freeze(live)


class UserAggregate:
    """The user's AggregateFunction: called per record, its accumulators by row."""

    def __init__(self, uid: str, typed: TypedAggregate) -> None:
        assert isinstance(typed.aggregate, AggregateFunction)
        self._uid = uid
        self._typed = typed
        self._function: AggregateFunction[Any, Any, Any] = typed.aggregate
        self._result = typed.result
        what = f"operator {uid!r}: {type(self._function).__name__}"
        self._what = f"{what}.get_result"
        assert typed.state is not None
        if typed.objects is not None:
            self._column = UserColumn(object_type(typed.objects, typed.name))
        else:
            field = pa.field("accumulator", typed.state.arrow)
            self._column = UserColumn(declared_type(typed.state, field, f"{what}: its accumulator"))
        self.grow = self._column.grow
        self.clear = self._column.clear
        self.keep = self._column.keep
        self.freeze = self._column.freeze
        self.load = self._column.load

    def update(self, batch: Batch) -> None:
        add, create = self._function.add, self._function.create_accumulator
        mine, typed, n = self._column.values, batch.typed(), 0
        try:
            for n, row in enumerate(batch.rows.tolist()):
                current = mine[row]
                mine[row] = add(typed[n], create() if current is EMPTY else current)
        except Exception as error:
            raise user_function_error(self._uid, add, error, batch.records, n, typed[n]) from error

    def begin(self, rows: Indices) -> None:
        """Give these rows empty accumulators."""
        try:
            for row in rows.tolist():
                self._column.values[row] = self._function.create_accumulator()
        except Exception as error:
            create = self._function.create_accumulator
            raise user_function_error(self._uid, create, error, None, 0, None) from error

    def merge(self, into: Indices, rows: Indices) -> None:
        mine = self._column.values
        self._merge(into, mine, (mine[row] for row in rows.tolist()))

    def merged(self, rows: Indices, groups: Indices, size: int) -> UserAggregate:
        fresh = UserAggregate(self._uid, self._typed)
        fresh.grow(size)
        more = (self._column.values[row] for row in rows.tolist())
        if not self._column.is_immutable:
            more = (copy.deepcopy(accumulator) for accumulator in more)  # other windows need it too
        self._merge(groups, fresh._column.values, more)
        return fresh

    def _merge(self, rows: Indices, into: list[Any], accumulators: Iterable[Any]) -> None:
        merge = self._function.merge
        more: Any = None
        try:
            for row, more in zip(rows.tolist(), accumulators, strict=True):
                if more is not EMPTY:
                    into[row] = more if into[row] is EMPTY else merge(into[row], more)
        except Exception as error:
            raise user_function_error(self._uid, merge, error, None, 0, more) from error

    def results(self, rows: Indices) -> pa.Array:
        get_result, mine, results = self._function.get_result, self._column.values, []
        current: Any = None
        try:
            for row in rows.tolist():
                current = mine[row]
                results.append(get_result(current))
        except Exception as error:
            raise user_function_error(self._uid, get_result, error, None, 0, current) from error
        return typed_array(results, self._result, self._what, self._typed.result_type)


class ResultRows:
    """WindowResults of aggregates."""

    def __init__(self, columns: Mapping[str, AggregateColumn], output: pa.Schema, begun: Begun) -> None:
        """`output` may lack the window's bounds: of windows that have none."""
        self._columns = columns
        self._output = output
        self._begun = begun

    def results(self, keys: pa.RecordBatch, start: Int64s, end: Int64s, rows: Indices) -> pa.RecordBatch:
        if self._begun:
            results = [self._begun.results(name, column, rows) for name, column in self._columns.items()]
        else:
            results = [column.results(rows) for column in self._columns.values()]
        has_bounds = len(self._output) > len(keys.columns) + len(results)
        bounds = [pa.array(start), pa.array(end)] if has_bounds else []
        columns = [*keys.columns, *bounds, *results]
        return pa.RecordBatch.from_arrays(columns, schema=self._output)


class AggregateValues:
    """WindowValues of `aggregate(...)`: one column per aggregate, in the order of the output."""

    def __init__(
        self,
        uid: str,
        aggregates: Sequence[TypedAggregate],
        reader: RecordReader,
        output: pa.Schema,
    ) -> None:
        self._uid = uid
        self.functions = [typed.aggregate for typed in aggregates]
        self._output = output
        self._arguments = Arguments(uid)
        self._reader = reader
        self._columns: dict[str, AggregateColumn] = {
            typed.name: UserAggregate(uid, typed)
            if typed.state is not None
            else BuiltinColumn(typed, self._arguments.add(typed))
            for typed in aggregates
        }
        self.has_numbers_only = all(isinstance(column, BuiltinColumn) for column in self._columns.values())
        self._begun = Begun()
        self._size = 0
        self.results = ResultRows(self._columns, output, self._begun).results

    def merged(self, rows: Indices, groups: Indices, size: int) -> ResultRows:
        """`size` rows; each of `rows` is merged into the one that `groups` says, in their order. Raises
        SumOverflow with the merged row."""
        columns: dict[str, AggregateColumn] = {}
        for name, column in self._columns.items():
            with _overflow_of(name):
                columns[name] = column.merged(rows, groups, size)
        return ResultRows(columns, self._output, self._begun.merged(rows, groups, size))

    def update(self, records: Records, rows: Indices) -> None:
        batch = Batch(self._uid, records, rows, self._arguments.compute(records.batch), self._reader)
        for name, column in self._columns.items():
            with _overflow_of(name):
                column.update(batch)

    def merge(self, into: Indices, rows: Indices) -> None:
        for name, column in self._columns.items():
            with _overflow_of(name):
                column.merge(into, rows)
        self._begun.merge(into, rows)

    def grow(self, size: int) -> None:
        for column in self._columns.values():
            column.grow(size)
        self._begun.grow(size)
        self._size = size

    def clear(self, rows: Indices) -> None:
        for column in self._columns.values():
            column.clear(rows)
        self._begun.clear(rows)

    def keep(self, rows: Indices) -> None:
        for column in self._columns.values():
            column.keep(rows)
        self._begun.keep(rows)
        self._size = len(rows)

    def freeze(self, live: LiveRows) -> Frozen:
        frozen = {name: column.freeze(live) for name, column in self._columns.items()}
        if self._begun:
            frozen[BEGUN_BEFORE] = self._begun.freeze(live)
        return lambda rows: pa.StructArray.from_arrays([f(rows) for f in frozen.values()], [*frozen])

    def load(self, rows: Indices, state: pa.Array) -> None:
        """What is not in the state is new: of these rows it has no result. Raises UsageError if that can't
        be said in the output."""
        there = {field.name for field in state.type}
        for name, column in self._columns.items():
            if name in there:
                column.load(rows, state.field(name))
            elif isinstance(column, UserAggregate):
                column.begin(rows)
        self._begun.load(rows, self._size, self._columns.keys(), state)
        for name in self._begun.aggregates:
            if not self._output.field(name).nullable:
                raise UsageError(
                    f"operator {self._uid!r}: windows are open that have no value for aggregate {name!r}, "
                    "because they began before it was added, and its column can't be null any more: write it "
                    "as before until these windows have closed"
                )


@contextmanager
def _overflow_of(column: str) -> Iterator[None]:
    """Fill in whose sum it is."""
    try:
        yield
    except SumOverflow as error:
        error.column = column
        raise
