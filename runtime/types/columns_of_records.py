"""The user's records and values to columns."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from operator import attrgetter
from typing import Any

import pyarrow as pa

from onceflow.runtime.types.each_called import called_for_each
from onceflow.runtime.types.encoding import WrongValueError, encoder, field_getter
from onceflow.runtime.types.kinds_taken import check_kinds, python_name
from onceflow.runtime.types.value_types import RecordType, ValueType

Convert = Callable[[Any], Any]


class WrongFieldError(Exception):
    """A record's field has a value that its column can't take; `row` is the record's place."""

    def __init__(self, row: int, message: str) -> None:
        super().__init__(message)
        self.row = row


class RecordWriter:
    """Makes batches of records of one type. Made when the graph is built; travels to the slots."""

    def __init__(self, schema: pa.Schema, record: RecordType | None = None) -> None:
        """`schema`: the columns; `record`: the type that has them. None: values are what the columns' types
        say, and a record has an attribute for each."""
        self.schema = schema
        self._record = record
        self._columns = [_column(field, record) for field in schema]

    @classmethod
    def of(cls, record: RecordType) -> RecordWriter:
        return cls(record.schema, record)

    def write(self, records: Sequence[Any]) -> pa.RecordBatch:
        """Raises WrongFieldError naming the field."""
        if self._record is not None and self._record.is_dict:
            self._refuse_strange_keys(records)
        try:
            arrays = [
                array_from_values(called_for_each(get, records), field, of)
                for field, of, get in self._columns
            ]
        except (WrongFieldError, WrongValueError, AttributeError) as error:
            raise self._wrong_field(records) or error from error
        return pa.RecordBatch.from_arrays(arrays, schema=self.schema)

    def _refuse_strange_keys(self, records: Sequence[Any]) -> None:
        """What a TypedDict does not have would be left out without a word."""
        names = set(self.schema.names)
        for row, record in enumerate(records):
            if isinstance(record, dict) and (strange := record.keys() - names):
                raise WrongFieldError(
                    row,
                    f"a dict with {min(map(repr, strange))} was returned; expected a record with the fields "
                    f"{', '.join(self.schema.names)}",
                )

    def _wrong_field(self, records: Sequence[Any]) -> WrongFieldError | None:
        """The first record with a bad field: by record first, then by field, as a user looks for it."""
        is_dict = self._record is not None and self._record.is_dict
        for row, record in enumerate(records):
            for field, of, get in self._columns:
                try:
                    value = get(record)
                except (AttributeError, WrongValueError) as error:
                    what = (
                        str(error) if is_dict and isinstance(record, dict) else f"a {type(record).__name__}"
                    )
                    known = ", ".join(self.schema.names)
                    return WrongFieldError(
                        row, f"{what} was returned; expected a record with the fields {known}"
                    )
                try:
                    array_from_values([value], field, of)
                except WrongFieldError as error:
                    return WrongFieldError(row, str(error))
        return None


def _column(field: pa.Field, record: RecordType | None) -> tuple[pa.Field, ValueType | None, Convert]:
    """The column, the type of its values (None: Arrow's own), and what gets one out of a record."""
    declared = None if record is None else record.field(field.name)
    if record is None or declared is None:
        return field, None, attrgetter(field.name)
    get = field_getter(record, declared) if record.is_dict else attrgetter(field.name)
    return field, declared.type, get


def batch_from_records(records: Sequence[Any], schema: pa.Schema) -> pa.RecordBatch:
    """Objects with an attribute for each column, whose values are plain, as a batch. Raises WrongFieldError
    naming the field."""
    return RecordWriter(schema).write(records)


def array_from_values(values: list[Any], field: pa.Field, of: ValueType | None = None) -> pa.Array:
    """Values as a column; None only where the field is nullable. `of`: their type; None: what Arrow's type
    says. Raises WrongFieldError."""
    said = python_name(field.type) if of is None or not pa.types.is_nested(field.type) else of.said
    of = None if of is None or of.is_plain else of
    try:
        array = pa.array(_arrow_values(values, field.type, of), type=field.type)
    except (
        pa.ArrowInvalid,
        pa.ArrowTypeError,
        OverflowError,
        TypeError,
        ValueError,
        AttributeError,
    ) as error:
        raise WrongFieldError(*_culprit(values, field, of, said)) from error
    if array.null_count and not field.nullable:
        raise WrongFieldError(
            values.index(None), f"field {field.name!r} is None, but is declared without None"
        )
    return array


def _arrow_values(values: list[Any], arrow: pa.DataType, of: ValueType | None) -> list[Any]:
    """What pa.array takes. Raises TypeError or ValueError for a value that Arrow would change silently."""
    if of is None:
        check_kinds(values, arrow)
        convert = _unpacker(arrow)
    else:
        convert = encoder(of)
    return values if convert is None else [None if v is None else convert(v) for v in values]


def _culprit(values: list[Any], field: pa.Field, of: ValueType | None, said: str) -> tuple[int, str]:
    """The first value that fails alone, and the sentence about it. `said`: what a plain type is called."""
    name = said if of is None else of.said
    for row, value in enumerate(values):
        try:
            pa.array(_arrow_values([value], field.type, of), type=field.type)
        except Exception as error:  # whatever it is, the sentence carries it
            shown = repr(value)[:80]
            is_big = isinstance(value, int) and pa.types.is_integer(field.type)
            if isinstance(error, AttributeError):  # it has none of the fields of a record
                kind = type(value).__name__
                reason = f"{'an' if kind[0] in 'aeiou' else 'a'} {kind} is no {name}"
            else:
                reason = "does not fit 64 bits" if is_big else str(error).splitlines()[0]
            return row, (
                f"field {field.name!r} is declared {name} but is {shown} ({type(value).__name__}): {reason}"
            )
    return 0, f"field {field.name!r} is declared {name} but has values of other types"


# --- Plain values ---------------------------------------------------------------------------------


def _unpacker(arrow: pa.DataType) -> Convert | None:
    """Makes what pa.array takes of a plain value; None if that is the same."""
    if pa.types.is_struct(arrow):
        fields: list[tuple[str, Convert]] = [(f.name, _unpacker(f.type) or _same) for f in arrow]
        return lambda v: {n: None if (x := getattr(v, n)) is None else plain(x) for n, plain in fields}
    if pa.types.is_list(arrow):
        item = _unpacker(arrow.value_type)
        return None if item is None else lambda values: [None if v is None else item(v) for v in values]
    if pa.types.is_map(arrow):
        convert: Convert = _unpacker(arrow.item_type) or _same
        return lambda v: [(k, None if x is None else convert(x)) for k, x in v.items()]
    return None


def _same(value: Any) -> Any:
    return value
