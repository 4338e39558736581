"""JSON values to columns.

Each value is decoded into a struct that is made for the columns asked for, then the columns are built.
That is as fast as the bulk decoders of JSON lines, and has none of their traps: no value can merge with
its neighbour, vanish because it is blank, or come out null because it overflows. It is the judge of what the
kernels do.
"""

from __future__ import annotations

import datetime as dt
import decimal
from collections.abc import Callable, Sequence
from typing import Any, Literal

import msgspec
import numpy as np
import pyarrow as pa

from onceflow.connectors.formats.format import (
    NO_VALUE,
    BadValue,
    Decoded,
    Values,
    as_list,
    rows_without_columns,
)
from onceflow.connectors.formats.json.arrow_values import Convert, converter, zoned
from onceflow.connectors.formats.json.structs import Reading, Ready, struct_of
from onceflow.runtime.types.column_forms import outside_name
from onceflow.runtime.types.encoding import WrongValueError
from onceflow.runtime.types.value_types import RecordType, ValueType

OnNull = Literal["error", "skip", "nulls"]

_WORDS = (pa.int64(), pa.int32(), pa.int16(), pa.int8(), pa.float64())
"""Types whose columns NumPy makes of Python's numbers, in half of the time that Arrow takes."""
_KEPT = (bytes, dt.datetime, dt.date, dt.time, dt.timedelta, decimal.Decimal)
# What one value can raise: malformed or of the wrong type; not UTF-8; nested too deeply.
_BAD = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)
# What is raised for a Python value that Arrow's type, or the user's, can't hold.
_UNFIT = (OverflowError, pa.ArrowInvalid, WrongValueError, RecursionError)


def has_plain_types(schema: pa.Schema) -> bool:
    """Whether all columns are bool, integers, floats or text."""
    is_ = pa.types
    return all(
        is_.is_boolean(arrow)
        or is_.is_integer(arrow)
        or arrow in (pa.float32(), pa.float64(), pa.string(), pa.large_string())
        for arrow in schema.types
    )


class JsonDecoder:
    """See Decoder. `record_type` is where the schema came from, for default values and types of values."""

    def __init__(
        self,
        schema: pa.Schema,
        record_type: RecordType | None,
        on_null: OnNull,
        reading: Reading = Reading(),  # noqa: B008 - frozen
    ) -> None:
        self._schema = schema
        struct = struct_of("Record", schema, record_type, reading)
        self._decode = msgspec.json.Decoder(struct, strict=True).decode
        self._columns = [_column(i, field, record_type, reading) for i, field in enumerate(schema)]
        self._on_null = on_null
        self._null = None if on_null != "nulls" else struct(**{f"f{i}": None for i in range(len(schema))})

    @property
    def schema(self) -> pa.Schema:
        return self._schema

    def decode(self, values: Values) -> Decoded:
        """Decode all values at once; again, with a look at each, only if one of them is bad."""
        listed, decode = as_list(values), self._decode
        try:
            return Decoded(self._batch([decode(value) for value in listed]), None)  # type: ignore[arg-type]
        except (*_BAD, *_UNFIT, TypeError):
            return self._decode_one_by_one(listed)

    def _decode_one_by_one(self, values: Sequence[bytes | None]) -> Decoded:
        good: list[Any] = []
        rows: list[int] = []
        bad: list[BadValue] = []
        for row, value in enumerate(values):
            if value is None:
                if self._on_null == "error":
                    bad.append(BadValue(row, NO_VALUE))
                    continue
                if self._on_null == "skip":
                    continue
                record = self._null
            else:
                try:
                    record = self._decode(value)
                except _BAD as error:
                    bad.append(BadValue(row, _reason(error, value)))
                    continue
            good.append(record)
            rows.append(row)
        try:
            batch = self._batch(good)
        except _UNFIT:
            good, rows, unfit = self._without_unfit(good, rows)
            batch = self._batch(good)
            bad = sorted([*bad, *unfit])
        return Decoded(batch, np.array(rows, np.int64), bad)

    def _without_unfit(
        self, records: list[Any], rows: list[int]
    ) -> tuple[list[Any], list[int], list[BadValue]]:
        """Rare: well-formed values that Arrow's types can't hold (a uint64 above its maximum)."""
        good: list[Any] = []
        good_rows: list[int] = []
        unfit: list[BadValue] = []
        for record, row in zip(records, rows, strict=True):
            try:
                self._batch([record])
            except _UNFIT as error:
                unfit.append(BadValue(row, str(error)))
            else:
                good.append(record)
                good_rows.append(row)
        return good, good_rows, unfit

    def _batch(self, records: list[Any]) -> pa.RecordBatch:
        if not self._columns:
            return rows_without_columns(len(records))
        return pa.RecordBatch.from_arrays([column(records) for column in self._columns], schema=self._schema)


def _reason(error: Exception, value: bytes) -> str:
    if isinstance(error, RecursionError):
        return "it is nested too deeply"
    if not value.strip():
        return "the value is blank"
    if isinstance(error, UnicodeDecodeError) or "UTF-8" in str(error):  # by version of msgspec
        return f"it is not UTF-8{_first_wrong_byte(value)}"
    return str(error)


def _first_wrong_byte(value: bytes) -> str:
    try:
        value.decode()
    except UnicodeDecodeError as wrong:
        return f": {wrong.reason} (byte 0x{value[wrong.start]:02x} at {wrong.start})"
    return ""


def _column(
    index: int, field: pa.Field, record: RecordType | None, reading: Reading
) -> Callable[[list[Any]], pa.Array]:
    """Builds one column from decoded structs. Generated source: `[r.f0 for r in records]` is a third
    faster than the same with attrgetter."""
    arrow = field.type
    declared = None if record is None else record.field(field.name)
    values = eval(f"lambda records: [r.f{index} for r in records]")  # only our own number goes in
    if declared is not None and not declared.type.is_plain:
        return _typed_column(field, declared.type, values, reading)
    convert = zoned(arrow, reading.zone)
    if pa.types.is_nested(arrow):
        nested = values
        values = lambda records: msgspec.to_builtins(nested(records), builtin_types=_KEPT)  # noqa: E731
    if convert is not None:
        return _converted_column(field, values, convert)
    has_default = declared is not None and declared.default is not None
    if arrow in _WORDS and not field.nullable and not has_default:  # msgspec has checked the type and range
        dtype = arrow.to_pandas_dtype()
        return lambda records: pa.array(np.fromiter(values(records), dtype, len(records)), arrow)
    return lambda records: pa.array(values(records), arrow)


def _typed_column(
    field: pa.Field, of: ValueType, values: Callable[[list[Any]], list[Any]], reading: Reading
) -> Callable[[list[Any]], pa.Array]:
    convert = converter(of, reading)

    def plain(value: Any) -> Any:
        if isinstance(value, Ready):
            return value.plain
        return value if convert is None else convert(value)

    return _converted_column(field, values, plain)


def _converted_column(
    field: pa.Field, values: Callable[[list[Any]], list[Any]], convert: Convert
) -> Callable[[list[Any]], pa.Array]:
    def column(records: list[Any]) -> pa.Array:
        try:
            converted = [None if value is None else convert(value) for value in values(records)]
        except WrongValueError as error:
            raise WrongValueError(f"{error} - at `$.{outside_name(field)}`") from error
        return pa.array(converted, field.type)

    return column


def has_factory(record_type: RecordType | None, name: str) -> bool:
    """Whether each record gets a default of its own, from a function of the user's."""
    default = None if record_type is None else record_type.defaults.get(name)
    return default is not None and default.factory is not None
