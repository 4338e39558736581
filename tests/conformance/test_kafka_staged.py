"""The Kafka sink's staged writer against the sink contract, on the broker in memory."""

from __future__ import annotations

from collections.abc import Callable

import pyarrow as pa
import pytest

from onceflow.connectors.kafka.client import PRODUCE_SCHEMA, TopicDescription
from onceflow.connectors.kafka.testing.fake import FakeClient, FakeKafka, FakeNetwork, NoFaults
from onceflow.connectors.kafka.transactions.staged_writer import StagedSettings, StagedWriter
from onceflow.runtime.checkpoint.memory_store import MemoryStore
from onceflow.runtime.checkpoint.state_files import AttemptStagedFiles
from onceflow.runtime.clock import ManualClock
from onceflow.runtime.contracts import SinkContext, SinkWriter
from onceflow.runtime.records import Records
from onceflow.runtime.testing.conformance import SINK_CHECKS, SinkUnderTest


@pytest.mark.parametrize("memory_bytes_max", [1 << 20, 1], ids=["in memory", "spilled"])
@pytest.mark.parametrize("check", SINK_CHECKS, ids=lambda check: check.__name__)
def test_staged_writer(check: Callable[[SinkUnderTest], None], memory_bytes_max: int) -> None:
    broker = FakeKafka({"out": TopicDescription(1)})
    store = MemoryStore()

    def open_writer(subtask: int, parallelism: int, attempt: int, restored: int) -> SinkWriter:
        files = AttemptStagedFiles(store, attempt, "out", subtask)
        context = SinkContext(
            "job",
            "beef",
            "out",
            subtask,
            parallelism,
            attempt,
            restored,
            files,
            ManualClock(),
            PRODUCE_SCHEMA,
        )
        client = FakeClient(FakeNetwork(broker, NoFaults()))
        return StagedWriter(context, client, StagedSettings(["out"], memory_bytes_max=memory_bytes_max))

    def records(n: int) -> Records:
        row = {"topic": "out", "partition": 0, "value": str(n).encode()}
        return Records(pa.RecordBatch.from_pylist([row], PRODUCE_SCHEMA))

    check(SinkUnderTest(open_writer, records, lambda: [int(row["value"]) for row in broker.visible]))
