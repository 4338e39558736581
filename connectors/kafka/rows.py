"""RowBuilder: Kafka messages to rows and dead letters."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import pyarrow as pa
from confluent_kafka import Message

from onceflow.connectors.formats import BadValue, Decoded, Decoder
from onceflow.runtime.contracts import DEAD_LETTER_SCHEMA
from onceflow.runtime.errors import BadRecordError
from onceflow.runtime.records import Mask

Tolerance = Literal["none", "all"]
Metadata = Literal["headers", "timestamp", "topic", "partition", "offset"]
"""What Kafka knows of a record beside key and value."""

HEADERS_TYPE = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))
_SHOWN_BYTES = 100


def _timestamp(message: Message) -> int | None:
    """The record's own time in ms; None if it has none (written before Kafka 0.10)."""
    kind, time_ms = message.timestamp()
    return int(time_ms) if kind else None


def _headers(message: Message) -> list[dict[str, Any]]:
    return [{"key": key, "value": value} for key, value in message.headers() or ()]


METADATA: dict[Metadata, tuple[pa.DataType, bool, Callable[[Message], Any]]] = {
    "headers": (HEADERS_TYPE, False, _headers),
    "timestamp": (pa.timestamp("ms", "UTC"), True, _timestamp),
    "topic": (pa.string(), False, Message.topic),
    "partition": (pa.int32(), False, Message.partition),
    "offset": (pa.int64(), False, Message.offset),
}
"""For each: the column's type, whether it may be null, and how it is read off a message."""


@dataclass(frozen=True, slots=True)
class Rows:
    """What became of messages: each is a row of `batch` or of `dead_letters` (or was told to be left out).

    `kept`: which messages became rows, in order; None: all.
    """

    batch: pa.RecordBatch
    kept: Mask | None
    dead_letters: pa.RecordBatch | None = None


class RowBuilder:
    """Decodes keys and values and adds the columns of Kafka's own metadata."""

    def __init__(
        self,
        schema: pa.Schema,
        key: Decoder | None,
        value: Decoder,
        metadata: Sequence[Metadata],
        tolerance: Tolerance,
    ) -> None:
        """`schema`: the columns of key, value and metadata, in this order."""
        self._schema = schema
        self._decoders: list[tuple[str, Decoder, Callable[[Message], bytes | None]]] = []
        if key is not None:
            self._decoders.append(("key", key, Message.key))
        self._decoders.append(("value", value, Message.value))
        self._metadata = [METADATA[name] for name in metadata]
        self._tolerance = tolerance

    def build(self, messages: Sequence[Message]) -> Rows:
        """Raises BadRecordError for the first message that can't be decoded, if none is tolerated."""
        decoded = [decoder.decode(list(map(read, messages))) for _, decoder, read in self._decoders]
        kept, parts = _common_rows(decoded, len(messages))
        dead_letters = self._dead_letters(messages, decoded) if any(d.bad for d in decoded) else None
        good = messages if kept is None else [messages[i] for i in np.flatnonzero(kept).tolist()]
        columns = [column for part in parts for column in part.columns]
        columns += [pa.array(list(map(read, good)), arrow) for arrow, _, read in self._metadata]
        if not columns:  # nobody reads a column: only how many rows there are
            return Rows(parts[0], kept, dead_letters)
        return Rows(pa.RecordBatch.from_arrays(columns, schema=self._schema), kept, dead_letters)

    def _dead_letters(self, messages: Sequence[Message], decoded: Sequence[Decoded]) -> pa.RecordBatch:
        """One for each bad message, in order; the key's reason if both are bad."""
        first: dict[int, tuple[str, BadValue]] = {}
        for (stage, _, _), part in zip(self._decoders, decoded, strict=True):
            for bad in part.bad:
                first.setdefault(bad.row, (stage, bad))
        rows = [(messages[row], *first[row]) for row in sorted(first)]
        if self._tolerance == "none":
            raise _error(*rows[0])
        return pa.RecordBatch.from_pylist(
            [_dead_letter(message, stage, bad.reason) for message, stage, bad in rows],
            schema=DEAD_LETTER_SCHEMA,
        )


def _common_rows(decoded: Sequence[Decoded], count: int) -> tuple[Mask | None, list[pa.RecordBatch]]:
    """The messages of which every part could be decoded, and each part cut down to them."""
    if all(part.rows is None for part in decoded):
        return None, [part.batch for part in decoded]
    kept = np.ones(count, np.bool_)
    for part in decoded:
        if part.rows is not None:
            good = np.zeros(count, np.bool_)
            good[part.rows] = True
            kept &= good
    masks = [kept if part.rows is None else kept[part.rows] for part in decoded]
    return kept, [part.batch.filter(pa.array(mask)) for part, mask in zip(decoded, masks, strict=True)]


def _dead_letter(message: Message, stage: str, reason: str) -> dict[str, Any]:
    return {
        "topic": message.topic(),
        "partition": message.partition(),
        "offset": message.offset(),
        "timestamp": _timestamp(message),
        "key": message.key(),
        "value": message.value(),
        "headers": _headers(message),
        "reason": reason,
        "stage": stage,
    }


def _error(message: Message, stage: str, bad: BadValue) -> BadRecordError:
    value = message.key() if stage == "key" else message.value()
    shown = "" if value is None else f"; the {stage} begins with {value[:_SHOWN_BYTES]!r}"
    return BadRecordError(
        f"the {stage} of the record in {message.topic()}-{message.partition()} at offset "
        f"{message.offset()} can't be decoded: {bad.reason}{shown}. To go on without such records, give "
        'errors_tolerance="all" and a dead_letter_topic to the source'
    )
