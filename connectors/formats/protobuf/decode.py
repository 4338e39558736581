"""Protobuf values to columns: parsed one by one by Google's library, then read field by field."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal

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
from onceflow.connectors.formats.protobuf.framing import Framed
from onceflow.connectors.formats.protobuf.message_type import MessageType
from onceflow.connectors.formats.protobuf.read import BadMessageError, column_reader

OnNull = Literal["error", "skip", "nulls"]
_UNFIT = (BadMessageError, OverflowError, pa.ArrowInvalid, UnicodeDecodeError)


class ProtobufDecoder:
    """See Decoder. `schema`: the columns that are made, by the names of the message's fields."""

    def __init__(self, of: MessageType, schema: pa.Schema, framed: Framed | None, on_null: OnNull) -> None:
        """`framed`: reads the headers of values in Confluent's wire format; None: they have none. Raises
        OptionError if a column is none of the message's."""
        from google.protobuf.message import DecodeError

        self._bad: tuple[type[Exception], ...] = (DecodeError,)
        self._schema = schema
        self._message = of.message_class
        self._parse = self._message.FromString
        self._readers = [column_reader(of.descriptor, field, field.name) for field in schema]
        self._has_required = _has_required(of.descriptor, set())
        self._framed = framed
        self._on_null = on_null

    @property
    def schema(self) -> pa.Schema:
        return self._schema

    def decode(self, values: Values) -> Decoded:
        """Raises Retryable if a schema has to be fetched and its registry stays away, Fatal if that denies
        access."""
        listed = as_list(values)
        begin = None if self._framed is None else self._framed.same_header(listed)
        parse = self._parse
        try:
            if self._framed is None:
                messages = [parse(value) for value in listed]
            elif begin is not None:
                messages = [parse(value[begin:]) for value in listed]  # type: ignore[index]
            else:
                return self._decode_one_by_one(listed)
            if not self._has_required or all(message.IsInitialized() for message in messages):
                return Decoded(self._batch(messages), None)
        except (*self._bad, *_UNFIT, TypeError):
            pass
        return self._decode_one_by_one(listed)

    def _decode_one_by_one(self, values: Sequence[bytes | None]) -> Decoded:
        messages: list[Any] = []
        rows: list[int] = []
        nulls: list[int] = []
        bad: list[BadValue] = []
        for row, value in enumerate(values):
            if value is None:
                if self._on_null == "error":
                    bad.append(BadValue(row, NO_VALUE))
                elif self._on_null == "nulls":
                    nulls.append(row)
                continue
            found = self._message_of(value)
            if isinstance(found, str):
                bad.append(BadValue(row, found))
            else:
                messages.append(found)
                rows.append(row)
        messages, rows, unfit = self._without_unfit(messages, rows)
        batch = self._batch(messages)
        if nulls:
            batch, rows = self._with_nulls(batch, rows, nulls)
        return Decoded(batch, np.array(rows, np.int64), sorted([*bad, *unfit]))

    def _message_of(self, value: bytes) -> Any:
        """The message, or why there is none."""
        begin = 0
        if self._framed is not None:
            found = self._framed.begin_of(value)
            if isinstance(found, str):
                return found
            begin = found
        try:
            message = self._parse(value[begin:])
        except self._bad as error:
            return f"it is no {self._message.DESCRIPTOR.full_name}: {error}"
        if self._has_required and not message.IsInitialized():
            return f"required fields are not there: {', '.join(message.FindInitializationErrors())}"
        return message

    def _without_unfit(
        self, messages: list[Any], rows: list[int]
    ) -> tuple[list[Any], list[int], list[BadValue]]:
        """The messages whose values have a place in the columns, and why the others have none."""
        try:
            self._batch(messages)
        except _UNFIT:
            pass
        else:
            return messages, rows, []
        good: list[Any] = []
        good_rows: list[int] = []
        unfit: list[BadValue] = []
        for message, row in zip(messages, rows, strict=True):
            try:
                self._batch([message])
            except _UNFIT as error:
                unfit.append(BadValue(row, str(error)))
            else:
                good.append(message)
                good_rows.append(row)
        return good, good_rows, unfit

    def _batch(self, messages: list[Any]) -> pa.RecordBatch:
        if not self._readers:
            return rows_without_columns(len(messages))
        return pa.RecordBatch.from_arrays([read(messages) for read in self._readers], schema=self._schema)

    def _with_nulls(
        self, batch: pa.RecordBatch, rows: list[int], nulls: list[int]
    ) -> tuple[pa.RecordBatch, list[int]]:
        together = np.array([*rows, *nulls])
        order = np.argsort(together)
        if not self._readers:
            return rows_without_columns(len(together)), together[order].tolist()
        arrays = [
            pa.concat_arrays([column, pa.nulls(len(nulls), column.type)]).take(pa.array(order))
            for column in batch.columns
        ]
        return pa.RecordBatch.from_arrays(arrays, schema=self._schema), together[order].tolist()


def _has_required(message: Any, seen: set[str]) -> bool:
    if message.full_name in seen:
        return False
    seen.add(message.full_name)
    return any(
        field.is_required or (field.message_type is not None and _has_required(field.message_type, seen))
        for field in message.fields
    )
