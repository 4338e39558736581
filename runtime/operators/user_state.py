"""UserColumn: one value of the user's per row, such as an accumulator; typed, so that it can be stored."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from onceflow.runtime.errors import OnceflowError, UserFunctionError
from onceflow.runtime.records import Indices
from onceflow.runtime.state.object_codecs import ObjectCodec, decoded, encoded
from onceflow.runtime.state.table import Frozen, LiveRows
from onceflow.runtime.types.columns_of_records import RecordWriter, WrongFieldError, array_from_values
from onceflow.runtime.types.record_types import record_class
from onceflow.runtime.types.records_of_columns import (
    RecordReader,
    UnmadeRecordError,
    reason_of,
    values_from_array,
)
from onceflow.runtime.types.value_types import RecordOf, ValueType

EMPTY: Any = object()
"""What a row holds before its first value; None can be a value."""


@dataclass(frozen=True, slots=True)
class UserType:
    """A type of the user's and how it is stored. `encode` raises UserFunctionError for other values."""

    encode: Callable[[list[Any]], pa.Array]
    decode: Callable[[pa.Array], list[Any]]
    is_immutable: bool
    """No code can change a value in place."""
    is_nullable: bool = False
    """None is one of its values."""


def declared_type(declared: ValueType, field: pa.Field, what: str) -> UserType:
    """Values of a declared type; `what` begins error messages."""

    def encode(values: list[Any]) -> pa.Array:
        return typed_array(values, field, what, declared)

    def decode(array: pa.Array) -> list[Any]:
        return kept_values(array, declared, what)

    return UserType(encode, decode, declared.is_immutable, declared.nullable)


def object_type(objects: ObjectCodec, state: str) -> UserType:
    """Objects of any class, as bytes."""

    def encode(values: list[Any]) -> pa.Array:
        return pa.array(encoded(objects, state, values), pa.binary())

    def decode(array: pa.Array) -> list[Any]:
        return decoded(objects, state, array.to_pylist())

    return UserType(encode, decode, is_immutable=False)


def kept_values(array: pa.Array, of: ValueType, what: str) -> list[Any]:
    """Values of this type out of a checkpoint. Raises UserFunctionError, which begins with `what`, if the
    program's type does not take one any more."""
    try:
        return values_from_array(array, of)
    except OnceflowError:
        raise
    except Exception as error:  # whatever a class of the user's raises
        raise UserFunctionError(f"{what}, as the checkpoint has it: {reason_of(error)}") from error


def typed_array(values: list[Any], field: pa.Field, what: str, of: ValueType | None = None) -> pa.Array:
    """The user's values, of this type, as a column. Raises UserFunctionError, which begins with `what`."""
    try:
        return array_from_values(values, field, of)
    except WrongFieldError as error:
        raise UserFunctionError(f"{what}: {error}") from error


class RecordRows:
    """A stream's rows as the user's records and back. Without a type of the user's they are named tuples.
    Made when the graph is built; travels to the slots."""

    def __init__(self, schema: pa.Schema, record_type: type | None, what: str) -> None:
        self._reader = RecordReader(record_type or record_class(schema))
        self._what = what
        self.type_name = self._reader.type_name
        self.schema = pa.schema([schema.field(name) for name in self._reader.columns])
        """The columns that a record has: of the stream's, in the order of the type."""
        self.is_immutable = self._reader.type is not None and self._reader.type.is_immutable
        self._writer = RecordWriter(self.schema, self._reader.type)

    @property
    def reads(self) -> ValueType:
        """The type of a record that was kept: the user's, or what the columns say."""
        of, arrow = self._reader.type, pa.struct(list(self.schema))
        if of is None:
            return ValueType(arrow, True, self.is_immutable)
        return ValueType(arrow, True, self.is_immutable, RecordOf(of), of.name)

    def read(self, batch: pa.RecordBatch) -> list[Any]:
        """Raises UnmadeRecordError."""
        return self._reader.read(batch)

    def write(self, records: Sequence[Any]) -> pa.RecordBatch:
        """Raises UserFunctionError for a record with a wrong field."""
        try:
            return self._writer.write(records)
        except WrongFieldError as error:
            raise UserFunctionError(f"{self._what}: {error}") from error

    def _kept(self, structs: pa.Array) -> list[Any]:
        try:
            return self.read(pa.RecordBatch.from_struct_array(structs))
        except UnmadeRecordError as error:
            raise UserFunctionError(f"{self._what}: a {self.type_name} of its state: {error}") from error

    def as_user_type(self) -> UserType:
        return UserType(
            lambda records: self.write(records).to_struct_array(),
            self._kept,
            self.is_immutable,
        )


class UserColumn:
    """Values of a UserType in a list by row; EMPTY where there is none yet."""

    def __init__(self, user_type: UserType) -> None:
        self._type = user_type
        self.is_immutable = user_type.is_immutable
        self.values: list[Any] = []

    def grow(self, size: int) -> None:
        self.values.extend([EMPTY] * (size - len(self.values)))

    def clear(self, rows: Indices) -> None:
        """Make these rows EMPTY."""
        for row in rows.tolist():
            self.values[row] = EMPTY

    def keep(self, rows: Indices) -> None:
        """Renumber: keep these rows only, in this order."""
        mine = self.values
        self.values = [mine[row] for row in rows.tolist()]

    def freeze(self, live: LiveRows) -> Frozen:
        """The values of these rows, lowest first, as they are now; it is called with some of these rows.

        Values that the user's code could change in place become Arrow here, on the task's thread;
        others later, on the thread that asks.
        """
        if not self._type.is_immutable:
            of = live.all()
            array = self._encode([self.values[row] for row in of.tolist()])
            return lambda rows: array.take(pa.array(np.searchsorted(of, rows)))
        values = live.copied(self.values)
        return lambda rows: self._encode(values(rows))

    def _encode(self, chosen: list[Any]) -> pa.Array:
        """A row without a value, as a window's is that has sent all it had, is null."""
        there = [value for value in chosen if value is not EMPTY]
        array = self._type.encode(there)
        if len(there) == len(chosen):
            return array
        is_empty = np.array([value is EMPTY for value in chosen], np.bool_)
        return array.take(pa.array(np.cumsum(~is_empty) - 1, mask=is_empty))

    def load(self, rows: Indices, state: pa.Array) -> None:
        if state.null_count and not self._type.is_nullable:
            is_there = state.is_valid()
            rows, state = rows[is_there.to_numpy(zero_copy_only=False)], state.filter(is_there)
        for row, value in zip(rows.tolist(), self._type.decode(state), strict=True):
            self.values[row] = value
