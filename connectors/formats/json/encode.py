"""Columns to JSON values: `{"user":"u1","window_end":1700000010000,"count":3,"total":99}`.

Compact, in the schema's order, null for null, integers and decimals exact. Text goes out as UTF-8, times
as RFC 3339 text, binary as base64: what JsonDecoder reads.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec
import polars as pl
import pyarrow as pa
import pyarrow.compute as pc

from onceflow.connectors.formats.format import EncodeError, NotFlatError
from onceflow.connectors.formats.json.written_values import writer
from onceflow.runtime.arrays.recycled_memory import Memory, NewMemory
from onceflow.runtime.errors import GraphError
from onceflow.runtime.kernels.ops import ops
from onceflow.runtime.records import Indices
from onceflow.runtime.types.column_forms import JSON, form_of, outside_name
from onceflow.runtime.types.encoding import WrongValueError

_KEYS = (pa.string(), pa.large_string(), pa.int64(), pa.date32())

if TYPE_CHECKING:
    from onceflow.connectors.formats.json.compiled.encode import FlatEncoder


class JsonEncoder:
    """See PlacingEncoder. Flat rows are encoded by a kernel where kernels are on, other plain columns by
    polars, a batch at a time; others row by row."""

    def __init__(self, schema: pa.Schema, spread: str | None = None) -> None:
        """`spread`: a column of unknown fields, which are written beside the columns."""
        if not len(schema):
            raise GraphError("Json can't write rows that have no columns")
        names = [outside_name(field) for field in schema]
        if len(set(names)) < len(names):
            raise GraphError(f"Json can't write two columns of the same name: {', '.join(names)}")
        for name in names:
            if not name or "\0" in name:  # polars would call it something else
                raise GraphError(f"Json can't write a column named {name!r}")
        for field in schema:
            _check(field.type, field.name)
        if spread is not None:
            _check_spread(schema, spread)
        self._names = names
        self._spread = None if spread is None else schema.get_field_index(spread)
        self._writers = [writer(field) for field in schema]
        self._is_plain = not any(self._writers) and all(_is_plain(field.type) for field in schema)
        self._floats = [field.name for field in schema if _has_float(field.type)]
        written = pa.schema([field.with_name(name) for field, name in zip(schema, names, strict=True)])
        is_flat = ops().are_compiled and not any(self._writers) and spread is None
        self._flat = _flat_encoder(written) if is_flat else None

    def encode(self, batch: pa.RecordBatch) -> pa.Array:
        return self.encode_in_order(batch, None, NewMemory())

    def encode_in_order(self, batch: pa.RecordBatch, order: Indices | None, memory: Memory) -> pa.Array:
        """See PlacingEncoder."""
        if self._flat is not None:
            written = self._flat.encode(batch, order, memory)
            if written is not None:
                return written
        values = self._encode(batch)
        return values if order is None else values.take(pa.array(order))

    def _encode(self, batch: pa.RecordBatch) -> pa.Array:
        for name in self._floats:
            _refuse_not_finite(batch.column(name), name)
        if self._is_plain:
            frame = pl.DataFrame(pl.from_arrow(batch.rename_columns(self._names)))
            rows = frame.select(pl.struct(pl.all()).struct.json_encode().alias("value"))
            return rows.to_series().to_arrow().cast(pa.large_binary())
        encode = msgspec.json.Encoder(decimal_format="number").encode
        columns = [self._values(batch, i) for i in range(batch.num_columns)]
        rows_ = (dict(zip(self._names, row, strict=True)) for row in zip(*columns, strict=True))
        if self._spread is not None:
            rows_ = (_with_spread(row, self._names[self._spread]) for row in rows_)
        return pa.array([encode(row) for row in rows_], pa.large_binary())

    def _values(self, batch: pa.RecordBatch, column: int) -> list[Any]:
        values: list[Any] = batch.column(column).to_pylist(maps_as_pydicts="strict")
        write = self._writers[column]
        if write is None:
            return values
        try:
            return [None if value is None else write(value) for value in values]
        except (EncodeError, WrongValueError) as error:
            raise EncodeError(f"column {batch.schema.names[column]!r}: {error}") from error


def _check_spread(schema: pa.Schema, name: str) -> None:
    at = schema.get_field_index(name)
    if at < 0 or not pa.types.is_map(schema.types[at]) or form_of(schema.types[at].item_field) != JSON:
        raise GraphError(
            f'Json(extra="collect") writes the fields that are in the column {name!r}, of type '
            f"dict[str, Any], which the rows don't have; they have {', '.join(schema.names)}"
        )


def _with_spread(row: dict[str, Any], name: str) -> dict[str, Any]:
    unknown = row.pop(name) or {}
    if doubled := row.keys() & unknown.keys():
        raise EncodeError(f"column {name!r} holds the field {min(doubled)!r}, which is a column, too")
    return row | unknown


def _flat_encoder(schema: pa.Schema) -> FlatEncoder | None:
    """A compiled loop, if it knows columns of this kind."""
    from onceflow.connectors.formats.json.compiled.encode import FlatEncoder  # imports numba

    try:
        return FlatEncoder(schema)
    except NotFlatError:
        return None


def _check(arrow: pa.DataType, name: str) -> None:
    """Raises GraphError for a type that has no JSON form, however deep it is nested."""
    is_ = pa.types
    if is_.is_map(arrow) and arrow.key_type not in _KEYS:
        raise GraphError(
            f"Json can't write column {name!r}: keys of a map must be strings, integers or dates, not "
            f"{arrow.key_type}"
        )
    if is_.is_nested(arrow):
        for i in range(arrow.num_fields):
            _check(arrow.field(i).type, name)
    elif not (
        _is_plain(arrow)
        or is_.is_decimal(arrow)
        or arrow in (pa.date32(), pa.binary(), pa.large_binary(), pa.null())
        or ((is_.is_timestamp(arrow) or is_.is_duration(arrow)) and arrow.unit != "ns")
        or (is_.is_time(arrow) and arrow.unit != "ns")
    ):
        raise GraphError(
            f"Json can't write column {name!r}: {arrow} has no JSON form; cast it to text or a number"
        )


def _is_plain(arrow: pa.DataType) -> bool:
    """Whether polars writes it as we want it: its decimals, dates, times and binary differ,
    maps are unknown to it."""
    is_ = pa.types
    if is_.is_list(arrow) or is_.is_large_list(arrow):
        return _is_plain(arrow.value_type)
    if is_.is_struct(arrow):
        return bool(arrow.num_fields) and all(_is_plain(arrow.field(i).type) for i in range(arrow.num_fields))
    return bool(
        is_.is_boolean(arrow)
        or is_.is_integer(arrow)
        or arrow in (pa.float32(), pa.float64(), pa.string(), pa.large_string())
    )


def _has_float(arrow: pa.DataType) -> bool:
    if pa.types.is_nested(arrow):
        return any(_has_float(arrow.field(i).type) for i in range(arrow.num_fields))
    return bool(pa.types.is_floating(arrow))


def _refuse_not_finite(column: pa.Array, name: str) -> None:
    """NaN and infinity are no JSON, and both encoders would write null for them, which is another value."""
    if not pa.types.is_nested(column.type):
        if pa.types.is_floating(column.type):
            finite = pc.is_finite(column)
            if pc.all(finite).as_py() is False:
                row = pc.index(finite, False).as_py()
                raise EncodeError(
                    f"column {name!r} holds {column[row].as_py()} in row {row} of a batch: JSON has no such "
                    "number; filter it out or turn it into null before the sink"
                )
        return
    if pa.types.is_map(column.type):
        column = column.cast(pa.list_(column.type.field(0)))
    # flatten() leaves out what lies under a null, or outside of a slice.
    children = column.flatten() if pa.types.is_struct(column.type) else [column.flatten()]
    for child in children:
        _refuse_not_finite(child, name)
