"""Columns to the user's records and values."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import pyarrow as pa

from onceflow.runtime.types.declared_fields import is_record_type
from onceflow.runtime.types.decoding import Convert, decoder
from onceflow.runtime.types.record_making import RecordMaker
from onceflow.runtime.types.record_types import describe_record
from onceflow.runtime.types.value_types import RecordType, ValueType

VALUE: Final = "value"
"""The column of a stream of plain values."""


class UnmadeRecordError(Exception):
    """The user's type did not take what is in a row: the row's place, and why, with the field where it is
    known. Raised from what the type raised."""

    def __init__(self, row: int, message: str) -> None:
        super().__init__(message)
        self.row = row


def records_from_batch(batch: pa.RecordBatch, record_type: Any) -> list[Any]:
    """One record for each row. The batch has a column for each field; other columns are left out."""
    return RecordReader(record_type).read(batch)


class RecordReader:
    """Makes records of a type from batches. Made when the graph is built, where the type can be described;
    travels to the slots and is used for many batches."""

    def __init__(self, record_type: Any) -> None:
        """`record_type`: a record type, or one that `record_class` made."""
        self._make: Callable[[list[list[Any]]], list[Any]]
        self.type: RecordType | None = None
        """The description of the record type; None if the types of its fields are not known."""
        if _has_types(record_type):
            self.type = described = describe_record(record_type)
            self._new = described.of
            self._columns = [(field.name, decoder(field.type)) for field in described.fields]
            names = [field.keyword or field.name for field in described.fields]
            by_keyword = [field.keyword or field.name for field in described.fields if field.by_keyword]
            left_out = [field.name for field in described.fields if field.may_be_missing]
            self._make = RecordMaker(self._new, names, by_keyword, left_out)
        else:
            self._new = record_type
            self._columns = [(name, None) for name in record_type._fields]
            self._make = RecordMaker(record_type, self.columns)

    @property
    def columns(self) -> tuple[str, ...]:
        """The columns that it reads, in the order of the type's fields."""
        return tuple(name for name, _ in self._columns)

    @property
    def type_name(self) -> str:
        return self._new.__name__ if self.type is None else self.type.name

    def read(self, batch: pa.RecordBatch) -> list[Any]:
        """Raises UnmadeRecordError for the first row that the type does not take."""
        if not self._columns:
            return [self._new() for _ in range(batch.num_rows)]
        try:
            return self._make([_values(batch.column(name), convert) for name, convert in self._columns])
        except Exception as error:  # whatever a class of the user's raises
            raise self._unmade(batch) or error from error

    def _unmade(self, batch: pa.RecordBatch) -> UnmadeRecordError | None:
        """What is wrong with the first row that fails alone; None if none does."""
        for row in range(batch.num_rows):
            values = []
            alone = batch.slice(row, 1)
            for name, convert in self._columns:
                try:
                    values.append(_values(alone.column(name), convert))
                except Exception as error:
                    return _caused(UnmadeRecordError(row, f"field {name!r}: {reason_of(error)}"), error)
            try:
                self._make(values)
            except Exception as error:
                return _caused(UnmadeRecordError(row, reason_of(error)), error)
        return None


class ValueReader(RecordReader):
    """Gives the values of a stream that has nothing but plain values, for a function that takes those."""

    def __init__(self, of: ValueType, name: str) -> None:
        """`of`: their type; `name`: what the user calls it."""
        self.type = None
        self._name = name
        self._columns = [(VALUE, decoder(of))]
        self._make = _only_column

    @property
    def type_name(self) -> str:
        return self._name


def values_from_array(array: pa.Array, of: ValueType) -> list[Any]:
    """The values of a column as Python values of this type. Raises what a class of the user's raises, and
    WrongValueError."""
    return _values(array, decoder(of))


def reason_of(error: BaseException) -> str:
    """What the user's type says, in one line."""
    if (said := validation_reason(error)) is not None:
        return said
    return str(error).splitlines()[0] if isinstance(error, ValueError) and str(error) else repr(error)


def validation_reason(error: BaseException) -> str | None:
    """What an error of pydantic's says of the first field that is wrong; None: it is another error."""
    raised: Any = error
    is_pydantics = type(error).__name__ == "ValidationError" and hasattr(error, "errors")
    found: list[Any] = raised.errors() if is_pydantics else []
    if not found:
        return None
    field = ".".join(map(str, found[0]["loc"]))
    more = f" (and {len(found) - 1} more)" if len(found) > 1 else ""
    return f"field {field!r}: {found[0]['msg']}{more}" if field else f"{found[0]['msg']}{more}"


def _only_column(columns: list[list[Any]]) -> list[Any]:
    (values,) = columns
    return values


def _caused(unmade: UnmadeRecordError, error: Exception) -> UnmadeRecordError:
    unmade.__cause__ = error
    return unmade


def _has_types(record_type: Any) -> bool:
    """Whether fields are annotated; those of a named tuple need not be."""
    is_bare = isinstance(record_type, type) and issubclass(record_type, tuple)
    return is_record_type(record_type) and not (
        is_bare and not any(getattr(base, "__annotations__", None) for base in record_type.__mro__)
    )


def _values(array: pa.Array, convert: Convert | None) -> list[Any]:
    values: list[Any] = array.to_pylist()
    return values if convert is None else [None if v is None else convert(v) for v in values]
