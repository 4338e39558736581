"""Records for which a function of the user's raised, where the job is to go on: dropped and counted, or sent
to a side output with the error.

A function decides about a record by raising or not, and a replay lets it decide again: only what the attempt
decided whose checkpoint counts is in its outputs, so a record is in one of them, exactly once.
"""

from __future__ import annotations

import traceback
from collections.abc import Callable
from dataclasses import dataclass
from itertools import islice
from typing import Any

import numpy as np
import pyarrow as pa

from onceflow.runtime.errors import OnceflowError, UserFunctionError
from onceflow.runtime.operators.operator import OperatorContext, Output
from onceflow.runtime.records import Mask, Records
from onceflow.runtime.types.each_called import check_called
from onceflow.runtime.types.user_functions import (
    Reads,
    function_name,
    origin_of,
    read_records,
    user_function_error,
)

FAILED = "failed records"
"""The tag of the side output, within the graph."""
TEXT_MAX = 16_384
"""The most characters of a traceback that are kept, of its end."""


@dataclass(frozen=True, slots=True)
class ErrorPolicy:
    """What an operator does with a record for which its function raises. None: the attempt fails.

    `schema`: the columns of the records as they are sent to the side output; None: they are dropped.
    """

    function: str
    schema: pa.Schema | None

    @property
    def output(self) -> pa.Schema:
        """The columns of the side output."""
        assert self.schema is not None
        return pa.schema(
            [
                pa.field("record", pa.struct(list(self.schema)), nullable=False),
                pa.field("operator", pa.string(), nullable=False),
                pa.field("function", pa.string(), nullable=False),
                pa.field("error", pa.string(), nullable=False),
                pa.field("traceback", pa.string(), nullable=False),
                pa.field("origin", pa.string()),
            ]
        )


class FailedRecords:
    """The failed records of one subtask of an operator, until they are sent behind those of their batch."""

    def __init__(self, policy: ErrorPolicy, context: OperatorContext, out: Output) -> None:
        self._policy = policy
        self._context = context
        self._out = out
        self._found: list[tuple[Records, Exception]] = []

    @property
    def uid(self) -> str:
        """The operator's."""
        return self._context.uid

    def __len__(self) -> int:
        return len(self._found)

    def add(
        self, fn: Callable[..., Any], error: Exception, records: Records, row: int, record: object
    ) -> None:
        """The function raised this for this row. Raises what fails the attempt if no record is to blame: for
        what onceflow raises, a Retryable of the user's, and a process without memory."""
        if isinstance(error, MemoryError | OnceflowError):
            raise user_function_error(self.uid, fn, error, records, row, record) from error
        self._found.append((records.slice(row, 1), error))

    def add_unreadable(self, records: Records, row: int, error: UserFunctionError) -> None:
        """The type of the user's does not take this row."""
        self._found.append((records.slice(row, 1), error))

    def send(self) -> None:
        """Count what has come, and send it on if that is wanted. Nothing is left."""
        if not self._found:
            return
        found, self._found = self._found, []
        first, error = found[0]
        place = origin_of(first, 0) or f"{first.batch.to_pylist()[0]!r}"
        said = f"{self._policy.function} failed on {place}: {_one_line(error)}"
        self._context.count_failed(len(found), said)
        if self._policy.schema is not None:
            self._out.emit(self._rows(found), FAILED)

    def _rows(self, found: list[tuple[Records, Exception]]) -> Records:
        schema, redact = self._policy.schema, self._context.redact
        assert schema is not None
        taken = [record.batch.select(schema.names) for record, _ in found]
        whole = pa.Table.from_batches(taken).combine_chunks().to_batches()[0]
        columns = [
            pa.StructArray.from_arrays(whole.columns, fields=list(schema)),
            pa.array([self._context.uid] * len(found)),
            pa.array([self._policy.function] * len(found)),
            pa.array([redact(_one_line(error))[:TEXT_MAX] for _, error in found]),
            pa.array([redact(_traceback(error))[-TEXT_MAX:] for _, error in found]),
            pa.array([origin_of(record, 0) or None for record, _ in found], pa.string()),
        ]
        batch = pa.RecordBatch.from_arrays(columns, schema=self._policy.output)
        times = [record.event_time for record, _ in found if record.event_time is not None]
        return Records(batch, np.concatenate(times) if times else None)


def read_or_set_aside(
    uid: str, reader: Reads, records: Records, failed: FailedRecords
) -> tuple[list[Any], Records]:
    """The records that the user's type takes, and the rows they are of; the others have failed."""
    try:
        return read_records(uid, reader, records), records
    except UserFunctionError:
        pass  # at the first of them; one by one from here on
    typed: list[Any] = []
    kept: Mask = np.zeros(len(records), np.bool_)
    for row in range(len(records)):
        try:
            typed += read_records(uid, reader, records.slice(row, 1))
            kept[row] = True
        except UserFunctionError as error:
            failed.add_unreadable(records, row, error)
    return typed, records.filter(kept)


def call_or_set_aside(
    fn: Callable[[Any], Any], rows: list[Any], records: Records, failed: FailedRecords
) -> tuple[list[Any], Records]:
    """The function's result for each of the rows for which it did not raise, and these rows."""
    results: list[Any] = []
    kept: Mask = np.ones(len(rows), np.bool_)
    row = 0
    while row < len(rows):
        before = row - len(results)
        try:
            results.extend(map(fn, islice(rows, row, None)))  # one by one: at an error its length is the row
            check_called(before + len(results), len(rows))
            break
        except Exception as error:
            row = before + len(results)
            failed.add(fn, error, records, row, rows[row])
            kept[row] = False
            row += 1
    return results, records.filter(kept)


def policy_of(fn: Callable[..., Any], schema: pa.Schema, tag: str | None) -> ErrorPolicy:
    """The policy for a function over these columns. `tag`: of the side output; None: dropped."""
    return ErrorPolicy(function_name(fn), None if tag is None else schema)


def _one_line(error: Exception) -> str:
    return " ".join(f"{type(error).__name__}: {error}".split())


def _traceback(error: Exception) -> str:
    """The user's part: what called the function is ours."""
    frames = error.__traceback__
    return "".join(traceback.format_exception(type(error), error, frames.tb_next if frames else None))
