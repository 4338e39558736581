"""Rows come no faster than they are sent ahead: what is not sent yet stays in memory, which has a bound."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from typing import Any

import pyarrow as pa
import pytest

from onceflow.connectors.kafka.client import PRODUCE_SCHEMA, TopicDescription
from onceflow.connectors.kafka.testing.fake import FakeClient, FakeNetwork, NoFaults
from onceflow.connectors.kafka.testing.fake_broker import FakeKafka
from onceflow.connectors.kafka.transactions.ahead import AheadThread
from onceflow.connectors.kafka.transactions.staged_writer import StagedSettings, StagedWriter
from onceflow.runtime.checkpoint.memory_store import MemoryStore
from onceflow.runtime.checkpoint.staged_files import AttemptStagedFiles
from onceflow.runtime.clock import ManualClock
from onceflow.runtime.contracts import SinkContext
from onceflow.runtime.errors import Retryable

DEADLINE_S = 60.0
MEMORY_BYTES_MAX = 40_000


class HeldNetwork(FakeNetwork):
    """What is `held` waits until the test lets it go, or fails."""

    def __init__(self, kafka: FakeKafka) -> None:
        super().__init__(kafka, NoFaults())
        self.is_at_it, self.may_go = threading.Event(), threading.Event()
        self.held = "produce"
        self.failures = 0

    def call(self, what: str, *arguments: Any, **named: Any) -> Any:
        if what == self.held:
            self.is_at_it.set()
            assert self.may_go.wait(DEADLINE_S)
            if self.failures:
                self.failures -= 1
                raise Retryable("the broker is away")
        return super().call(what, *arguments, **named)


class World:
    def __init__(self, interval_ms: int | None = 1_000) -> None:
        self.network = HeldNetwork(FakeKafka({"out": TopicDescription(1)}))
        files = AttemptStagedFiles(MemoryStore(), 1, "out", 0)
        context = SinkContext(
            "job",
            "beef",
            "out",
            0,
            1,
            1,
            0,
            files,
            ManualClock(),
            PRODUCE_SCHEMA,
            checkpoint_interval_ms=interval_ms,
        )
        settings = StagedSettings(["out"], memory_bytes_max=MEMORY_BYTES_MAX)
        self.writer = StagedWriter(context, FakeClient(self.network), settings)
        self.writer.recover([])
        self.writer.start_sending_ahead()

    def write(self, size: int) -> None:
        row = {"topic": "out", "partition": 0, "value": b"x" * size}
        self.writer.write_rows(pa.RecordBatch.from_pylist([row], PRODUCE_SCHEMA))


@pytest.fixture
def world() -> Iterator[World]:
    made = World()
    yield made
    made.network.may_go.set()
    made.writer.close()


def until(condition: Callable[[], bool]) -> None:
    deadline, pause = threading.Event(), 0.005
    for _ in range(int(DEADLINE_S / pause)):
        if condition():
            return
        deadline.wait(pause)
    raise AssertionError("it did not happen in time")


def test_rows_wait_while_as_many_are_being_sent(world: World) -> None:
    world.write(100)
    assert world.network.is_at_it.wait(DEADLINE_S), "before the first barrier, for the interval is known"
    assert world.writer.has_room
    world.write(MEMORY_BYTES_MAX // 2)
    assert not world.writer.has_room
    world.network.may_go.set()
    until(lambda: world.writer.has_room)


def test_what_was_sent_takes_no_room(world: World) -> None:
    world.network.may_go.set()
    world.write(MEMORY_BYTES_MAX // 2)
    assert world.network.is_at_it.wait(DEADLINE_S)
    until(lambda: not world.writer.send_ahead())
    world.network.may_go.clear()
    world.network.is_at_it.clear()
    world.write(100)
    assert world.network.is_at_it.wait(DEADLINE_S)
    assert world.writer.has_room


def test_rows_behind_a_commit_stay_in_memory_until_they_are_sent(world: World) -> None:
    world.network.held = "commit"
    world.write(100)
    world.writer.pre_commit(1).stage()
    commit = threading.Thread(target=world.writer.commit, args=(1,))
    commit.start()
    assert world.network.is_at_it.wait(DEADLINE_S)
    assert world.writer.has_room
    world.write(MEMORY_BYTES_MAX // 2)
    assert not world.writer.has_room
    world.network.may_go.set()
    commit.join(DEADLINE_S)
    until(lambda: world.writer.has_room)


def test_rows_do_not_wait_for_a_sending_that_failed(world: World) -> None:
    """Then only the commit sends them, and it comes after a barrier, which queues behind the rows."""
    world.network.failures = 1
    world.write(100)
    assert world.network.is_at_it.wait(DEADLINE_S)
    world.write(MEMORY_BYTES_MAX)
    assert not world.writer.has_room
    world.network.may_go.set()
    until(lambda: world.writer.has_room)


@pytest.mark.parametrize("interval_ms", [None, 60_000])
def test_nothing_is_sent_ahead_before_an_interval_is_known_to_be_short(interval_ms: int | None) -> None:
    world = World(interval_ms)
    world.write(100)
    assert not world.writer.send_ahead()
    assert world.writer.has_room
    world.writer.pre_commit(1).stage()  # it may come at once: the last one of bounded input does
    assert not world.writer.send_ahead()
    assert not world.network.is_at_it.is_set()
    world.writer.close()


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
def test_a_sending_that_breaks_is_over() -> None:
    broke = threading.Event()

    def send() -> bool:
        broke.set()
        raise RuntimeError("not a failure that send_ahead expects")

    before = set(threading.enumerate())
    sender = AheadThread(send)
    (thread,) = set(threading.enumerate()) - before
    sender.wake()
    assert broke.wait(DEADLINE_S)
    thread.join(DEADLINE_S)
    assert not thread.is_alive()
    assert not sender.is_sending
