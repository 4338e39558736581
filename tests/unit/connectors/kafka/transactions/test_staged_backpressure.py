"""While a commit waits for the broker, a writer's output has a bound; a barrier never waits for it."""

from __future__ import annotations

import io
import threading
from collections.abc import Iterator
from typing import BinaryIO

import pyarrow as pa
import pytest

from onceflow.connectors.kafka.client import PRODUCE_SCHEMA, LedgerEntry, TopicDescription
from onceflow.connectors.kafka.testing.fake import FakeClient, FakeNetwork, FakeProducer, NoFaults
from onceflow.connectors.kafka.testing.fake_broker import FakeKafka
from onceflow.connectors.kafka.transactions.staged_writer import StagedSettings, StagedWriter
from onceflow.runtime.clock import ManualClock
from onceflow.runtime.contracts import SinkContext, ThrottlingWriter

WAITING_BYTES_MAX = 2_000
DEADLINE_S = 60.0


class Files:
    """StagedFiles in memory."""

    def __init__(self) -> None:
        self._content: dict[str, io.BytesIO] = {}

    def create(self, name: str) -> tuple[str, BinaryIO]:
        path = f"{len(self._content)}-{name}"
        self._content[path] = io.BytesIO()
        return path, io.BytesIO()

    def open(self, path: str) -> BinaryIO:
        return self._content[path]


class HeldProducer(FakeProducer):
    """Its commit waits until the test lets it go."""

    held = threading.Event()
    release = threading.Event()

    def send_ledger(self, entry: LedgerEntry) -> None:
        if entry.checkpoint_id > 0:
            self.held.set()
            assert self.release.wait(DEADLINE_S)
        super().send_ledger(entry)


class HeldClient(FakeClient):
    def open_producer(self, ledger):  # type: ignore[no-untyped-def]
        producer = super().open_producer(ledger)
        producer.__class__ = HeldProducer
        return producer


@pytest.fixture
def writer() -> Iterator[StagedWriter]:
    HeldProducer.held.clear()
    HeldProducer.release.clear()
    context = SinkContext(
        job="job",
        lineage="a" * 16,
        uid="out",
        subtask=0,
        parallelism=1,
        attempt=1,
        restored_checkpoint_id=0,
        files=Files(),
        clock=ManualClock(),
        schema=PRODUCE_SCHEMA,
    )
    client = HeldClient(FakeNetwork(FakeKafka({"out": TopicDescription(1)}), NoFaults()))
    staged = StagedWriter(context, client, StagedSettings(["out"], waiting_bytes_max=WAITING_BYTES_MAX))
    yield staged
    HeldProducer.release.set()
    staged.close()


def rows(count: int) -> pa.RecordBatch:
    row = {"topic": "out", "partition": 0, "key": None, "value": b"x" * 100, "headers": None}
    return pa.RecordBatch.from_pylist([row | {"timestamp": None}] * count, schema=PRODUCE_SCHEMA)


def test_output_has_a_bound_only_while_a_commit_is_under_way(writer: StagedWriter) -> None:
    assert isinstance(writer, ThrottlingWriter)
    writer.recover([])
    writer.write_rows(rows(100))
    assert writer.has_room, "an epoch may be as large as it is: only a barrier ends it"
    writer.pre_commit(1).stage()
    commit = threading.Thread(target=writer.commit, args=(1,))
    commit.start()
    assert HeldProducer.held.wait(DEADLINE_S)
    assert writer.has_room, "nothing waits yet behind the commit"
    writer.write_rows(rows(100))
    assert not writer.has_room, "the broker is away: no more rows until the commit is done"
    HeldProducer.release.set()
    commit.join(DEADLINE_S)
    assert writer.has_room


def test_output_has_a_bound_until_the_restored_output_is_committed(writer: StagedWriter) -> None:
    writer.write_rows(rows(100))
    assert not writer.has_room
    writer.recover([])
    assert writer.has_room
