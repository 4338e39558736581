"""Columns of PRODUCE_SCHEMA that are the same in every row of a sink."""

from __future__ import annotations

import pyarrow as pa

from onceflow.connectors.kafka.client import PRODUCE_SCHEMA
from onceflow.runtime.arrays.offsets import offsets_of


class SameForAll:
    """Columns that are the same in every row, made once for the largest batch so far."""

    def __init__(self, topic: str) -> None:
        self._topic = topic
        self._columns = self._make(0)

    def columns(self, count: int) -> pa.RecordBatch:
        if count > self._columns.num_rows:
            self._columns = self._make(count)
        return self._columns.slice(0, count)

    def _make(self, count: int) -> pa.RecordBatch:
        topics = pa.repeat(pa.scalar(self._topic, pa.string()), count)  # a type that is given is not sought
        nulls = [pa.nulls(count, PRODUCE_SCHEMA.field(name).type) for name in ("key", "headers", "timestamp")]
        return pa.RecordBatch.from_arrays([topics, *nulls], ["topic", "key", "headers", "timestamp"])


def only_topic(rows: pa.RecordBatch) -> str | None:
    """The topic (in PRODUCE_SCHEMA) of all rows. None: there are several, or no rows, or a null."""
    topics, count = rows["topic"], rows.num_rows
    if not count or topics.null_count:
        return None
    data, starts = topics.buffers()[2], offsets_of(topics)
    first, size = int(starts[0]), int(starts[1] - starts[0])
    if not (starts[1:] - starts[:-1] == size).all():
        return None
    rest = size * (count - 1)  # each is as the one behind it: so nothing is copied
    is_same = not rest or data.slice(first, rest).equals(data.slice(first + size, rest))
    return topics[0].as_py() if is_same else None
