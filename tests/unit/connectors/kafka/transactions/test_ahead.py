"""Rows in the open transaction before their checkpoint is durable: which, when, in which order."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass, field

import pyarrow as pa
import pytest

from onceflow.connectors.kafka.client import PRODUCE_SCHEMA, LedgerKey, TopicDescription
from onceflow.connectors.kafka.testing.fake import FakeClient, FakeNetwork, NoFaults
from onceflow.connectors.kafka.testing.fake_broker import FakeKafka
from onceflow.connectors.kafka.transactions.ahead import SentAhead
from onceflow.connectors.kafka.transactions.held import HeldOutput
from onceflow.connectors.kafka.transactions.sink_topics import LEDGER_TOPIC
from onceflow.connectors.kafka.transactions.staged_writer import StagedSettings, StagedWriter
from onceflow.runtime.checkpoint.memory_store import MemoryStore
from onceflow.runtime.checkpoint.staged_files import AttemptStagedFiles
from onceflow.runtime.clock import ManualClock
from onceflow.runtime.contracts import SinkContext
from onceflow.runtime.errors import Retryable

LEDGER = LedgerKey("job.out.beef.0", LEDGER_TOPIC)
DEADLINE_S = 60.0


@dataclass
class CountedNetwork(FakeNetwork):
    calls: list[str] = field(default_factory=list)
    fails_at: str = ""

    def call(self, what, request, **named):  # type: ignore[no-untyped-def]
        self.calls.append(what)
        if what == self.fails_at:
            self.fails_at = ""
            raise Retryable(f"{what}: the broker is away")
        return super().call(what, request, **named)


class World:
    """A writer after its first barrier, from which on the interval is known."""

    def __init__(self, memory_bytes_max: int = 1 << 20, interval_ms: int = 100) -> None:
        self.broker = FakeKafka({"out": TopicDescription(1)})
        self.clock = ManualClock()
        self.network = CountedNetwork(self.broker, NoFaults())
        files = AttemptStagedFiles(MemoryStore(), 1, "out", 0)
        context = SinkContext("job", "beef", "out", 0, 1, 1, 0, files, self.clock, PRODUCE_SCHEMA)
        settings = StagedSettings(["out"], memory_bytes_max=memory_bytes_max)
        self.writer = StagedWriter(context, FakeClient(self.network), settings)
        self.writer.recover([])
        for checkpoint_id in (1, 2):
            self.clock.advance(interval_ms)
            self.writer.pre_commit(checkpoint_id).stage()
            self.writer.commit(checkpoint_id)
        self.network.calls.clear()

    def write(self, *values: bytes) -> None:
        rows = [{"topic": "out", "partition": 0, "value": value} for value in values]
        self.writer.write_rows(pa.RecordBatch.from_pylist(rows, PRODUCE_SCHEMA))

    @property
    def ahead(self) -> list[bytes]:
        return [row["value"] for row in self.broker.open_rows(LEDGER.transactional_id)]

    @property
    def visible(self) -> list[bytes]:
        return [row["value"] for row in self.broker.visible]


def test_rows_go_into_the_transaction_as_they_come_and_the_commit_ends_it() -> None:
    world = World()
    world.write(b"a")
    assert world.writer.send_ahead()
    world.write(b"b")
    assert world.writer.send_ahead()
    assert (world.ahead, world.visible) == ([b"a", b"b"], [])
    world.writer.pre_commit(3).stage()
    world.network.calls.clear()
    world.writer.commit(3)
    assert world.network.calls == ["send ledger", "commit", "read ledger"]
    assert world.visible == [b"a", b"b"]


def test_what_was_not_sent_ahead_comes_with_the_commit() -> None:
    world = World()
    world.write(b"a")
    world.writer.send_ahead()
    world.write(b"b")
    world.writer.pre_commit(3).stage()
    world.writer.commit(3)
    assert world.visible == [b"a", b"b"]


def test_rows_behind_a_barrier_wait_until_those_before_it_are_committed() -> None:
    world = World()
    world.write(b"a")
    world.writer.pre_commit(3).stage()
    world.write(b"b")
    assert world.writer.send_ahead()
    assert not world.writer.send_ahead()
    assert world.ahead == [b"a"]
    world.writer.commit(3)
    assert world.writer.send_ahead()
    assert (world.ahead, world.visible) == ([b"b"], [b"a"])


def test_after_an_aborted_checkpoint_the_next_one_goes_on_in_the_same_transaction() -> None:
    world = World()
    world.write(b"a")
    world.writer.pre_commit(3).stage()
    world.writer.send_ahead()
    world.write(b"b")
    world.writer.pre_commit(4).stage()
    world.writer.send_ahead()
    assert world.ahead == [b"a", b"b"]
    world.writer.commit(4)
    assert world.visible == [b"a", b"b"]


def test_a_commit_that_is_not_for_all_that_was_sent_starts_anew() -> None:
    world = World()
    world.write(b"a")
    world.writer.pre_commit(3).stage()
    world.write(b"b")
    world.writer.pre_commit(4).stage()
    world.writer.send_ahead()
    world.writer.commit(3)
    assert world.visible == [b"a"]
    world.writer.commit(4)
    assert world.visible == [b"a", b"b"]


def test_what_was_spilled_is_sent_by_the_commit_and_nothing_overtakes_it() -> None:
    world = World(memory_bytes_max=1)
    world.write(b"spilled")
    world.writer.pre_commit(3).stage()
    world.writer.pre_commit(4).stage()
    assert not world.writer.send_ahead()
    output, kept = held_output(1), held_output(1 << 20)
    assert SentAhead().next_of([output, kept]) == []
    world.writer.commit(4)
    assert world.visible == [b"spilled"]


def held_output(memory_bytes_max: int) -> HeldOutput:
    output = HeldOutput(AttemptStagedFiles(MemoryStore(), 1, "out", 0), memory_bytes_max)
    row = {"topic": "out", "partition": 0, "value": b"x"}
    output.add(pa.RecordBatch.from_pylist([row], PRODUCE_SCHEMA))
    return output


def test_rows_sent_before_they_were_spilled_are_not_sent_again() -> None:
    world = World(memory_bytes_max=800)
    for value in (b"a", b"b"):
        world.write(value)
        world.writer.send_ahead()
    world.write(b"c" * 1_000)  # spills all three
    assert not world.writer.send_ahead()
    world.write(b"d")
    assert not world.writer.send_ahead(), "nothing before the row that is in the file"
    world.writer.pre_commit(3).stage()
    world.writer.commit(3)
    assert world.visible == [b"a", b"b", b"c" * 1_000, b"d"]


def test_barriers_far_apart_send_nothing_ahead_since_readers_would_wait() -> None:
    world = World(interval_ms=10_000)
    world.write(b"a")
    assert not world.writer.send_ahead()
    world.writer.pre_commit(3).stage()
    world.writer.commit(3)
    assert world.visible == [b"a"]


def test_a_broker_that_is_away_fails_nothing_before_the_commit() -> None:
    world = World()
    world.network.fails_at = "produce"
    world.write(b"a", b"b")
    assert not world.writer.send_ahead()
    world.writer.pre_commit(3).stage()
    world.writer.commit(3)
    assert world.visible == [b"a", b"b"]


def test_closing_ends_what_was_begun_ahead_so_that_readers_need_not_wait_for_a_timeout() -> None:
    world = World()
    world.write(b"a")
    world.writer.send_ahead()
    world.writer.close()
    assert (world.ahead, world.visible) == ([], [])
    assert not world.writer.send_ahead()


@pytest.fixture
def running() -> Iterator[World]:
    world = World()
    world.writer.start_sending_ahead()
    yield world
    world.writer.close()


def test_the_thread_sends_what_is_written(running: World) -> None:
    running.write(b"a")
    deadline = time.monotonic() + DEADLINE_S
    while running.ahead != [b"a"]:
        assert time.monotonic() < deadline, "nobody sent it"
