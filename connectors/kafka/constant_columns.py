"""SameForAll: the columns of PRODUCE_SCHEMA that are the same in every row of a sink."""

from __future__ import annotations

import pyarrow as pa

from onceflow.connectors.kafka.client import PRODUCE_SCHEMA


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
        topics = pa.repeat(pa.scalar(self._topic), count)
        nulls = [pa.nulls(count, PRODUCE_SCHEMA.field(name).type) for name in ("key", "headers", "timestamp")]
        return pa.RecordBatch.from_arrays([topics, *nulls], ["topic", "key", "headers", "timestamp"])
