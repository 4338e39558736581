"""Aggregates with their types: checked against the columns that come when the graph is built."""

from __future__ import annotations

from dataclasses import dataclass, replace

import polars as pl
import pyarrow as pa

from onceflow.runtime.errors import GraphError
from onceflow.runtime.nearest import nearest
from onceflow.runtime.operators.aggregation.aggregates import (
    Aggregate,
    AggregateFunction,
    BuiltinAggregate,
    Kind,
)
from onceflow.runtime.operators.aggregation.returned_types import returned_hint, returned_type
from onceflow.runtime.state.columns import is_word
from onceflow.runtime.state.hashing import is_hashable
from onceflow.runtime.state.kept_objects import objects_of
from onceflow.runtime.state.object_codecs import ObjectCodec
from onceflow.runtime.types.record_types import describe_type
from onceflow.runtime.types.value_types import DECIMAL_PRECISION, ValueType

NEVER_NULL = (Kind.COUNT, Kind.COUNT_DISTINCT, Kind.APPROX_COUNT_DISTINCT)
"""Aggregates that are 0 without any value."""
OF_WHOLE_ROWS = (Kind.COLLECT_LIST, Kind.EVICTED_ROWS)
"""Aggregates that take whole rows if they are given no column."""
OF_NUMBERS = (Kind.QUANTILE, Kind.APPROX_QUANTILE)
"""They take all numbers as doubles, and leave out NaN."""


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
    objects: ObjectCodec | None = None
    """How the user's accumulators are kept that are no columns."""


def check_aggregate(name: str, aggregate: Aggregate, schema: pa.Schema, uid: str) -> TypedAggregate:
    """The aggregate with its types. Raises GraphError naming uid, output column and the nearest column."""
    where = f"operator {uid!r}: {name}"
    if isinstance(aggregate, AggregateFunction):
        result = returned_type(aggregate, "get_result", where)
        field = result.field(name)
        if aggregate.codec == "columns":
            state = returned_type(aggregate, "create_accumulator", where)
            return TypedAggregate(name, aggregate, None, field, state, result)
        kept = returned_hint(aggregate, "create_accumulator", where)
        objects = objects_of(name, kept, aggregate.codec)
        return TypedAggregate(name, aggregate, None, field, describe_type(bytes, where), result, objects)
    if not isinstance(aggregate, BuiltinAggregate):
        raise GraphError(
            f"{where} is {aggregate!r}, which is not an aggregate: use count(), sum_(), min_(), max_(), "
            "mean(), first(), last(), collect_list(), count_distinct(), quantile(), approx_quantile(), "
            "approx_count_distinct() or an AggregateFunction"
        )
    if aggregate.argument is None:
        if aggregate.kind in OF_WHOLE_ROWS:
            row = pa.field("row", pa.struct(list(schema)), nullable=False)
            return TypedAggregate(name, aggregate, row, pa.field(name, pa.list_(row.type), nullable=False))
        if aggregate.kind is not Kind.COUNT:
            raise GraphError(f"{where}={aggregate.kind}() needs a column or an expression")
        return TypedAggregate(name, aggregate, None, pa.field(name, pa.int64(), nullable=False))
    argument = argument_field(aggregate.argument, schema, f"{where}={aggregate.kind}")
    result = _result_type(aggregate.kind, argument, where)
    nullable = aggregate.kind in OF_NUMBERS or (argument.nullable and aggregate.kind not in NEVER_NULL)
    return TypedAggregate(name, aggregate, argument, pa.field(name, result, nullable))


def columns_read(aggregate: Aggregate) -> frozenset[str] | None:
    """The input columns it needs; None: whole records."""
    if isinstance(aggregate, AggregateFunction):
        return None
    if aggregate.argument is None:
        return None if aggregate.kind in OF_WHOLE_ROWS else frozenset()
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
    return replace(typed, aggregate=replace(aggregate, argument=name))


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
        case Kind.SUM if is_number:
            return pa.float64() if t.is_floating(arrow) else pa.int64()
        case Kind.SUM if t.is_decimal(arrow) and not t.is_decimal256(arrow):
            return pa.decimal128(DECIMAL_PRECISION, arrow.scale)
        case Kind.FIRST | Kind.LAST:
            return arrow
        case Kind.COLLECT_LIST:
            return pa.list_(arrow)
        case Kind.COUNT_DISTINCT if is_word(arrow) or _is_comparable_object(arrow):
            return pa.int64()
        case Kind.APPROX_COUNT_DISTINCT if is_hashable(arrow):
            return pa.int64()
        case Kind.MEAN | Kind.QUANTILE | Kind.APPROX_QUANTILE if is_number:
            return pa.float64()
        case Kind.MIN | Kind.MAX if is_word(arrow) or _is_comparable_object(arrow):
            return arrow
    raise GraphError(
        f"{where}={kind}: {argument.name!r} is {arrow}, over which there is no {kind}{_instead(arrow)}"
    )


def _instead(arrow: pa.DataType) -> str:
    """A way out for decimals, of which there is each sum, but no mean and no quantile."""
    if not pa.types.is_decimal128(arrow):
        return ""
    return ": cast it, with polars as pl, as in col(...).cast(pl.Float64); its sum_ is exact"


def _is_comparable_object(arrow: pa.DataType) -> bool:
    """Strings, bytes and decimals: compared as Python values."""
    t = pa.types
    is_text = t.is_string(arrow) or t.is_large_string(arrow) or t.is_string_view(arrow)
    is_bytes = t.is_binary(arrow) or t.is_large_binary(arrow) or t.is_fixed_size_binary(arrow)
    return bool(is_text or is_bytes or t.is_decimal(arrow))
