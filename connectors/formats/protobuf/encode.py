"""Columns to Protobuf values."""

from __future__ import annotations

from collections.abc import Callable

import pyarrow as pa

from onceflow.connectors.formats.format import EncodeError
from onceflow.connectors.formats.protobuf.message_type import MessageType
from onceflow.connectors.formats.protobuf.write import message_writer
from onceflow.connectors.formats.protobuf.written_values import UnfitError
from onceflow.runtime.errors import GraphError


class ProtobufEncoder:
    """See Encoder. `head` is called when the first batch is encoded: what each value begins with.

    Maps are written in the order of their keys, so that equal rows have equal bytes.
    """

    def __init__(self, of: MessageType, schema: pa.Schema, head: Callable[[], bytes]) -> None:
        """Raises GraphError naming a column that can't be written."""
        if len(set(schema.names)) < len(schema):
            raise GraphError(f"Protobuf can't write two columns of the same name: {', '.join(schema.names)}")
        self._message = of.message_class
        self._write = message_writer(of.descriptor, list(schema))
        self._head_of = head
        self._head: bytes | None = None

    def encode(self, batch: pa.RecordBatch) -> pa.Array:
        """Raises Retryable if the schema has to be registered and the registry stays away, Fatal or
        GraphError if it has or takes no such schema."""
        if self._head is None:
            self._head = self._head_of()
        head, make = self._head, self._message
        messages = [make() for _ in range(batch.num_rows)]
        try:
            self._write(messages, batch.columns)
        except UnfitError as error:
            name, _, problem = str(error).partition(": ")
            raise EncodeError(f"column {name!r}, row {error.row} of a batch: {problem}") from error
        if head:
            values = [head + message.SerializeToString(deterministic=True) for message in messages]
        else:
            values = [message.SerializeToString(deterministic=True) for message in messages]
        return pa.array(values, pa.large_binary())
