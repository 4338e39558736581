"""What a window computes: count(), sum_("amount"), ..., and the user's own AggregateFunction.

These are descriptions; accumulators.py has the columns that they become.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Any, Generic, TypeVar

import polars as pl
import pyarrow as pa

from onceflow.runtime.errors import GraphError
from onceflow.runtime.explained_calls import explained
from onceflow.runtime.nearest import nearest
from onceflow.runtime.operators.aggregation.returned_types import returned_type
from onceflow.runtime.state.columns import is_word
from onceflow.runtime.types.value_types import ValueType

In = TypeVar("In")
Acc = TypeVar("Acc")
Out = TypeVar("Out")


class Kind(StrEnum):
    """The built-in aggregates, by the name a user knows."""

    COUNT = "count"
    SUM = "sum_"
    MIN = "min_"
    MAX = "max_"
    MEAN = "mean"
    FIRST = "first"
    LAST = "last"
    COLLECT_LIST = "collect_list"
    COUNT_DISTINCT = "count_distinct"


@dataclass(frozen=True, slots=True)
class BuiltinAggregate:
    """An aggregate over a column, a polars expression, or (count) over rows. Made by count(), sum_(), ..."""

    kind: Kind
    argument: str | pl.Expr | None = None


class AggregateFunction(ABC, Generic[In, Acc, Out]):
    """The user's own aggregate over records; names and argument order are PyFlink's.

    One object serves all keys: it must keep nothing in itself. The return annotations of
    `create_accumulator` and `get_result` are the types of the state and of the result column.
    """

    @abstractmethod
    def create_accumulator(self) -> Acc:
        """A new, empty accumulator: once per key and window."""

    @abstractmethod
    def add(self, value: In, accumulator: Acc) -> Acc:
        """The accumulator with one more record; may change and return the one it got."""

    @abstractmethod
    def merge(self, accumulator_a: Acc, accumulator_b: Acc) -> Acc:
        """Two accumulators of the same key as one: for windows that merge."""

    @abstractmethod
    def get_result(self, accumulator: Acc) -> Out:
        """What the window emits. Must not change the accumulator."""


Aggregate = BuiltinAggregate | AggregateFunction[Any, Any, Any]


@explained
def count(column: str | pl.Expr | None = None) -> BuiltinAggregate:
    """How many rows; with a column or expression: how many that are not null. int64."""
    return BuiltinAggregate(Kind.COUNT, column)


@explained
def sum_(column: str | pl.Expr) -> BuiltinAggregate:
    """The sum: int64 over integers and booleans, double over floats; null if every value is null.

    A sum that does not fit int64 fails the job and names the key: it never wraps.
    """
    return BuiltinAggregate(Kind.SUM, column)


@explained
def min_(column: str | pl.Expr) -> BuiltinAggregate:
    """The lowest value, of the column's type; nulls are skipped, NaN counts only if all values are NaN.

    Strings are compared by code point.
    """
    return BuiltinAggregate(Kind.MIN, column)


@explained
def max_(column: str | pl.Expr) -> BuiltinAggregate:
    """The highest value; like `min_`."""
    return BuiltinAggregate(Kind.MAX, column)


@explained
def mean(column: str | pl.Expr) -> BuiltinAggregate:
    """The mean as double, over integers from an exact sum of any size; null if every value is null."""
    return BuiltinAggregate(Kind.MEAN, column)


@explained
def first(column: str | pl.Expr) -> BuiltinAggregate:
    """The value of the row with the lowest event time (of several: came first); nulls are skipped."""
    return BuiltinAggregate(Kind.FIRST, column)


@explained
def last(column: str | pl.Expr) -> BuiltinAggregate:
    """The value of the row with the highest event time (of several: came last); nulls are skipped."""
    return BuiltinAggregate(Kind.LAST, column)


@explained
def collect_list(column: str | pl.Expr | None = None) -> BuiltinAggregate:
    """A list of the values or, without a column, of whole rows as structs; nulls are skipped, and it is null
    if every value is. They are in the order in which they came; where windows overlap or merge, in that of
    each part, one part after the other. All are kept until the window fires."""
    return BuiltinAggregate(Kind.COLLECT_LIST, column)


@explained
def count_distinct(column: str | pl.Expr) -> BuiltinAggregate:
    """How many different values there are, exactly; nulls don't count, all NaN are one. int64. Each is kept
    until the window has fired."""
    return BuiltinAggregate(Kind.COUNT_DISTINCT, column)


# --- Types, checked when the graph is built -------------------------------------------------------


@dataclass(frozen=True, slots=True)
class TypedAggregate:
    """An aggregate, checked against the schema of its input."""

    name: str
    """The name of the output column."""
    aggregate: Aggregate
    argument: pa.Field | None
    """The column or the expression's result; None: rows, or the user's records."""
    result: pa.Field
    state: ValueType | None = None
    """The user's accumulator; None for the built-in ones, which know theirs."""
    result_type: ValueType | None = None
    """What the user's aggregate returns; None for the built-in ones."""


