"""Python values and Arrow columns: records to columns and back; durations, nearest names."""

from __future__ import annotations

import datetime as dt
import difflib
import numbers
import re
from collections import namedtuple
from collections.abc import Callable, Iterable, Sequence
from operator import attrgetter, countOf
from types import NoneType
from typing import Any

import numpy as np
import pyarrow as pa

from onceflow.runtime.errors import OptionError
from onceflow.runtime.types.record_making import RecordMaker, record_call
from onceflow.runtime.types.record_types import (
    PLAIN,
    RecordType,
    ValueType,
    describe_record,
    describe_type,
    type_name,
)

_DURATION = re.compile(r"\s*(\d+(?:\.\d+)?)\s*(?:(ms|s|min|h|d)|(millisecond|second|minute|hour|day)s?)\s*")
_UNIT_MS = {"ms": 1, "s": 1_000, "min": 60_000, "h": 3_600_000, "d": 86_400_000}
_UNITS = {"millisecond": "ms", "second": "s", "minute": "min", "hour": "h", "day": "d"}

# What Arrow would convert without a word (1.5 to 1, a datetime to a date) is refused: only these go in.
_TAKEN: dict[pa.DataType, tuple[type, ...]] = {
    pa.string(): (str,),
    pa.int64(): (int, numbers.Integral),
    pa.float64(): (float, int, numbers.Real),
    pa.bool_(): (bool, np.bool_),
    pa.binary(): (bytes, bytearray, memoryview),
    pa.timestamp("ms", "UTC"): (dt.datetime,),
    pa.date32(): (dt.date,),
}
Convert = Callable[[Any], Any]


def duration_ms(value: str | int, option: str) -> int:
    """`"2 s"`, `"500 ms"`, `"1 min"`, `"1 h"`, `"1 d"`, the same in words (`"2 seconds"`, `"1 hour"`), or an
    int in ms, as ms.

    Raises OptionError naming the option if it is anything else, or negative.
    """
    if isinstance(value, int) and not isinstance(value, bool) and value >= 0:
        return value
    match = _DURATION.fullmatch(value) if isinstance(value, str) else None
    if match is None:
        example = 'write a number and ms, s, min, h or d, as in "2 s" or "500 ms"'
        raise OptionError(f"{option}={value!r} is no duration: {example}")
    return round(float(match[1]) * _UNIT_MS[match[2] or _UNITS[match[3]]])


def nearest(name: str, candidates: Iterable[str]) -> str:
    """` (did you mean 'amount'?)` or the empty string, to end a sentence. Case does not matter."""
    by_lower = {each.lower(): each for each in candidates}
    found = difflib.get_close_matches(name.lower(), list(by_lower), n=1)
    return f" (did you mean {by_lower[found[0]]!r}?)" if found else ""


# --- Types --------------------------------------------------------------------------------------


def arrow_schema(record_type: type) -> pa.Schema:
    """The columns of a record type, one for each field, in its order.

    Raises GraphError naming the type and the field for which there is no Arrow type.
    """
    return describe_record(record_type).schema


def arrow_type(python_type: Any, where: str) -> pa.DataType:
    """The Arrow type for values of a Python type. Raises GraphError that begins with `where`."""
    return describe_type(python_type, where).arrow


def python_name(arrow: pa.DataType) -> str:
    """What a value of this Arrow type is called in Python, for a sentence."""
    return next((type_name(t) for t, a in PLAIN.items() if a == arrow), str(arrow))


def record_class(schema: pa.Schema) -> type:
    """A named tuple for rows that have columns but no type of the user's."""
    return namedtuple("Record", schema.names, rename=True)


# --- Columns to Python values -------------------------------------------------------------------


def records_from_batch(batch: pa.RecordBatch, record_type: type) -> list[Any]:
    """One record for each row. The batch has a column for each field; other columns are left out."""
    return RecordReader(record_type).read(batch)


class RecordReader:
    """Makes records of a type from batches. Made when the graph is built, where the type can be described;
    travels to the slots and is used for many batches."""

    def __init__(self, record_type: type) -> None:
        """`record_type`: a record type, or one that `record_class` made."""
        self.type: RecordType | None = None
        """The description of the record type; None if the types of its fields are not known."""
        by_keyword: list[str] = []
        if any(getattr(base, "__annotations__", None) for base in record_type.__mro__):
            self.type = describe_record(record_type)
            self._columns = [(field.name, _converter(field.type)) for field in self.type.fields]
            by_keyword = [field.name for field in self.type.fields if field.by_keyword]
        else:
            self._columns = [(name, None) for name in record_type._fields]  # type: ignore[attr-defined]
        self._new = record_type
        self._make = RecordMaker(record_type, self.columns, by_keyword)

    @property
    def columns(self) -> tuple[str, ...]:
        """The columns that it reads, in the order of the type's fields."""
        return tuple(name for name, _ in self._columns)

    def read(self, batch: pa.RecordBatch) -> list[Any]:
        if not self._columns:
            return [self._new() for _ in range(batch.num_rows)]
        return self._make([_values(batch.column(name), convert) for name, convert in self._columns])


def values_from_array(array: pa.Array, of: ValueType) -> list[Any]:
    """The values of a column as Python values of this type (maps as dict, structs as record types)."""
    return _values(array, _converter(of))


def _values(array: pa.Array, convert: Convert | None) -> list[Any]:
    values: list[Any] = array.to_pylist()
    return values if convert is None else [None if v is None else convert(v) for v in values]


