"""Single rules of staged transactions, on the broker in memory; tests/simulation has the rest."""

from __future__ import annotations

import pyarrow as pa
import pytest

from onceflow.connectors.kafka.client import PRODUCE_SCHEMA, LedgerKey, TopicDescription
from onceflow.connectors.kafka.testing.fake import FakeClient, FakeNetwork, FakeProducer, NoFaults
from onceflow.connectors.kafka.testing.fake_broker import FakeKafka
from onceflow.connectors.kafka.transactions.sink_topics import LEDGER_TOPIC
from onceflow.connectors.kafka.transactions.staged_writer import StagedSettings, StagedWriter
from onceflow.runtime.checkpoint.memory_store import MemoryStore
from onceflow.runtime.checkpoint.staged_files import AttemptStagedFiles
from onceflow.runtime.clock import ManualClock
from onceflow.runtime.contracts import SinkContext
from onceflow.runtime.errors import Fatal, Fenced, OnceflowError, Retryable

LEDGER = LedgerKey("job.out.beef.0", LEDGER_TOPIC)


class Patience:
    def __init__(self) -> None:
        self.waits: list[OnceflowError] = []

    def wait(self, error: OnceflowError) -> None:
        self.waits.append(error)
        if len(self.waits) > 20:
            raise Retryable("gave up")

    def reset(self) -> None: ...


class World:
    def __init__(self) -> None:
        self.broker = FakeKafka({"out": TopicDescription(1)})
        self.clock = ManualClock()
        self.patience = Patience()

    def writer(self, client: FakeClient | None = None) -> StagedWriter:
        files = AttemptStagedFiles(MemoryStore(), 1, "out", 0)
        context = SinkContext("job", "beef", "out", 0, 1, 1, 0, files, self.clock, PRODUCE_SCHEMA)
        client = client or FakeClient(FakeNetwork(self.broker, NoFaults()))
        writer = StagedWriter(context, client, StagedSettings(["out"]), self.patience)
        writer.recover([])
        return writer


def write(writer: StagedWriter, checkpoint_id: int, *values: bytes) -> None:
    rows = [{"topic": "out", "partition": 0, "value": value} for value in values]
    writer.write_rows(pa.RecordBatch.from_pylist(rows, PRODUCE_SCHEMA))
    writer.pre_commit(checkpoint_id).stage()
    writer.commit(checkpoint_id)


def test_first_start_writes_0_and_the_checkpoint_remembers_it() -> None:
    world = World()
    writer = world.writer()
    assert world.broker.ledgers[LEDGER].checkpoint_id == 0
    assert writer.pre_commit(1).stage().payload["ledger"] == 0


def test_nothing_written_is_no_transaction_until_the_ledger_would_expire() -> None:
    class ShortMemory(FakeClient):
        def offsets_retention_ms(self) -> int:
            return 80_000

    world = World()
    writer = world.writer(ShortMemory(FakeNetwork(world.broker, NoFaults())))
    write(writer, 1)
    assert world.broker.ledgers[LEDGER].checkpoint_id == 0
    world.clock.advance(10_001)
    write(writer, 2)
    assert world.broker.ledgers[LEDGER].checkpoint_id == 2


class _LosesOne(FakeProducer):
    def flush(self) -> int:
        return super().flush() - (self._epoch == 0 and self._rows > 0)


class _LossyClient(FakeClient):
    def open_producer(self, ledger: LedgerKey) -> FakeProducer:
        producer = super().open_producer(ledger)
        return _LosesOne(self._network, ledger, producer._epoch)


def test_missing_delivery_is_doubt_and_everything_is_sent_again() -> None:
    world = World()
    client = _LossyClient(FakeNetwork(world.broker, NoFaults()))
    writer = world.writer(client)
    write(writer, 1, b"a", b"b")
    assert "2 records were sent but 1 acknowledged" in str(world.patience.waits[0])
    assert [row["value"] for row in world.broker.visible] == [b"a", b"b"]


class _AlwaysFenced(FakeProducer):
    def commit(self) -> None:
        raise Fenced("the transaction timed out")


class _SlowClient(FakeClient):
    def open_producer(self, ledger: LedgerKey) -> FakeProducer:
        producer = super().open_producer(ledger)
        return _AlwaysFenced(self._network, ledger, producer._epoch) if producer._epoch else producer


def test_fenced_again_and_again_by_nobody_names_the_transaction_timeout() -> None:
    world = World()
    writer = world.writer(_SlowClient(FakeNetwork(world.broker, NoFaults())))
    world.broker.init(LEDGER.transactional_id)  # as when the coordinator timed it out
    with pytest.raises(Fatal, match="transaction_timeout"):
        write(writer, 1, b"a")
    assert world.broker.visible == []
