"""Records that a source could not decode: their columns, and where they go."""

from __future__ import annotations

from typing import Protocol, runtime_checkable

import pyarrow as pa

from onceflow.runtime.contracts.sink import Sink

DEAD_LETTER_SCHEMA = pa.schema(
    [
        pa.field("topic", pa.string(), nullable=False),
        pa.field("partition", pa.int32(), nullable=False),
        pa.field("offset", pa.int64(), nullable=False),
        pa.field("timestamp", pa.int64()),  # the record's own, ms
        pa.field("key", pa.binary()),
        pa.field("value", pa.binary()),
        pa.field("headers", pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))),
        pa.field("reason", pa.string(), nullable=False),
        pa.field("stage", pa.string(), nullable=False),  # "key" or "value": which could not be decoded
    ]
)


@runtime_checkable
class DeadLetterSource(Protocol):
    """A source that can send records it can't decode to an output of their own."""

    def dead_letter_sink(self) -> Sink | None:
        """Where dead letters (DEAD_LETTER_SCHEMA) go, exactly once like any output; None: they raise."""
        ...
