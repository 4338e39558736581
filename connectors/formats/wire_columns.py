"""Columns as a format has them, where it has no type for a column's own, under the names that the outside
knows. What they are then, `Wire` says.

Columns that the format has as they are go through untouched; of others each value is converted.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from decimal import Decimal, InvalidOperation
from typing import Any

import numpy as np
import pyarrow as pa

from onceflow.connectors.formats.format import BadValue, Decoded, Decoder, Encoder, Values
from onceflow.runtime.types.column_forms import NUMBER, described, form_of, outside_name
from onceflow.runtime.types.decoding import admitter, without_zeros
from onceflow.runtime.types.encoding import WrongValueError, fitting_decimal, in_order_once
from onceflow.runtime.types.value_types import (
    Clock,
    Decimals,
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


@dataclass(frozen=True, slots=True)
class Wire:
    """What a format has no type for. `durations`: they are numbers of microseconds; `entries`: a map whose
    keys are no text is a list of entries; `texts`: decimals, dates and times of day are text."""

    durations: bool = False
    entries: bool = False
    texts: bool = False

    def _is_text(self, arrow: pa.DataType) -> bool:
        is_ = pa.types
        return self.texts and bool(is_.is_decimal(arrow) or is_.is_date32(arrow) or is_.is_time(arrow))

    # --- The columns ---

    def field(self, field: pa.Field) -> pa.Field:
        """The column that the format has for this one."""
        wire = pa.field(outside_name(field), self._type(field.type), field.nullable)
        return described(wire, form_of(field))

    def _type(self, arrow: pa.DataType) -> pa.DataType:
        is_ = pa.types
        if self.durations and arrow == pa.duration("us"):
            return pa.int64()
        if self._is_text(arrow):
            return pa.string()
        if is_.is_list(arrow):
            return pa.list_(self.field(arrow.value_field))
        if is_.is_map(arrow):
            if arrow.key_type in _TEXT or not self.entries:
                return pa.map_(self._type(arrow.key_type), self.field(arrow.item_field))
            entry = pa.struct([pa.field("key", arrow.key_type, nullable=False), self.field(arrow.item_field)])
            return pa.list_(pa.field("item", entry, nullable=False))
        return pa.struct([self.field(field) for field in arrow]) if is_.is_struct(arrow) else arrow

    # --- Columns to the format's ---

    def writer(self, field: pa.Field) -> Convert:
        """The function for a value of this column, None excepted."""
        arrow, is_ = field.type, pa.types
        if self.durations and arrow == pa.duration("us"):
            return lambda value: value // _MICROSECOND
        if self._is_text(arrow):
            return _text_of_number if form_of(field) == NUMBER else _text_of
        if is_.is_list(arrow):
            return _each(self.writer(arrow.value_field))
        if is_.is_map(arrow):
            item, key = _inner(self.writer(arrow.item_field)), self.writer(arrow.key_field)
            if arrow.key_type in _TEXT or not self.entries:
                return lambda pairs: [(key(k), item(value)) for k, value in pairs]
            return lambda pairs: [{"key": k, "value": item(value)} for k, value in pairs]
        if is_.is_struct(arrow):
            fields = [(f.name, outside_name(f), _inner(self.writer(f))) for f in arrow]
            return lambda value: {outside: convert(value[name]) for name, outside, convert in fields}
        return _same

    # --- The format's columns to values of the user's ---

    def reader(self, of: ValueType) -> Convert | None:
        """The function for a value of the format's, None excepted; None: nothing is to be done. It raises
        WrongValueError."""
        if self._is_text(of.arrow):
            return _reader_of_text(of)
        match of.kind:
            case Clock("timedelta") if self.durations:
                return lambda value: value * _MICROSECOND
            case ListOf(items):
                each = None if (item := self.reader(items)) is None else _each(item)
                if not of.kind.is_set:
                    return each
                return in_order_once if each is None else lambda values: in_order_once(each(values))
            case TupleOf(parts):
                names = zip(of.kind.names, parts, strict=True)
                return _struct([(name, name, self.reader(part)) for name, part in names])
            case MapOf(keys, values):
                return self._map(keys, self.reader(values))
            case RecordOf(record):
                return self._record(record)
            case UnionOf():
                return self._union(of.kind)
        return admitter(of)

    def _record(self, record: RecordType) -> Convert | None:
        return _struct((f.name, f.outside or f.name, self.reader(f.type)) for f in record.fields)

    def _map(self, keys: ValueType, value: Convert | None) -> Convert | None:
        key, item = self.reader(keys), _inner(value or _same)
        if keys.arrow not in _TEXT and self.entries:
            admit = key or _same
            return lambda entries: [(admit(each["key"]), item(each["value"])) for each in entries]
        if key is None and value is None:
            return None
        admit = key or _same
        return lambda pairs: [(admit(k), item(v)) for k, v in pairs]

    def _union(self, kind: UnionOf) -> Convert:
        records = {tag: self._record(record) or _same for tag, record in kind.variants}

        def convert(value: dict[str, Any]) -> dict[str, Any]:
            tag = value[kind.tag]
            if tag not in records or value[tag] is None:
                raise WrongValueError(f"the tag {tag!r} is none of {', '.join(records)}, or has no record")
            return {kind.tag: tag} | dict.fromkeys(records) | {tag: records[tag](value[tag])}

        return convert


AVRO_WIRE = Wire(durations=True, entries=True)
PROTOBUF_WIRE = Wire(texts=True)


def _text_of(value: Any) -> str:
    return f"{value:f}" if isinstance(value, Decimal) else str(value.isoformat())


def _text_of_number(value: Decimal) -> str:
    return f"{without_zeros(value):f}"


def _reader_of_text(of: ValueType) -> Convert:
    if isinstance(of.kind, Decimals):
        kind = of.kind
        return lambda text: fitting_decimal(_decimal(text), kind)
    parse = {pa.date32(): dt.date.fromisoformat}.get(of.arrow, dt.time.fromisoformat)

    def read(text: str) -> Any:
        try:
            return parse(text)
        except ValueError as error:
            raise WrongValueError(f"{text[:80]!r} is no {of.said}: {error}") from error

    return read


def _decimal(text: str) -> Decimal:
    try:
        return Decimal(text)
    except InvalidOperation as error:
        raise WrongValueError(f"{text[:80]!r} is no number") from error


# --- Encoders and decoders --------------------------------------------------------------------------


class WireEncoder:
    """See Encoder. Converts the columns, then another encoder writes them."""

    def __init__(self, encoder: Encoder, schema: pa.Schema, wire: Wire) -> None:
        """`encoder`: of the wire's columns of this schema."""
        self._encoder = encoder
        self._wire = pa.schema([wire.field(field) for field in schema])
        changed = [ours.type != theirs.type for ours, theirs in zip(schema, self._wire, strict=True)]
        self._converts = [
            wire.writer(field) if is_ else None for field, is_ in zip(schema, changed, strict=True)
        ]

    def encode(self, batch: pa.RecordBatch) -> pa.Array:
        arrays = []
        for column, field, convert in zip(batch.columns, self._wire, self._converts, strict=True):
            if convert is not None:
                values = [None if value is None else convert(value) for value in column.to_pylist()]
                column = pa.array(values, field.type)
            arrays.append(column)
        return self._encoder.encode(pa.RecordBatch.from_arrays(arrays, schema=self._wire))


class WireDecoder:
    """See Decoder. Another decoder makes the wire's columns; a value that is none of the user's type makes
    its row bad."""

    def __init__(self, decoder: Decoder, schema: pa.Schema, types: Sequence[ValueType], wire: Wire) -> None:
        """`schema` and `types`: of the columns that are made; `decoder`: of the wire's, in the same order."""
        self._decoder = decoder
        self._schema = schema
        self._converts = [wire.reader(of) for of in types]

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


def _struct(fields: Iterable[tuple[str, str, Convert | None]]) -> Convert | None:
    """A struct of fields, each with its name, its name on the wire, and its function."""
    found = list(fields)
    if all(name == outside and convert is None for name, outside, convert in found):
        return None
    inner = [(name, outside, _inner(convert or _same)) for name, outside, convert in found]
    return lambda value: {name: convert(value[outside]) for name, outside, convert in inner}


def _each(convert: Convert) -> Convert:
    return lambda values: [None if value is None else convert(value) for value in values]


def _inner(convert: Convert) -> Convert:
    return lambda value: None if value is None else convert(value)


def _same(value: Any) -> Any:
    return value
