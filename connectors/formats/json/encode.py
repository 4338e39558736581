"""Columns to JSON values: `{"user":"u1","window_end":1700000010000,"count":3,"total":99}`.

Compact, in the schema's order, null for null, integers and decimals exact. Text goes out as UTF-8, times
as RFC 3339 text, binary as base64: what JsonDecoder reads.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec
import polars as pl
import pyarrow as pa
import pyarrow.compute as pc

from onceflow.connectors.formats.format import EncodeError, NotFlatError
from onceflow.runtime.arrays.recycled_memory import Memory, NewMemory
from onceflow.runtime.errors import GraphError
from onceflow.runtime.kernels.ops import ops
from onceflow.runtime.records import Indices

if TYPE_CHECKING:
    from onceflow.connectors.formats.json.compiled.encode import FlatEncoder


class JsonEncoder:
    """See PlacingEncoder. Flat rows are encoded by a kernel where kernels are on, other plain columns by
    polars, a batch at a time; others row by row."""

    def __init__(self, schema: pa.Schema) -> None:
        if not len(schema):
            raise GraphError("Json can't write rows that have no columns")
        if len(set(schema.names)) < len(schema):
            raise GraphError(f"Json can't write two columns of the same name: {', '.join(schema.names)}")
        for name in schema.names:
            if not name or "\0" in name:  # polars would call it something else
                raise GraphError(f"Json can't write a column named {name!r}")
        for field in schema:
            _check(field.type, field.name)
        self._is_plain = all(_is_plain(field.type) for field in schema)
        self._floats = [field.name for field in schema if _has_float(field.type)]
        self._flat = _flat_encoder(schema) if ops().are_compiled else None

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
            rows = pl.DataFrame(pl.from_arrow(batch)).select(
                pl.struct(pl.all()).struct.json_encode().alias("value")
            )
            return rows.to_series().to_arrow().cast(pa.large_binary())
        encode = msgspec.json.Encoder(decimal_format="number").encode
        columns = [batch.column(i).to_pylist(maps_as_pydicts="strict") for i in range(batch.num_columns)]
        names = batch.schema.names
        return pa.array(
            [encode(dict(zip(names, row, strict=True))) for row in zip(*columns, strict=True)],
            pa.large_binary(),
        )


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
    if is_.is_map(arrow) and arrow.key_type not in (pa.string(), pa.large_string()):
        raise GraphError(
            f"Json can't write column {name!r}: keys of a map must be strings, not {arrow.key_type}"
        )
    if is_.is_nested(arrow):
        for i in range(arrow.num_fields):
            _check(arrow.field(i).type, name)
    elif not (
        _is_plain(arrow)
        or is_.is_decimal(arrow)
        or arrow in (pa.date32(), pa.binary(), pa.large_binary(), pa.null())
        or (is_.is_timestamp(arrow) and arrow.unit != "ns")
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
