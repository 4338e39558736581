"""Rows in PRODUCE_SCHEMA as the structs that librdkafka takes in bulk. Copies no bytes of a record."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from onceflow.connectors.kafka.librdkafka_library import CMessage

MESSAGE = np.dtype(CMessage)
Messages = npt.NDArray[Any]
"""dtype MESSAGE."""


@dataclass(frozen=True, slots=True)
class Run:
    """Neighbouring rows for one partition of one topic."""

    topic: str
    partition: int
    """-1: librdkafka chooses."""
    start: int
    stop: int
    """Row numbers."""


class MessageArray:
    """Fills one array again and again: fresh pages cost more than the filling."""

    def __init__(self) -> None:
        self._messages = np.zeros(0, MESSAGE)

    def fill(self, rows: pa.RecordBatch) -> Messages:
        """One message for each row, in order: key and value point into `rows`, which must stay alive as
        long as the messages are used. Headers and timestamps have no place in them. Valid until the
        next call."""
        count = rows.num_rows
        if count > len(self._messages):
            self._messages = np.zeros(count, MESSAGE)
        messages = self._messages[:count]
        _point(messages, "payload", "len", rows["value"])
        _point(messages, "key", "key_len", rows["key"])
        return messages


def runs(rows: pa.RecordBatch) -> Iterator[Run]:
    """The rows cut where topic or partition changes: few pieces if they are sorted by them."""
    topics = pc.run_end_encode(rows["topic"])
    partitions = rows["partition"].to_numpy()
    cuts = np.flatnonzero(np.diff(partitions)) + 1
    start = 0
    for topic, end in zip(topics.values.to_pylist(), topics.run_ends.to_pylist(), strict=True):
        inside = cuts[(cuts > start) & (cuts < end)].tolist()
        for stop in [*inside, end]:
            yield Run(topic, int(partitions[start]), start, stop)
            start = stop


def is_plain(rows: pa.RecordBatch) -> bool:
    """Whether messages can hold all that the rows do: none has headers or a timestamp."""
    count = rows.num_rows
    return bool(rows["headers"].null_count == count and rows["timestamp"].null_count == count)


def _point(messages: Messages, pointer: str, length: str, values: pa.LargeBinaryArray) -> None:
    """A null is a null pointer; an empty value is a pointer to no bytes."""
    validity, offset_buffer, data = values.buffers()
    count = len(values)
    offsets = np.frombuffer(offset_buffer, np.int64, count + 1, offset=8 * values.offset)
    base = data.address if data is not None and data.size else offset_buffer.address
    np.add(offsets[:-1], base, out=messages[pointer], casting="unsafe")
    np.subtract(offsets[1:], offsets[:-1], out=messages[length], casting="unsafe")
    if validity is not None and values.null_count:
        is_null = values.is_null().to_numpy(zero_copy_only=False)
        messages[pointer][is_null] = 0
        messages[length][is_null] = 0
