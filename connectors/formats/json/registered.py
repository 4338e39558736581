"""JSON in Confluent's wire format: a zero byte, the schema's id in four bytes, the value. And values that are
compared with a schema."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from onceflow.connectors.formats.format import (
    BadValue,
    Decoded,
    Decoder,
    EncodeError,
    Encoder,
    Values,
    as_list,
)
from onceflow.connectors.formats.json.schema_checks import JsonSchema
from onceflow.connectors.formats.registry.schemas import Schemas, UnknownSchemaError
from onceflow.connectors.formats.registry.wire_format import HEADER_BYTES, header, why_no_header

_PLAIN = "plain JSON: Json(...) without registry="


class CheckedJsonDecoder:
    """See Decoder. Compares values with a schema, then another decoder reads them."""

    def __init__(
        self,
        decoder: Decoder,
        schema: JsonSchema | None,
        schemas: Schemas[JsonSchema] | None,
        validates: bool,
    ) -> None:
        """`schema`: what all values are compared with; None: each with the schema it was written with.
        `schemas`: those of the registry, for values with a header; None: they have none."""
        self._decoder = decoder
        self._validates = validates
        self._own = schema
        self._schemas = schemas

    @property
    def schema(self) -> pa.Schema:
        return self._decoder.schema

    def decode(self, values: Values) -> Decoded:
        """Raises Retryable if a schema has to be fetched and its registry stays away, Fatal if that denies
        access."""
        bad: list[BadValue] = []
        good: list[int] = []
        bodies: list[bytes | None] = []
        for row, value in enumerate(as_list(values)):
            body = value if value is None else self._body(value)
            if isinstance(body, str):
                bad.append(BadValue(row, body))
            else:
                good.append(row)
                bodies.append(body)
        decoded = self._decoder.decode(bodies)
        if not bad:
            return decoded
        places = np.array(good, np.int64)
        rows = places if decoded.rows is None else places[decoded.rows]
        theirs = [BadValue(good[each.row], each.reason) for each in decoded.bad]
        return Decoded(decoded.batch, rows, sorted([*bad, *theirs]))

    def _body(self, value: bytes) -> bytes | str:
        """The value without its header, or why it is bad."""
        schema, body = self._own, value
        if self._schemas is not None:
            if len(value) < HEADER_BYTES or value[0]:
                return why_no_header(value, "JSON", _PLAIN)
            try:
                written = self._schemas.schema_of(int.from_bytes(value[1:HEADER_BYTES], "big"))
            except UnknownSchemaError as error:
                return str(error)
            schema, body = schema or written, value[HEADER_BYTES:]
        if schema is None or not self._validates:
            return body
        return schema.why_not(body) or body


class CheckedJsonEncoder:
    """See Encoder. Another encoder writes the values; they are compared with a schema, and get a header."""

    def __init__(
        self, encoder: Encoder, schema: JsonSchema | None, schema_id: Callable[[], int] | None
    ) -> None:
        """`schema_id` is called when the first batch is encoded; None: values have no header."""
        self._encoder = encoder
        self._own = schema
        self._schema_id = schema_id
        self._header: bytes | None = None

    def encode(self, batch: pa.RecordBatch) -> pa.Array:
        """Raises Retryable if the schema has to be registered and the registry stays away, Fatal or
        GraphError if it has or takes no such schema."""
        if self._header is None and self._schema_id is not None:
            self._header = header(self._schema_id())
        values = self._encoder.encode(batch)
        if self._own is not None:
            _check(values.to_pylist(), self._own)
        if self._header is None:
            return values
        large = values.cast(pa.large_binary())
        head, nothing = pa.scalar(self._header, pa.large_binary()), pa.scalar(b"", pa.large_binary())
        return pc.binary_join_element_wise(head, large, nothing)


def _check(values: Sequence[bytes | None], schema: JsonSchema) -> None:
    for row, value in enumerate(values):
        why = None if value is None else schema.why_not(value)
        if why is not None:
            raise EncodeError(
                f"row {row} of a batch is not what its JSON Schema says: {why}; leave it out before the "
                "sink, or correct the schema"
            )
