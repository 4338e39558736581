"""Records of a program as columns: objects of a record type, dicts, or plain values in one column `value`."""

from __future__ import annotations

import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from onceflow.runtime.errors import GraphError
from onceflow.runtime.nearest import nearest
from onceflow.runtime.types.columns_of_records import WrongFieldError, array_from_values, batch_from_records
from onceflow.runtime.types.declared_fields import is_record_type
from onceflow.runtime.types.hints import type_name
from onceflow.runtime.types.plain_types import plain_schema
from onceflow.runtime.types.record_types import describe_record, describe_type
from onceflow.runtime.types.single_types import PLAIN

VALUE = "value"
"""The column of values that are no records."""
FORMS = "a dataclass, a NamedTuple, a pyarrow.Schema for dicts, or a plain type such as str"


@dataclass(frozen=True)
class RowType:
    """What records are as columns. Picklable; found out when the graph is built."""

    schema: pa.Schema
    record_type: type | None = None
    is_value: bool = False
    """Whether records are plain values, in the one column."""

    def batch(self, rows: Sequence[Any]) -> pa.RecordBatch:
        """The records as a batch. Raises WrongFieldError with the place of one that does not fit, and why."""
        if self.is_value:
            return pa.RecordBatch.from_arrays(
                [array_from_values(list(rows), self.schema.field(0))], schema=self.schema
            )
        if self.record_type is not None:
            return batch_from_records(_of_type(rows, self.record_type), self.schema)
        return _batch_from_dicts(rows, self.schema)


def row_type(of: Any, where: str) -> RowType:
    """What `type=` says. Raises GraphError, which begins with `where`."""
    if isinstance(of, pa.Schema):
        if not of.names:
            raise GraphError(f"{where}: type= is a schema without columns")
        return RowType(plain_schema(of))
    if is_record_type(of):
        return RowType(describe_record(of).schema, of)
    try:
        value = describe_type(of, where)
    except GraphError:
        raise GraphError(f"{where}: type={type_name(of)} is no type of records: give {FORMS}") from None
    return RowType(pa.schema([value.field(VALUE)]), None, True)


def infer_row_type(rows: Sequence[Any], where: str) -> RowType:
    """What these records are, all of which are there. Raises GraphError, which begins with `where`."""
    first = next((row for row in rows if row is not None), None)
    if first is None:
        raise GraphError(f"{where}: there are no records to tell the columns from: say type=, as {FORMS}")
    if is_record_type(type(first)):
        return row_type(type(first), where)
    if isinstance(first, dict):
        return RowType(_schema_of_dicts(rows, where))
    if type(first) in PLAIN:
        return row_type(type(first) | None if None in rows else type(first), where)
    raise GraphError(
        f"{where}: {repr(first)[:80]} is a {type_name(type(first))}, which is no record: give objects of a "
        "dataclass or a NamedTuple, dicts, or plain values such as numbers and text"
    )


def fingerprint(batch: pa.RecordBatch | pa.Table, row: int) -> str:
    """What tells this row from another: to see, after a restart, that the same one is in its place."""
    (record,) = batch.slice(row, 1).to_pylist()
    return f"{zlib.crc32(repr(record).encode()):08x}"


def _of_type(rows: Sequence[Any], record_type: Any) -> list[Any]:
    """The records; dicts are made into records, so that defaults of the type count."""
    made = []
    for place, row in enumerate(rows):
        if isinstance(row, dict):
            try:
                made.append(record_type(**row))
            except TypeError as error:
                raise WrongFieldError(
                    place, f"{shown(row)} makes no {record_type.__name__}: {error}"
                ) from error
        elif isinstance(row, record_type):
            made.append(row)
        else:
            raise WrongFieldError(
                place, f"{shown(row)} is no {record_type.__name__}, but a {type_name(type(row))}"
            )
    return made


def _batch_from_dicts(rows: Sequence[Any], schema: pa.Schema) -> pa.RecordBatch:
    names = frozenset(schema.names)
    for place, row in enumerate(rows):
        if not isinstance(row, dict):
            raise WrongFieldError(place, f"{shown(row)} is a {type_name(type(row))}; expected a dict")
        if unknown := sorted(map(str, row.keys() - names)):
            raise WrongFieldError(
                place, f"{shown(row)} has {unknown[0]!r}, which is no column{nearest(unknown[0], names)}"
            )
    arrays = []
    for field in schema:
        values = [row.get(field.name) for row in rows]
        try:
            array = pa.array(values, field.type)
        except (pa.ArrowException, TypeError, ValueError, OverflowError):
            array = _first_wrong(values, field)
        if array.null_count and not field.nullable:
            raise WrongFieldError(values.index(None), f"field {field.name!r} is missing, and may not be null")
        arrays.append(array)
    return pa.RecordBatch.from_arrays(arrays, schema=schema)


def _first_wrong(values: list[Any], field: pa.Field) -> pa.Array:
    for place, value in enumerate(values):
        try:
            pa.array([value], field.type)
        except (pa.ArrowException, TypeError, ValueError, OverflowError) as error:
            reason = str(error).splitlines()[0]
            raise WrongFieldError(
                place, f"field {field.name!r} is {field.type}, but is {shown(value)}: {reason}"
            ) from error
    return pa.array(values, field.type)


def _schema_of_dicts(rows: Sequence[Any], where: str) -> pa.Schema:
    """What Arrow makes of all of them together; a column that some of them lack may be null."""
    strange = next((row for row in rows if not isinstance(row, dict)), None)
    if strange is not None:
        raise GraphError(f"{where}: {shown(strange)} is a {type_name(type(strange))} among dicts")
    names = dict.fromkeys(name for row in rows for name in row)
    fields = []
    for name in names:
        values = [row.get(name) for row in rows]
        try:
            found = pa.array(values)
        except (pa.ArrowException, TypeError, ValueError, OverflowError) as error:
            reason = str(error).splitlines()[0]
            raise GraphError(f"{where}: field {name!r} has values of several types: {reason}") from error
        if pa.types.is_null(found.type):
            raise GraphError(f"{where}: field {name!r} is None everywhere: say type=, as {FORMS}")
        fields.append(pa.field(name, found.type, found.null_count > 0))
    return plain_schema(pa.schema(fields))


def shown(value: object) -> str:
    """A value in a sentence, cut where it gets long."""
    text = repr(value)
    return text if len(text) <= 80 else text[:80] + "..."
