"""Values as PostgreSQL writes them, as Arrow columns. Pure.

The server is asked for ISO dates, UTC, hexadecimal bytes and the shortest digits that give the same float.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc

from onceflow.connectors.postgres.catalog import Column
from onceflow.connectors.postgres_cdc.messages import UNCHANGED, Value
from onceflow.runtime.arrays.timestamps import timestamps_of_texts
from onceflow.runtime.errors import Fatal

SESSION = (
    "-c timezone=UTC -c datestyle=ISO -c intervalstyle=iso_8601 -c bytea_output=hex -c extra_float_digits=1"
)
"""What a session is told, so that all write values in the same way."""

_TAKEN_FROM: Sequence[tuple[Callable[[pa.DataType], bool], frozenset[str]]] = (
    (pa.types.is_integer, frozenset({"int2", "int4", "int8"})),
    (pa.types.is_floating, frozenset({"float4", "float8"})),
    (pa.types.is_decimal, frozenset({"numeric", "int2", "int4", "int8"})),
    (pa.types.is_boolean, frozenset({"bool"})),
    (lambda of: pa.types.is_binary(of) or pa.types.is_large_binary(of), frozenset({"bytea"})),
    (pa.types.is_date, frozenset({"date"})),
    (lambda of: pa.types.is_timestamp(of) and of.tz is None, frozenset({"timestamp"})),
    (lambda of: pa.types.is_timestamp(of) and of.tz is not None, frozenset({"timestamptz"})),
    (pa.types.is_time, frozenset({"time"})),
)


def check_column(field: pa.Field, column: Column, where: str) -> None:
    """Raises Fatal if not all values of the table's column are values of this field. Text takes any column,
    as the server writes it."""
    if pa.types.is_string(field.type) or pa.types.is_large_string(field.type):
        return
    names = next((names for is_kind, names in _TAKEN_FROM if is_kind(field.type)), frozenset[str]())
    if column.type not in names or column.element:
        raise Fatal(
            f"{where}: column {field.name!r} is {column.declared} in the table and {field.type} in the rows, "
            "which does not fit: give the field another type, or read it as text (str)"
        )


@dataclass(frozen=True, slots=True)
class BadRow:
    """A row that is none of the schema's, by its place among those that were given, and why."""

    row: int
    reason: str


def to_batch(rows: Sequence[Sequence[Value]], schema: pa.Schema) -> tuple[pa.RecordBatch, list[BadRow]]:
    """The rows, whose values are in the schema's order, without those that are bad."""
    bad: list[BadRow] = []
    try:
        return _batch(rows, schema), bad
    except (pa.ArrowException, ValueError):
        good = []
        for place, row in enumerate(rows):
            reason = _reason(row, schema)
            if reason is None:
                good.append(row)
            else:
                bad.append(BadRow(place, reason))
        return _batch(good, schema), bad


def _batch(rows: Sequence[Sequence[Value]], schema: pa.Schema) -> pa.RecordBatch:
    if not len(schema):
        return pa.RecordBatch.from_struct_array(pa.array([{}] * len(rows), pa.struct([])))
    columns = zip(*rows, strict=True) if rows else ([] for _ in schema)
    arrays = [_array(values, field) for values, field in zip(columns, schema, strict=True)]
    return pa.RecordBatch.from_arrays(arrays, schema=schema)


def _reason(row: Sequence[Value], schema: pa.Schema) -> str | None:
    """Why this row is bad; None: it is not."""
    for value, field in zip(row, schema, strict=True):
        try:
            _array((value,), field)
        except (pa.ArrowException, ValueError) as error:
            return f"column {field.name!r} is {field.type}: {str(error).splitlines()[0]}"
    return None


def _array(values: Sequence[Value], field: pa.Field) -> pa.Array:
    """Raises ValueError or ArrowException for a value that is none of the field's."""
    if any(value is UNCHANGED for value in values):
        raise ValueError(
            "an update has left a large value as it was, and the log does not have it: ALTER TABLE ... "
            "REPLICA IDENTITY FULL"
        )
    if not field.nullable and None in values:
        raise ValueError("it is null, and the field may not be")
    of = field.type
    if pa.types.is_binary(of) or pa.types.is_large_binary(of):
        return pa.array([_bytes(value) for value in values], of)
    texts = pa.array(values, pa.string())
    if pa.types.is_boolean(of):
        return pc.equal(texts, "t")
    if pa.types.is_time(of):
        return pc.binary_join_element_wise("1970-01-01", texts, " ").cast(pa.timestamp("us")).cast(of)
    if pa.types.is_timestamp(of):
        return timestamps_of_texts(texts, of)
    return texts.cast(of)


def _bytes(value: Value) -> bytes | None:
    return bytes.fromhex(value[2:].decode()) if isinstance(value, bytes) else None
