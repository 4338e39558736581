"""JSON values to columns.

Each value is decoded into a struct that is made for the columns asked for, then the columns are built.
That is as fast as the bulk decoders of JSON lines, and has none of their traps: no value can merge with
its neighbour, vanish because it is blank, or come out null because it overflows. It is the judge of what the
kernels do.
"""

from __future__ import annotations

import datetime as dt
import decimal
import re
from collections.abc import Callable, Iterable, Sequence
from typing import Annotated, Any, Literal

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
from onceflow.runtime.errors import OptionError
from onceflow.runtime.types.record_types import RecordType, ValueType

OnNull = Literal["error", "skip", "nulls"]

_FLOAT32_MAX = float(np.finfo(np.float32).max)
_WORDS = (pa.int64(), pa.int32(), pa.int16(), pa.int8(), pa.float64())
"""Types whose columns NumPy makes of Python's numbers, in half of the time that Arrow takes."""
_KEPT = (bytes, dt.datetime, dt.date, decimal.Decimal)
_UNREADABLE_NAME = re.compile(r'[\x00-\x1f"\\]')
# What one value can raise: malformed or of the wrong type; not UTF-8; nested too deeply.
_BAD = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)
# What Arrow raises for a Python value that its type can't hold.
_UNFIT = (OverflowError, pa.ArrowInvalid)


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
    """See Decoder. `record_type` is where the schema came from, for default values."""

    def __init__(
        self,
        schema: pa.Schema,
        record_type: RecordType | None,
        on_null: OnNull,
    ) -> None:
        self._schema = schema
        struct = _struct("Record", schema, record_type)
        self._decode = msgspec.json.Decoder(struct, strict=True).decode
        defaults = {} if record_type is None else record_type.defaults
        self._columns = [_column(i, field, field.name in defaults) for i, field in enumerate(schema)]
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
    if isinstance(error, UnicodeDecodeError):
        return f"a string is not UTF-8: {error.reason} (byte 0x{error.object[error.start]:02x})"
    if not value.strip():
        return "the value is blank"
    return str(error)


def _column(index: int, field: pa.Field, has_default: bool) -> Callable[[list[Any]], pa.Array]:
    """Builds one column from decoded structs. Generated source: `[r.f0 for r in records]` is a third
    faster than the same with attrgetter."""
    arrow = field.type
    values = eval(f"lambda records: [r.f{index} for r in records]")  # only our own number goes in
    if pa.types.is_nested(arrow):
        return lambda records: pa.array(msgspec.to_builtins(values(records), builtin_types=_KEPT), arrow)
    if arrow in _WORDS and not field.nullable and not has_default:  # msgspec has checked the type and range
        dtype = arrow.to_pandas_dtype()
        return lambda records: pa.array(np.fromiter(values(records), dtype, len(records)), arrow)
    return lambda records: pa.array(values(records), arrow)


# --- The struct that a value is decoded into ------------------------------------------------------


def _struct(name: str, fields: Iterable[pa.Field], record_type: RecordType | None) -> type[msgspec.Struct]:
    """Attributes f0, f1, ... under the columns' own names in JSON, which may be no Python names.

    A field of a record type may be missing if it has a default, and then has it. A nullable column of
    an Arrow schema may be missing, and is then null. Everything else must be there.
    """
    names: dict[str, str] = {}
    definitions: list[Any] = []
    for index, field in enumerate(fields):
        if _UNREADABLE_NAME.search(field.name):
            raise OptionError(f"Json can't read a field named {field.name!r}: quotes, backslashes, controls")
        attribute = f"f{index}"
        names[attribute] = field.name
        declared = None if record_type is None else record_type.field(field.name)
        python = _field_type(field, None if declared is None else declared.type)
        if declared is not None and declared.default is not None:
            definitions.append((attribute, python, msgspec.field(default_factory=declared.default.make)))
        elif record_type is None and field.nullable:
            definitions.append((attribute, python, None))
        else:
            definitions.append((attribute, python))
    return msgspec.defstruct(name, definitions, rename=names, kw_only=True, gc=False)


def has_factory(record_type: RecordType | None, name: str) -> bool:
    """Whether each record gets a default of its own, from a function of the user's."""
    default = None if record_type is None else record_type.defaults.get(name)
    return default is not None and default.factory is not None


def _python_type(arrow: pa.DataType, declared: ValueType | None) -> Any:
    """What msgspec is told to decode a value of this Arrow type from."""
    is_ = pa.types
    items = None if declared is None else declared.items
    if is_.is_list(arrow) or is_.is_large_list(arrow):
        return list[_field_type(arrow.value_field, items)]  # type: ignore[misc]
    if is_.is_map(arrow) and arrow.key_type in (pa.string(), pa.large_string()):
        return dict[str, _field_type(arrow.item_field, items)]  # type: ignore[misc]
    if is_.is_struct(arrow):
        return _struct("Nested", list(arrow), None if declared is None else declared.record)
    if is_.is_timestamp(arrow) and arrow.unit != "ns":  # Python's datetime ends at microseconds
        return Annotated[dt.datetime, msgspec.Meta(tz=arrow.tz is not None)]
    if is_.is_decimal(arrow):  # Arrow finds what has too many digits
        return decimal.Decimal
    if is_.is_integer(arrow):
        return _integer(arrow.bit_width, is_.is_signed_integer(arrow))
    if arrow == pa.float32():
        return Annotated[float, msgspec.Meta(ge=-_FLOAT32_MAX, le=_FLOAT32_MAX)]
    plain = {
        pa.bool_(): bool, pa.float64(): float, pa.string(): str, pa.large_string(): str,
        pa.binary(): bytes, pa.large_binary(): bytes, pa.date32(): dt.date,
    }  # fmt: skip
    if arrow in plain:
        return plain[arrow]
    raise OptionError(
        f"Json has no way to decode the Arrow type {arrow}; there are bool, int8 to uint64, float, double, "
        "decimal, string, binary (base64), timestamp, date32, list, struct, and map with string keys"
    )


def _field_type(field: pa.Field, declared: ValueType | None) -> Any:
    python: Any = _python_type(field.type, declared)
    return python | None if field.nullable else python


def _integer(bit_width: int, is_signed: bool) -> Any:
    if not is_signed:
        # msgspec takes no bound above int64: what is too large for a uint64 is found by Arrow.
        return Annotated[int, msgspec.Meta(ge=0, le=None if bit_width == 64 else (1 << bit_width) - 1)]
    return Annotated[int, msgspec.Meta(ge=-(1 << (bit_width - 1)), le=(1 << (bit_width - 1)) - 1)]
