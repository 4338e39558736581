"""A function that remembers the batches it has seen makes of `foreach_batch` a sink that passes the kit."""

from __future__ import annotations

from functools import cached_property

import pyarrow as pa

from onceflow.runtime.contracts import BatchContext, Sink
from onceflow.runtime.graph.functions import ArrowReader
from onceflow.sinks.foreach import ForeachSink
from onceflow.testing.kit import SinkKit


class TestForeachBatch(SinkKit):
    in_new_processes = False

    @cached_property
    def seen(self) -> dict[str, list[int]]:
        return {}

    def remember(self, batch: pa.RecordBatch, context: BatchContext) -> None:
        rows = batch.column("n").to_pylist()
        assert self.seen.setdefault(context.batch_id, rows) == rows, (
            "a batch that comes again has the same rows"
        )

    def sink(self) -> Sink:
        return ForeachSink(self.remember, ArrowReader(), is_per_record=False, takes_context=True)

    def visible(self) -> list[int]:
        return [n for rows in self.seen.values() for n in rows]
