"""Columns as Avro has them, where Avro has no type for a column's own: a duration is a number of
microseconds, a map whose keys are no text a list of entries, and names are those that the outside knows.

Columns that Avro has as they are go through untouched; of others each value is converted.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from onceflow.connectors.formats.format import BadValue, Decoded, Decoder, Encoder, Values
from onceflow.runtime.types.column_forms import described, form_of, outside_name
from onceflow.runtime.types.decoding import admitter
from onceflow.runtime.types.encoding import WrongValueError, in_order_once
from onceflow.runtime.types.value_types import (
    Clock,
    ListOf,
    MapOf,
    RecordOf,
    RecordType,
    TupleOf,
    UnionOf,
    ValueType,
)

Convert = Callable[[Any], Any]
_MICROSECOND = dt.timedelta(microseconds=1)
_TEXT = (pa.string(), pa.large_string())


def wire_field(field: pa.Field) -> pa.Field:
    """The column that Avro has for this one."""
    wire = pa.field(outside_name(field), _wire_type(field.type), field.nullable)
    return described(wire, form_of(field))


def _wire_type(arrow: pa.DataType) -> pa.DataType:
    is_ = pa.types
    if arrow == pa.duration("us"):
        return pa.int64()
    if is_.is_list(arrow):
        return pa.list_(wire_field(arrow.value_field))
    if is_.is_map(arrow):
        if arrow.key_type in _TEXT:
            return pa.map_(arrow.key_type, wire_field(arrow.item_field))
        entry = pa.struct([pa.field("key", arrow.key_type, nullable=False), wire_field(arrow.item_field)])
        return pa.list_(pa.field("item", entry, nullable=False))
    return pa.struct([wire_field(field) for field in arrow]) if is_.is_struct(arrow) else arrow


# --- Columns to Avro ------------------------------------------------------------------------------


class WireEncoder:
    """See Encoder. Converts the columns, then another encoder writes them."""

    def __init__(self, encoder: Encoder, schema: pa.Schema) -> None:
        """`encoder`: of the wire's columns of this schema."""
        self._encoder = encoder
        self._wire = pa.schema([wire_field(field) for field in schema])
        changed = [ours.type != wire.type for ours, wire in zip(schema, self._wire, strict=True)]
        self._converts = [
            to_wire(field.type) if is_ else None for field, is_ in zip(schema, changed, strict=True)
        ]

    def encode(self, batch: pa.RecordBatch) -> pa.Array:
        arrays = []
        for column, field, convert in zip(batch.columns, self._wire, self._converts, strict=True):
            if convert is not None:
                values = [None if value is None else convert(value) for value in column.to_pylist()]
                column = pa.array(values, field.type)
            arrays.append(column)
        return self._encoder.encode(pa.RecordBatch.from_arrays(arrays, schema=self._wire))


def to_wire(arrow: pa.DataType) -> Convert:
    """The function for a value of this type, None excepted."""
    is_ = pa.types
    if arrow == pa.duration("us"):
        return lambda value: value // _MICROSECOND
    if is_.is_list(arrow):
        return _each(to_wire(arrow.value_type))
    if is_.is_map(arrow):
        item = _inner(to_wire(arrow.item_type))
        if arrow.key_type in _TEXT:
            return lambda pairs: [(key, item(value)) for key, value in pairs]
        return lambda pairs: [{"key": key, "value": item(value)} for key, value in pairs]
    if is_.is_struct(arrow):
        fields = [(f.name, outside_name(f), _inner(to_wire(f.type))) for f in arrow]
        return lambda value: {outside: convert(value[name]) for name, outside, convert in fields}
    return _same


# --- Avro to columns ------------------------------------------------------------------------------