def _converter(of: ValueType) -> Convert | None:
    """Makes the Python type of what Arrow's to_pylist gives; None if that is the same."""
    if of.record is not None:
        fields = [(field.name, _converter(field.type) or _same) for field in of.record.fields]
        by_keyword = [field.name for field in of.record.fields if field.by_keyword]
        new = record_call(of.record.of, [name for name, _ in fields], by_keyword)
        return lambda v: new(*(None if v[n] is None else as_type(v[n]) for n, as_type in fields))
    if of.items is None:
        return None
    item = _converter(of.items)
    if pa.types.is_map(of.arrow):
        convert: Convert = item or _same
        return lambda v: {k: None if x is None else convert(x) for k, x in v}
    return None if item is None else _each(item)


def _each(convert: Convert) -> Convert:
    return lambda values: [None if v is None else convert(v) for v in values]


def _same(value: Any) -> Any:
    return value


# --- Python values to columns -------------------------------------------------------------------


class WrongFieldError(Exception):
    """A record's field has a value that its column can't take; `row` is the record's place."""

    def __init__(self, row: int, message: str) -> None:
        super().__init__(message)
        self.row = row


def batch_from_records(records: Sequence[Any], schema: pa.Schema) -> pa.RecordBatch:
    """Objects with an attribute for each column, as a batch. Raises WrongFieldError naming the field."""
    try:
        arrays = [array_from_values(list(map(attrgetter(f.name), records)), f) for f in schema]
    except (WrongFieldError, AttributeError) as error:
        raise _wrong_field(records, schema) or error from error
    return pa.RecordBatch.from_arrays(arrays, schema=schema)


def array_from_values(values: list[Any], field: pa.Field) -> pa.Array:
    """Values as a column; None only where the field is nullable. Raises WrongFieldError."""
    try:
        array = pa.array(_plain_values(values, field.type), type=field.type)
    except (
        pa.ArrowInvalid,
        pa.ArrowTypeError,
        OverflowError,
        TypeError,
        ValueError,
        AttributeError,
    ) as error:
        raise WrongFieldError(*_culprit(values, field)) from error
    if array.null_count and not field.nullable:
        raise WrongFieldError(
            values.index(None), f"field {field.name!r} is None, but is declared without None"
        )
    return array


def _plain_values(values: list[Any], arrow: pa.DataType) -> list[Any]:
    """What pa.array takes. Raises TypeError for a value that Arrow would change silently."""
    _check(values, arrow)
    convert = _unpacker(arrow)
    return values if convert is None else [None if v is None else convert(v) for v in values]


def _check(values: list[Any], arrow: pa.DataType) -> None:
    if taken := _TAKEN.get(arrow):
        if countOf(map(type, values), taken[0]) == len(values):
            return  # mostly; a set of all types takes half as much again
        for kind in set(map(type, values)) - {taken[0], NoneType}:
            if not issubclass(kind, taken) or (kind is dt.datetime and arrow == pa.date32()):
                raise TypeError(f"a {kind.__name__} is no {python_name(arrow)}")
    elif pa.types.is_list(arrow):
        _check_inner([x for v in values if v is not None for x in v], arrow.value_field)
    elif pa.types.is_map(arrow):
        _check_inner([x for v in values if v is not None for x in v.values()], arrow.item_field)
    elif pa.types.is_struct(arrow):
        for field in arrow:
            _check_inner([getattr(v, field.name) for v in values if v is not None], field)


def _check_inner(values: list[Any], field: pa.Field) -> None:
    """Arrow itself does not look at nulls inside a value."""
    if not field.nullable and None in values:
        raise TypeError(f"its {field.name} is None, but is declared without None")
    _check(values, field.type)


def _culprit(values: list[Any], field: pa.Field) -> tuple[int, str]:
    """The first value that fails alone, and the sentence about it."""
    for row, value in enumerate(values):
        try:
            pa.array(_plain_values([value], field.type), type=field.type)
        except Exception as error:  # whatever it is, the sentence carries it
            shown = repr(value)[:80]
            is_big = isinstance(value, int) and pa.types.is_integer(field.type)
            reason = "does not fit 64 bits" if is_big else str(error).splitlines()[0]
            return row, (
                f"field {field.name!r} is declared {python_name(field.type)} "
                f"but is {shown} ({type(value).__name__}): {reason}"
            )
    return 0, f"field {field.name!r} is declared {python_name(field.type)} but has values of other types"


def _wrong_field(records: Sequence[Any], schema: pa.Schema) -> WrongFieldError | None:
    """The first record with a bad field: by record first, then by field, as a user looks for it."""
    for row, record in enumerate(records):
        for field in schema:
            if not hasattr(record, field.name):
                known = ", ".join(schema.names)
                return WrongFieldError(
                    row, f"a {type(record).__name__} was returned; wanted is a record with the fields {known}"
                )
            try:
                array_from_values([getattr(record, field.name)], field)
            except WrongFieldError as error:
                return WrongFieldError(row, str(error))
    return None


def _unpacker(arrow: pa.DataType) -> Convert | None:
    """Makes what pa.array takes of a Python value; None if that is the same."""
    if pa.types.is_struct(arrow):
        fields: list[tuple[str, Convert]] = [(f.name, _unpacker(f.type) or _same) for f in arrow]
        return lambda v: {n: None if (x := getattr(v, n)) is None else plain(x) for n, plain in fields}
    if pa.types.is_list(arrow):
        item = _unpacker(arrow.value_type)
        return None if item is None else _each(item)
    if pa.types.is_map(arrow):
        convert: Convert = _unpacker(arrow.item_type) or _same
        return lambda v: [(k, None if x is None else convert(x)) for k, x in v.items()]
    return None
