"""The Kafka sink's two writers, on the broker in memory, pass the kit of sinks."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar

import pyarrow as pa

from onceflow.connectors.kafka.client import PRODUCE_SCHEMA, TopicDescription
from onceflow.connectors.kafka.testing.fake import FakeClient, FakeNetwork, NoFaults
from onceflow.connectors.kafka.testing.fake_broker import FakeKafka
from onceflow.connectors.kafka.transactions.prepared_writer import PreparedWriter
from onceflow.connectors.kafka.transactions.sink_topics import OutputSettings
from onceflow.connectors.kafka.transactions.staged_writer import StagedSettings, StagedWriter
from onceflow.runtime.contracts import Sink, SinkContext, SinkWriter
from onceflow.testing.kit import SinkKit


@dataclass(frozen=True)
class StagedSink:
    """Rows that are encoded already, to the broker in memory."""

    broker: FakeKafka
    memory_bytes_max: int

    def check(self, schema: pa.Schema, uid: str) -> None:
        """All rows are PRODUCE_SCHEMA's."""

    def open_writer(self, context: SinkContext) -> SinkWriter:
        client = FakeClient(FakeNetwork(self.broker, NoFaults()))
        settings = StagedSettings(["out"], memory_bytes_max=self.memory_bytes_max)
        return StagedWriter(context, client, settings)


class TestInMemory(SinkKit):
    in_new_processes = False
    schema = other_schema = PRODUCE_SCHEMA
    memory_bytes_max: ClassVar[int] = 1 << 20

    @cached_property
    def broker(self) -> FakeKafka:
        return FakeKafka({"out": TopicDescription(1)})

    def row(self, n: int) -> dict[str, Any]:
        return {"topic": "out", "partition": 0, "value": str(n).encode()}

    def sink(self) -> Sink:
        return StagedSink(self.broker, self.memory_bytes_max)

    def visible(self) -> list[int]:
        return [int(row["value"]) for row in self.broker.visible]


@dataclass(frozen=True)
class PreparedSink(StagedSink):
    """The same with transactions that are prepared."""

    def open_writer(self, context: SinkContext) -> SinkWriter:
        client = FakeClient(FakeNetwork(self.broker, NoFaults()))
        return PreparedWriter(context, client, OutputSettings(["out"]))


class TestPrepared(TestInMemory):
    def sink(self) -> Sink:
        return PreparedSink(self.broker, self.memory_bytes_max)


class TestSpilled(TestInMemory):
    memory_bytes_max = 1
