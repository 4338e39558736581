"""Records of a program as columns: objects of a record type, dicts, or plain values in one column `value`."""

from __future__ import annotations

import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from onceflow.connectors.collections.records_of_dicts import UnfitDictError, record_of_dict
from onceflow.runtime.errors import GraphError
from onceflow.runtime.nearest import nearest
from onceflow.runtime.types.columns_of_records import RecordWriter, WrongFieldError, array_from_values
from onceflow.runtime.types.declared_fields import is_record_type
from onceflow.runtime.types.hints import type_name
from onceflow.runtime.types.plain_types import plain_schema
from onceflow.runtime.types.record_types import describe_record, describe_type
from onceflow.runtime.types.records_of_columns import reason_of
from onceflow.runtime.types.value_types import Clock, Decimals, RecordType, ValueType

VALUE = "value"
"""The column of values that are no records."""
FORMS = "a dataclass, a NamedTuple, a pyarrow.Schema for dicts, or a plain type such as str"


@dataclass(frozen=True)
class RowType:
    """What records are as columns. Picklable; found out when the graph is built."""

    schema: pa.Schema
    record_type: type | None = None
    value: ValueType | None = None
    """The type of values that are no records, in the one column."""
    record: RecordType | None = None
    """What is known of `record_type`."""

    @property
    def is_value(self) -> bool:
        return self.value is not None

    def batch(self, rows: Sequence[Any]) -> pa.RecordBatch:
        """The records as a batch. Raises WrongFieldError with the place of one that does not fit, and why."""
        if self.value is not None:
            values = array_from_values(list(rows), self.schema.field(0), self.value)
            return pa.RecordBatch.from_arrays([values], schema=self.schema)
        if self.record is not None:
            return RecordWriter.of(self.record).write(_of_type(rows, self.record))
        return _batch_from_dicts(rows, self.schema)


def row_type(of: Any, where: str) -> RowType:
    """What `type=` says. Raises GraphError, which begins with `where`."""
    if isinstance(of, pa.Schema):
        if not of.names:
            raise GraphError(f"{where}: type= is a schema without columns")
        return RowType(plain_schema(of))
    if is_record_type(of):
        record = describe_record(of)
        return RowType(record.schema, of, record=record)
    try:
        value = describe_type(of, where)
    except GraphError:
        raise GraphError(f"{where}: type={type_name(of)} is not a record type: give {FORMS}") from None
    if not _is_kept(value):
        raise GraphError(
            f"{where}: type={type_name(of)}: in a column of its own a {type_name(of)} would be "
            f"{value.arrow}: give a dataclass that has it as a field"
        )
    return RowType(pa.schema([value.field(VALUE)]), value=value)


def infer_row_type(rows: Sequence[Any], where: str) -> RowType:
    """What these records are, all of which are there. Raises GraphError, which begins with `where`."""
    first = next((row for row in rows if row is not None), None)
    if first is None:
        raise GraphError(f"{where}: there are no records to tell the columns from: say type=, as {FORMS}")
    if is_record_type(type(first)):
        return row_type(type(first), where)
    if isinstance(first, dict):
        return RowType(_schema_of_dicts(rows, where))
    if _is_single(type(first)):
        return row_type(type(first) | None if None in rows else type(first), where)
    raise GraphError(
        f"{where}: {repr(first)[:80]} is a {type_name(type(first))}, which is not a record: give objects of "
        "a dataclass or a NamedTuple that has it as a field, dicts, or plain values such as numbers and text"
    )


def _is_kept(value: ValueType) -> bool:
    """Whether a column gives back such a value as it was. It gives text for a UUID and a member of an Enum:
    only a record type says what these are."""
    return value.is_plain or isinstance(value.kind, Clock | Decimals)


def _is_single(python: type) -> bool:
    """Whether values of this type may be records by themselves."""
    try:
        value = describe_type(python, "")
    except GraphError:
        return False
    return value.is_single and _is_kept(value)


def fingerprint(batch: pa.RecordBatch | pa.Table, row: int) -> str:
    """What tells this row from another: to see, after a restart, that the same one is in its place."""
    (record,) = batch.slice(row, 1).to_pylist()
    return f"{zlib.crc32(repr(record).encode()):08x}"


