"""Json(..., extra="collect"): the fields of a value that nobody declared, kept in a column of their own."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import msgspec
import numpy as np
import pyarrow as pa

from onceflow.connectors.formats.format import BadValue, Decoded, Decoder, Values, as_list
from onceflow.runtime.errors import OptionError
from onceflow.runtime.types.decoding import json_value
from onceflow.runtime.types.encoding import WrongValueError, json_text
from onceflow.runtime.types.value_types import JsonValue, MapOf, RecordType

COLUMN = "extra"
"""The field of the record type that has them."""
_MISSING_FIELD = (
    'extra="collect" needs a field `extra: dict[str, Any]` in {name}, where unknown fields are kept'
)


def check_has_place(record: RecordType | None) -> None:
    """Raises OptionError unless the record type has the field."""
    field = None if record is None else record.field(COLUMN)
    kind = None if field is None else field.type.kind
    if not (
        isinstance(kind, MapOf) and kind.keys.arrow == pa.string() and isinstance(kind.values.kind, JsonValue)
    ):
        raise OptionError(_MISSING_FIELD.format(name="the record type" if record is None else record.name))


class CollectingJsonDecoder:
    """See Decoder. Adds the column to what another decoder makes."""

    def __init__(self, judge: Decoder, schema: pa.Schema, known: Iterable[str]) -> None:
        """`judge`: of all other columns of `schema`; `known`: the fields that were declared, as they are
        called in JSON."""
        self._judge = judge
        self._schema = schema
        self._known = frozenset(known)
        self._decode = msgspec.json.Decoder(dict[str, msgspec.Raw]).decode

    @property
    def schema(self) -> pa.Schema:
        return self._schema

    def decode(self, values: Values) -> Decoded:
        listed = as_list(values)
        decoded = self._judge.decode(listed)
        rows = np.arange(len(listed)) if decoded.rows is None else decoded.rows
        collected: list[list[tuple[str, str]] | None] = []
        is_good = np.ones(len(rows), np.bool_)
        bad: list[BadValue] = list(decoded.bad)
        for place, row in enumerate(rows.tolist()):
            value = listed[row]
            try:
                collected.append(None if value is None else self._unknown(value))
            except WrongValueError as error:
                is_good[place] = False
                bad.append(BadValue(row, str(error)))
        batch = decoded.batch if is_good.all() else decoded.batch.filter(pa.array(is_good))
        rows = rows[is_good]
        return Decoded(
            self._with_column(batch, collected), None if len(rows) == len(listed) else rows, sorted(bad)
        )

    def _unknown(self, value: bytes) -> list[tuple[str, str]]:
        found = self._decode(value)
        return [(name, _text(name, raw)) for name, raw in found.items() if name not in self._known]

    def _with_column(self, batch: pa.RecordBatch, collected: list[Any]) -> pa.RecordBatch:
        column = pa.array(collected, self._schema.field(COLUMN).type)
        arrays = [column if f.name == COLUMN else batch.column(f.name) for f in self._schema]
        return pa.RecordBatch.from_arrays(arrays, schema=self._schema)


def _text(name: str, raw: msgspec.Raw) -> str:
    try:
        return json_text(json_value(bytes(raw)))
    except WrongValueError as error:
        raise WrongValueError(f"{error} - at `$.{name}`") from error