class WireDecoder:
    """See Decoder. Another decoder makes the wire's columns; a value that is none of the user's type makes
    its row bad."""

    def __init__(self, decoder: Decoder, schema: pa.Schema, types: Sequence[ValueType]) -> None:
        """`schema` and `types`: of the columns that are made; `decoder`: of the wire's, in the same order."""
        self._decoder = decoder
        self._schema = schema
        self._converts = [from_wire(of) for of in types]

    @property
    def schema(self) -> pa.Schema:
        return self._schema

    def decode(self, values: Values) -> Decoded:
        decoded = self._decoder.decode(values)
        rows = np.arange(len(values)) if decoded.rows is None else decoded.rows
        bad: dict[int, str] = {}
        arrays = []
        for column, field, convert in zip(decoded.batch.columns, self._schema, self._converts, strict=True):
            if convert is None:
                arrays.append(column)
            else:
                arrays.append(pa.array(_converted(column.to_pylist(), convert, field.name, bad), field.type))
        if not bad:
            batch = pa.RecordBatch.from_arrays(arrays, schema=self._schema)
            return Decoded(batch, decoded.rows, decoded.bad)
        is_good = np.ones(len(rows), np.bool_)
        is_good[list(bad)] = False
        kept = pa.array(is_good)
        batch = pa.RecordBatch.from_arrays([array.filter(kept) for array in arrays], schema=self._schema)
        found = [BadValue(int(rows[place]), reason) for place, reason in bad.items()]
        return Decoded(batch, rows[is_good], sorted([*decoded.bad, *found]))


def _converted(values: list[Any], convert: Convert, name: str, bad: dict[int, str]) -> list[Any]:
    """The values converted; what is bad is noted by its place, and null here."""
    found = []
    for place, value in enumerate(values):
        try:
            found.append(None if value is None else convert(value))
        except WrongValueError as error:
            bad.setdefault(place, f"{name}: {error}")
            found.append(None)
    return found


def from_wire(of: ValueType) -> Convert | None:
    """The function for a value of the wire's, None excepted; None: nothing is to be done. It raises
    WrongValueError."""
    match of.kind:
        case Clock("timedelta"):
            return lambda value: value * _MICROSECOND
        case ListOf(items):
            each = None if (item := from_wire(items)) is None else _each(item)
            if not of.kind.is_set:
                return each
            return in_order_once if each is None else lambda values: in_order_once(each(values))
        case TupleOf(parts):
            return _struct([(n, n, from_wire(part)) for n, part in zip(of.kind.names, parts, strict=True)])
        case MapOf(keys, values):
            return _map(keys, from_wire(values))
        case RecordOf(record):
            return _record(record)
        case UnionOf():
            return _union(of.kind)
    return admitter(of)


def _struct(fields: Iterable[tuple[str, str, Convert | None]]) -> Convert | None:
    """A struct of fields, each with its name, its name on the wire, and its function."""
    found = list(fields)
    if all(name == outside and convert is None for name, outside, convert in found):
        return None
    inner = [(name, outside, _inner(convert or _same)) for name, outside, convert in found]
    return lambda value: {name: convert(value[outside]) for name, outside, convert in inner}


def _record(record: RecordType) -> Convert | None:
    return _struct(
        (field.name, field.outside or field.name, from_wire(field.type)) for field in record.fields
    )


def _map(keys: ValueType, value: Convert | None) -> Convert | None:
    key, item = admitter(keys), _inner(value or _same)
    if keys.arrow not in _TEXT:
        admit = key or _same
        return lambda entries: [(admit(each["key"]), item(each["value"])) for each in entries]
    if key is None and value is None:
        return None
    admit = key or _same
    return lambda pairs: [(admit(k), item(v)) for k, v in pairs]


def _union(kind: UnionOf) -> Convert:
    records = {tag: _record(record) or _same for tag, record in kind.variants}

    def convert(value: dict[str, Any]) -> dict[str, Any]:
        tag = value[kind.tag]
        if tag not in records or value[tag] is None:
            raise WrongValueError(f"the tag {tag!r} is none of {', '.join(records)}, or has no record")
        return {kind.tag: tag} | dict.fromkeys(records) | {tag: records[tag](value[tag])}

    return convert


def _each(convert: Convert) -> Convert:
    return lambda values: [None if value is None else convert(value) for value in values]


def _inner(convert: Convert) -> Convert:
    return lambda value: None if value is None else convert(value)


def _same(value: Any) -> Any:
    return value
