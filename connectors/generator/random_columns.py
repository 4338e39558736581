"""Columns of made-up values: a value hangs on the seed, the column's name and the record's number alone.
Pure."""

from __future__ import annotations

import zlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from onceflow.connectors.generator.made_up_values import values_of
from onceflow.runtime.errors import GraphError
from onceflow.runtime.nearest import nearest
from onceflow.runtime.records import Int64s
from onceflow.runtime.types.columns_of_records import WrongFieldError, array_from_values
from onceflow.runtime.types.value_types import Plain, RecordType, ValueType

START_MS = 1_767_225_600_000
"""The event time of the first record: 2026-01-01T00:00:00Z. The clock would make each run another one."""
_CHOICES = 10
_ODD = (0x9E3779B97F4A7C15, 0xBF58476D1CE4E5B9, 0x94D049BB133111EB)
_DAY_MS = 86_400_000
UInt64s = npt.NDArray[np.uint64]


@dataclass(frozen=True)
class RandomColumns:
    """Makes the columns of a schema. `fields` says what is in a column:

    a list          one of these values
    (low, high)     a number from low to high, both included
    "number"        the number of the record, from 0
    "time"          when it happens: one record after the other, `per_s` in a second

    What is not said: numbers from 0 to 99, floats from 0 to 1, texts such as `user-3`, times, and of all
    other types of a record some values, such as the members of an Enum.
    """

    schema: pa.Schema
    seed: int
    per_s: float
    fields: Mapping[str, Any]
    record: RecordType | None = None
    """The type that has the columns; None: values are what the columns' types say."""

    def check(self, where: str) -> None:
        """Raises GraphError, which begins with `where`, for a column for which there are no values."""
        for name in self.fields:
            if name not in self.schema.names:
                raise GraphError(
                    f"{where}: fields has {name!r}, which is not a column{nearest(name, self.schema.names)}"
                )
        for field in self.schema:
            try:
                self._column(field, np.arange(2, dtype=np.int64))
            except (pa.ArrowException, TypeError, ValueError, OverflowError) as error:
                raise GraphError(f"{where}: {self._refusal(field, error)}") from error

    def _refusal(self, field: pa.Field, error: Exception) -> str:
        column = f"column {field.name!r}, which is {field.type}"
        if field.name not in self.fields:
            return (
                f"there are no made-up values for {column}: give a list of values in fields=, or a function "
                "of the record's number instead of the type"
            )
        return (
            f"fields[{field.name!r}]={self.fields[field.name]!r} is nothing to fill {column}: give a list of "
            f'values, (low, high), "number" or "time" ({str(error).splitlines()[0]})'
        )

    def batch(self, numbers: Int64s, columns: Sequence[str]) -> pa.RecordBatch:
        """These columns of the records with these numbers."""
        fields = [self.schema.field(name) for name in columns]
        return pa.RecordBatch.from_arrays(
            [self._column(f, numbers) for f in fields], schema=pa.schema(fields)
        )

    def _column(self, field: pa.Field, numbers: Int64s) -> pa.Array:
        declared = None if self.record is None else self.record.field(field.name)
        of = None if declared is None else declared.type
        said = self.fields.get(field.name, _default(field, of))
        if isinstance(said, list):
            values = _choices(said, field, of)
            return values.take(pa.array(self._hashes(field.name, numbers) % np.uint64(len(said))))
        if isinstance(said, tuple) and len(said) == 2:
            return self._between(field, said[0], said[1], numbers)
        if said == "number":
            return pa.array(numbers).cast(field.type)
        if said == "time":
            return self._times(field.type, numbers)
        raise ValueError(f"{said!r} is none of these")

    def _between(self, field: pa.Field, low: float, high: float, numbers: Int64s) -> pa.Array:
        hashes = self._hashes(field.name, numbers)
        if pa.types.is_floating(field.type):
            part = (hashes >> np.uint64(11)).astype(np.float64) / (1 << 53)
            return pa.array(low + part * (high - low)).cast(field.type)
        count = int(high) - int(low) + 1
        if count < 1:
            raise ValueError(f"there is no number from {low} to {high}")
        return pa.array((hashes % np.uint64(count)).astype(np.int64) + int(low)).cast(field.type)

    def _times(self, arrow: pa.DataType, numbers: Int64s) -> pa.Array:
        times_ms = START_MS + (numbers * (1_000 / self.per_s)).astype(np.int64)
        if pa.types.is_timestamp(arrow):
            return pa.array(times_ms, pa.timestamp("ms", arrow.tz)).cast(arrow)
        if pa.types.is_date(arrow):
            return pa.array((times_ms // _DAY_MS).astype(np.int32), pa.date32()).cast(arrow)
        return pa.array(times_ms).cast(arrow)

    def _hashes(self, name: str, numbers: Int64s) -> UInt64s:
        """64 random bits for each number (splitmix64), others for each seed and name."""
        start = np.uint64(zlib.crc32(f"{self.seed} {name}".encode())) << np.uint64(32)
        mixed = (numbers.astype(np.uint64) + start + np.uint64(1)) * np.uint64(_ODD[0])
        mixed = (mixed ^ (mixed >> np.uint64(30))) * np.uint64(_ODD[1])
        mixed = (mixed ^ (mixed >> np.uint64(27))) * np.uint64(_ODD[2])
        return mixed ^ (mixed >> np.uint64(31))


_DEFAULTS: Sequence[tuple[Callable[[pa.DataType], bool], Callable[[str], Any]]] = (
    (pa.types.is_integer, lambda name: (0, 99)),
    (pa.types.is_floating, lambda name: (0, 1)),
    (pa.types.is_boolean, lambda name: [False, True]),
    (pa.types.is_string, lambda name: [f"{name}-{n}" for n in range(_CHOICES)]),
    (pa.types.is_binary, lambda name: [f"{name}-{n}".encode() for n in range(_CHOICES)]),
    (pa.types.is_temporal, lambda name: "time"),
)


def _choices(values: list[Any], field: pa.Field, of: ValueType | None) -> pa.Array:
    """The values as a column. Raises ValueError."""
    if of is None:
        return pa.array(values, field.type)
    try:
        return array_from_values(values, field, of)
    except WrongFieldError as error:
        raise ValueError(str(error)) from error


def _default(field: pa.Field, of: ValueType | None) -> Any:
    if of is not None and not isinstance(of.kind, Plain):
        return values_of(of, field.name)
    found = (make(field.name) for is_kind, make in _DEFAULTS if is_kind(field.type))
    return next(found, None)
