"""A sink around another one, whose writers are told how far event time has come."""

from collections.abc import Callable
from dataclasses import dataclass
from tempfile import mkdtemp
from typing import Any, cast

import pyarrow as pa
from onceflow import Job, WatermarkStrategy
from onceflow.runtime.contracts import (
    CommitterContext,
    SinkCommitter,
    SinkContext,
    SinkWriter,
    WatermarkedWriter,
)
from onceflow.sinks.files import FileSink

told: list[int] = []


@dataclass(frozen=True)
class Told:
    sink: FileSink
    tell: Callable[[int], None]

    def check(self, schema: pa.Schema, uid: str) -> None:
        self.sink.check(schema, uid)

    def open_writer(self, context: SinkContext) -> SinkWriter:
        writer = ToldWriter(self.sink.open_writer(context), self.tell)
        is_told: bool = isinstance(writer, WatermarkedWriter)
        assert is_told
        return cast(SinkWriter, writer)

    def open_committer(self, context: CommitterContext) -> SinkCommitter:
        return self.sink.open_committer(context)


@dataclass
class ToldWriter:
    writer: Any
    tell: Callable[[int], None]

    def on_watermark(self, time_ms: int) -> None:
        self.tell(time_ms)
        self.writer.on_watermark(time_ms)

    def on_idle(self) -> None:
        self.writer.on_idle()

    def __getattr__(self, name: str) -> Any:
        return getattr(self.writer, name)


job = Job("told")
in_order = WatermarkStrategy.monotonous("ts")
rows = job.from_records([{"ts": 1_000}, {"ts": 2_000}], watermarks=in_order)
rows.sink_to(Told(FileSink(mkdtemp()), told.append))
job.run(master="threads[1]")
assert told[-1] == (1 << 63) - 1, "the end of event time"