def _of_type(rows: Sequence[Any], record: RecordType) -> list[Any]:
    """The records; dicts are made into records, so that defaults of the type count."""
    made = []
    for place, row in enumerate(rows):
        if isinstance(row, dict):
            try:
                made.append(record_of_dict(row, record))
            except UnfitDictError as error:
                raise WrongFieldError(place, f"{shown(row)} makes no {record.name}: {error}") from error
            except Exception as error:  # whatever a class of the user's raises
                said = reason_of(error)
                raise WrongFieldError(place, f"{shown(row)} makes no {record.name}: {said}") from error
        elif isinstance(row, record.of):
            made.append(row)
        else:
            raise WrongFieldError(place, f"{shown(row)} is no {record.name}, but a {type_name(type(row))}")
    return made


def _batch_from_dicts(rows: Sequence[Any], schema: pa.Schema) -> pa.RecordBatch:
    names = frozenset(schema.names)
    for place, row in enumerate(rows):
        if not isinstance(row, dict):
            raise WrongFieldError(place, f"{shown(row)} is a {type_name(type(row))}; expected a dict")
        if unknown := sorted(map(str, row.keys() - names)):
            raise WrongFieldError(
                place, f"{shown(row)} has {unknown[0]!r}, which is not a column{nearest(unknown[0], names)}"
            )
    arrays = []
    for field in schema:
        values = [row.get(field.name) for row in rows]
        if pa.types.is_nested(field.type):
            _refuse_strange_keys(values, field)
        try:
            array = pa.array(values, field.type)
        except (pa.ArrowException, TypeError, ValueError, OverflowError):
            array = _first_wrong(values, field)
        if array.null_count and not field.nullable:
            raise WrongFieldError(values.index(None), f"field {field.name!r} is missing, and may not be null")
        arrays.append(array)
    return pa.RecordBatch.from_arrays(arrays, schema=schema)


def _refuse_strange_keys(values: Sequence[Any], field: pa.Field) -> None:
    """Arrow would leave out, without a word, what a struct does not have."""
    for place, value in enumerate(values):
        if strange := _strange_key(value, field.type, field.name):
            within, name, names = strange
            raise WrongFieldError(
                place, f"field {within!r} has {name!r}, which is none of its fields{nearest(name, names)}"
            )


def _strange_key(value: Any, arrow: pa.DataType, path: str) -> tuple[str, str, list[str]] | None:
    """The struct and the key that it does not have, and those that it has."""
    inner: list[tuple[Any, pa.DataType, str]] = []
    if pa.types.is_struct(arrow) and isinstance(value, dict):
        names = [part.name for part in arrow]
        if unknown := sorted(map(str, value.keys() - set(names))):
            return path, unknown[0], names
        inner = [(value.get(part.name), part.type, f"{path}.{part.name}") for part in arrow]
    elif (pa.types.is_list(arrow) or pa.types.is_large_list(arrow)) and isinstance(value, list | tuple):
        inner = [(each, arrow.value_type, f"{path}[]") for each in value]
    elif pa.types.is_map(arrow) and isinstance(value, dict):
        inner = [(each, arrow.item_type, f"{path}[{key!r}]") for key, each in value.items()]
    nested = (each for each in inner if pa.types.is_nested(each[1]))
    return next((found for each in nested if (found := _strange_key(*each))), None)


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
            if (strange := _strange_value(values)) is not None:
                kind = type_name(type(strange))
                raise GraphError(
                    f"{where}: field {name!r} is {shown(strange)}, and what column a {kind} in a dict makes "
                    f"is not known: say type=, as a dataclass with the field {name!r}"
                ) from error
            reason = str(error).splitlines()[0]
            raise GraphError(f"{where}: field {name!r} has values of several types: {reason}") from error
        if pa.types.is_null(found.type):
            raise GraphError(f"{where}: field {name!r} is None everywhere: say type=, as {FORMS}")
        fields.append(pa.field(name, found.type, found.null_count > 0))
    return plain_schema(pa.schema(fields))


def _strange_value(values: Sequence[Any]) -> Any:
    """The first value that Arrow makes no column of, even alone; None if each alone is fine."""
    for value in values:
        try:
            pa.array([value])
        except (pa.ArrowException, TypeError, ValueError, OverflowError):
            return value
    return None


def shown(value: object) -> str:
    """A value in a sentence, cut where it gets long."""
    text = repr(value)
    return text if len(text) <= 80 else text[:80] + "..."
