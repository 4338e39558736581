"""Json: the format of JSON objects, one in each value.

What is a good value (RFC 8259, and nothing else):

    number for an int column    integral digits only: 1, never 1.0 or 1e3; within the column's range
    number for a float column   any JSON number that a double can hold (1e400 can't be); NaN is no JSON
    number for a decimal column any JSON number, or one in text; all of its digits must fit in
    text                        UTF-8, no lone surrogates
    bytes                       text in base64
    datetime, date              text as RFC 3339 writes it, with an offset unless the Arrow type has no
                                time zone; digits finer than the column's unit are cut off
    a name that comes twice     the last one counts, as in most parsers; each must have the right type
    a field nobody declared     ignored
    a missing field             bad, unless it has a default; a nullable column of an Arrow schema may
                                be missing and is null then
    null                        bad, unless the field is `X | None` (or the column nullable)
    blank, an array, two values bad

Fields that no column needs are checked to be well formed, not to be UTF-8 or within range.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa

from onceflow.connectors.formats.format import Decoder, Encoder
from onceflow.connectors.formats.json.encode import JsonEncoder
from onceflow.connectors.formats.json.strict import JsonDecoder, OnNull, has_plain_types
from onceflow.runtime.errors import OptionError
from onceflow.runtime.kernels.ops import ops
from onceflow.runtime.types.record_types import RecordType, describe_record, is_record_type


@dataclass(frozen=True)
class Json:
    """`Json(Purchase)` decodes into the columns of a dataclass, a NamedTuple or an Arrow schema;
    `Json()` encodes any rows, as every Json does.

    `on_null` is what a value that is not there (a Kafka tombstone) means: "error": a bad record;
    "skip": no row; "nulls": a row of nulls, for which every field must be nullable.

    Raises OptionError or GraphError at once if a type has no JSON form.
    """

    of: type | pa.Schema | None = None
    on_null: OnNull = "error"
    _described: RecordType | None = field(default=None, init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        if self.on_null not in ("error", "skip", "nulls"):
            raise OptionError(f'on_null={self.on_null!r}: write "error", "skip" or "nulls"')
        if self.of is None:
            return
        if not isinstance(self.of, pa.Schema) and not is_record_type(self.of):
            raise OptionError(f"Json({self.of!r}): give a dataclass, a NamedTuple or a pyarrow.Schema")
        if not isinstance(self.of, pa.Schema):
            object.__setattr__(self, "_described", describe_record(self.of))
        schema = self._schema_or_raise()
        required = [column.name for column in schema if not column.nullable]
        if self.on_null == "nulls" and required:
            raise OptionError(f'on_null="nulls" needs every field to be nullable; {required[0]!r} is not')
        JsonDecoder(schema, self._described, self.on_null)

    @property
    def schema(self) -> pa.Schema | None:
        if self.of is None or isinstance(self.of, pa.Schema):
            return self.of
        return None if self._described is None else self._described.schema

    @property
    def record_type(self) -> type | None:
        return None if self.of is None or isinstance(self.of, pa.Schema) else self.of

    def decoder(self, columns: frozenset[str] | None = None) -> Decoder:
        schema = self._schema_or_raise()
        if columns is not None:
            schema = pa.schema([column for column in schema if column.name in columns])
        return _decoder(schema, self._described, self.on_null)

    def encoder(self, schema: pa.Schema) -> Encoder:
        return JsonEncoder(schema)

    def _schema_or_raise(self) -> pa.Schema:
        schema: Any = self.schema
        if schema is None:
            raise OptionError(
                "Json() without a type can only encode; to read, say what is in it: Json(Purchase)"
            )
        return schema


def _decoder(schema: pa.Schema, record_type: RecordType | None, on_null: OnNull) -> Decoder:
    """The one for all values at once, where the columns' types are plain and kernels are enabled."""
    judge = JsonDecoder(schema, record_type, on_null)
    if not ops().are_compiled or not has_plain_types(schema):
        return judge
    from onceflow.connectors.formats.json.bulk import BulkJsonDecoder  # imports numba

    return BulkJsonDecoder(judge, record_type)
