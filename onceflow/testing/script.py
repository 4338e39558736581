"""What a test gives to a source: rows and marks of event time, in the order of each split."""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa

from onceflow.runtime.durations import duration_ms
from onceflow.runtime.errors import UsageError
from onceflow.runtime.explained_calls import explained
from onceflow.runtime.records import WATERMARK_MAX_MS
from onceflow.runtime.types.columns_of_records import RecordWriter, WrongFieldError
from onceflow.runtime.types.record_types import describe_record, record_class
from onceflow.runtime.types.records_of_columns import (
    UnmadeRecordError,
    records_from_batch,
    validation_reason,
)
from onceflow.runtime.types.value_types import RecordType

Rows = Iterable[Any] | Mapping[str, Iterable[Any]]
"""Records of the source's type, dicts or an Arrow table; or these by the name of a split."""


@explained
@dataclass(frozen=True, slots=True)
class At:
    """A row that has a timestamp beside it, as a Kafka record has: for sources whose event time it is."""

    row: Any
    time: str | int
    """Since the epoch: a duration such as "10 s", or ms."""

    @property
    def time_ms(self) -> int:
        """The timestamp, in ms since 1970."""
        return duration_ms(self.time, "At.time")


@dataclass(frozen=True, slots=True)
class Mark:
    """Event time has come so far in a split: no later row is at or before it."""

    watermark_ms: int


@dataclass(slots=True)
class Script:
    """The splits of one source. It outlives slots and drivers, as a topic does."""

    uid: str
    schema: pa.Schema
    record_type: type | None
    splits: dict[str, list[At | Mark]] = field(default_factory=dict)
    has_ended: bool = False
    """Nothing comes any more: the source is bounded by what is there."""

    def add(self, rows: Rows) -> None:
        """Rows behind those that are there, in split "0" unless they name another. Raises UsageError naming
        the row that can't be one of this source's."""
        if self.has_ended:
            raise UsageError(f"source {self.uid!r} has ended: give its rows before finish()")
        by_split = rows if isinstance(rows, Mapping) else {"0": rows}
        for split, its in by_split.items():
            given = self._rows(its)
            made = [self._record(number, row) for number, row in enumerate(given)]
            self.batch(made)  # says now, and not in a slot, what is wrong with them
            self.splits.setdefault(split, []).extend(made)

    def mark(self, watermark_ms: int) -> None:
        """Event time comes so far in each split."""
        for items in self.splits.values():
            items.append(Mark(min(watermark_ms, WATERMARK_MAX_MS - 2)))

    def batch(self, rows: Sequence[At]) -> pa.RecordBatch:
        """The columns of rows."""
        described = None if self.record_type is None else describe_record(self.record_type)
        try:
            return RecordWriter(self.schema, described).write([at.row for at in rows])
        except WrongFieldError as error:
            raise UsageError(f"source {self.uid!r}, row {error.row}: {error}") from error

    def _record(self, number: int, row: Any) -> At:
        if isinstance(row, At):
            return At(self._as_record(number, row.row), row.time)
        return At(self._as_record(number, row), 0)

    def _as_record(self, number: int, row: Any) -> Any:
        if not isinstance(row, Mapping):
            return record_class(self.schema)(row) if self._takes_plain_values(row) else row
        try:
            if self.record_type is not None:
                return _made(describe_record(self.record_type), row)
            return record_class(self.schema)(*(row[name] for name in self.schema.names))
        except (TypeError, KeyError, ValueError) as error:
            where = f"source {self.uid!r}, row {number}"
            reason = validation_reason(error) or error
            raise UsageError(f"{where}: {row!r} does not have its fields: {reason}") from error

    def _takes_plain_values(self, row: Any) -> bool:
        """Whether a row is a plain value, as job.from_elements("ann", "bob") has them: the column `value`."""
        is_plain = isinstance(row, str | bytes | int | float | bool | dt.date | dt.time | dt.timedelta)
        return is_plain and self.record_type is None and self.schema.names == ["value"]

    def _rows(self, given: Any) -> list[Any]:
        """What is given, row by row; rows of Arrow as records of the source's type."""
        if not isinstance(given, pa.Table | pa.RecordBatch):
            return list(given)
        if self.record_type is None:
            found: list[Any] = given.to_pylist()
            return found
        batches = given.to_batches() if isinstance(given, pa.Table) else [given]
        try:
            return [row for batch in batches for row in records_from_batch(batch, self.record_type)]
        except UnmadeRecordError as error:
            raise UsageError(f"source {self.uid!r}, row {error.row}: {error}") from error


def _made(record: RecordType, row: Mapping[str, Any]) -> Any:
    """A record of its fields by their own names; a class of pydantic's knows some by others."""
    keywords = {field.name: field.keyword or field.name for field in record.fields}
    return record.of(**{keywords.get(name, name): value for name, value in row.items()})