def check_aggregate(name: str, aggregate: Aggregate, schema: pa.Schema, uid: str) -> TypedAggregate:
    """The aggregate with its types. Raises GraphError naming uid, output column and the nearest column."""
    where = f"operator {uid!r}: {name}"
    if isinstance(aggregate, AggregateFunction):
        result = returned_type(aggregate, "get_result", where)
        state = returned_type(aggregate, "create_accumulator", where)
        return TypedAggregate(name, aggregate, None, result.field(name), state, result)
    if not isinstance(aggregate, BuiltinAggregate):
        raise GraphError(
            f"{where} is {aggregate!r}, which is no aggregate: use count(), sum_(), min_(), max_(), mean(), "
            "first(), last(), collect_list(), count_distinct() or an AggregateFunction"
        )
    if aggregate.argument is None:
        if aggregate.kind is Kind.COLLECT_LIST:
            row = pa.field("row", pa.struct(list(schema)), nullable=False)
            return TypedAggregate(name, aggregate, row, pa.field(name, pa.list_(row.type), nullable=False))
        if aggregate.kind is not Kind.COUNT:
            raise GraphError(f"{where}={aggregate.kind}() needs a column or an expression")
        return TypedAggregate(name, aggregate, None, pa.field(name, pa.int64(), nullable=False))
    argument = argument_field(aggregate.argument, schema, f"{where}={aggregate.kind}")
    result = _result_type(aggregate.kind, argument, where)
    nullable = argument.nullable and aggregate.kind not in (Kind.COUNT, Kind.COUNT_DISTINCT)
    return TypedAggregate(name, aggregate, argument, pa.field(name, result, nullable))


def columns_read(aggregate: Aggregate) -> frozenset[str] | None:
    """The input columns it needs; None: whole records."""
    if isinstance(aggregate, AggregateFunction):
        return None
    if aggregate.argument is None:
        return None if aggregate.kind is Kind.COLLECT_LIST else frozenset()
    if isinstance(aggregate.argument, str):
        return frozenset((aggregate.argument,))
    return frozenset(aggregate.argument.meta.root_names())


def plain_argument(typed: TypedAggregate) -> TypedAggregate:
    """The same with `pl.col(name)` as the column's name: no detour through polars."""
    aggregate = typed.aggregate
    if not isinstance(aggregate, BuiltinAggregate) or not isinstance(aggregate.argument, pl.Expr):
        return typed
    if not aggregate.argument.meta.undo_aliases().meta.is_column():
        return typed
    name = aggregate.argument.meta.root_names()[0]
    return replace(typed, aggregate=BuiltinAggregate(aggregate.kind, name))


def argument_field(argument: str | pl.Expr, schema: pa.Schema, where: str) -> pa.Field:
    """The column, or what the expression gives for each row. Raises GraphError, which begins with `where`."""
    if isinstance(argument, str):
        _check_columns([argument], schema, where)
        return schema.field(argument)
    if not isinstance(argument, pl.Expr):
        raise GraphError(f"{where}({argument!r}): expected a column's name or a polars expression")
    _check_columns(argument.meta.root_names(), schema, where)
    # Two rows, so that an expression that gives one value for the whole batch is found out.
    nulls = pa.Table.from_arrays(
        [pa.nulls(2, f.type) for f in schema], schema=pa.schema(map(_nullable, schema))
    )
    frame = pl.from_arrow(nulls)
    assert isinstance(frame, pl.DataFrame)
    try:
        columns = frame.select(argument)
    except pl.exceptions.PolarsError as error:
        raise GraphError(f"{where}({argument}): {str(error).splitlines()[0]}") from error
    if columns.shape != (2, 1):
        raise GraphError(f"{where}({argument}): the expression must give one value for each row")
    return pa.field("argument", _without_large(columns.to_series().to_arrow().type))


def _nullable(field: pa.Field) -> pa.Field:
    return field.with_nullable(True)


def _check_columns(names: list[str], schema: pa.Schema, where: str) -> None:
    for name in names:
        if schema.get_field_index(name) < 0:
            raise GraphError(
                f"{where}: there is no column {name!r}{nearest(name, schema.names)}; "
                f"there are {', '.join(schema.names)}"
            )


def _without_large(arrow: pa.DataType) -> pa.DataType:
    """Polars' own string and list types as the plain ones."""
    t = pa.types
    if t.is_large_string(arrow) or t.is_string_view(arrow):
        return pa.string()
    if t.is_large_binary(arrow) or t.is_binary_view(arrow):
        return pa.binary()
    if t.is_large_list(arrow):
        return pa.list_(_without_large(arrow.value_type))
    if t.is_struct(arrow):
        fields = [arrow.field(i) for i in range(arrow.num_fields)]
        return pa.struct([f.with_type(_without_large(f.type)) for f in fields])
    return arrow


def _result_type(kind: Kind, argument: pa.Field, where: str) -> pa.DataType:
    arrow, t = argument.type, pa.types
    is_number = t.is_integer(arrow) or t.is_boolean(arrow) or t.is_floating(arrow)
    match kind:
        case Kind.COUNT:
            return pa.int64()
        case Kind.SUM | Kind.MEAN if is_number:
            return pa.float64() if kind is Kind.MEAN or t.is_floating(arrow) else pa.int64()
        case Kind.FIRST | Kind.LAST:
            return arrow
        case Kind.COLLECT_LIST:
            return pa.list_(arrow)
        case Kind.COUNT_DISTINCT if is_word(arrow) or is_comparable_object(arrow):
            return pa.int64()
        case Kind.MIN | Kind.MAX if is_word(arrow) or is_comparable_object(arrow):
            return arrow
    raise GraphError(f"{where}={kind}: {argument.name!r} is {arrow}, over which there is no {kind}")


def is_comparable_object(arrow: pa.DataType) -> bool:
    """Strings, bytes and decimals: compared as Python values."""
    t = pa.types
    is_text = t.is_string(arrow) or t.is_large_string(arrow) or t.is_string_view(arrow)
    is_bytes = t.is_binary(arrow) or t.is_large_binary(arrow) or t.is_fixed_size_binary(arrow)
    return bool(is_text or is_bytes or t.is_decimal(arrow))
