"""A sink's topics are looked up again now and then: a broker that is away then costs no attempt."""

from __future__ import annotations

import io
from collections.abc import Iterator, Mapping, Sequence
from typing import BinaryIO

import pytest

from onceflow.connectors.kafka.client import PRODUCE_SCHEMA, TopicDescription
from onceflow.connectors.kafka.testing.fake import FakeClient, FakeNetwork, NoFaults
from onceflow.connectors.kafka.testing.fake_broker import FakeKafka
from onceflow.connectors.kafka.transactions.staged_writer import StagedSettings, StagedWriter
from onceflow.runtime.clock import ManualClock
from onceflow.runtime.contracts import SinkContext
from onceflow.runtime.errors import Fatal, OnceflowError, Retryable, Unavailable

MINUTE_MS = 60_000


class NoFiles:
    """StagedFiles for a sink that writes nothing."""

    def create(self, name: str) -> tuple[str, BinaryIO]:
        return name, io.BytesIO()

    def open(self, path: str) -> BinaryIO:
        raise FileNotFoundError(path)


class AskedClient(FakeClient):
    """Counts the look-ups of topics; each raises `error` if there is one."""

    asked = 0
    error: OnceflowError | None = None

    def describe_topics(self, topics: Sequence[str]) -> Mapping[str, TopicDescription]:
        self.asked += 1
        if self.error is not None:
            raise self.error
        return super().describe_topics(topics)


class AwayClient(FakeClient):
    """Each question takes five seconds, and nobody answers."""

    def __init__(self, network: FakeNetwork, clock: ManualClock) -> None:
        super().__init__(network)
        self._clock = clock

    def describe_topics(self, topics: Sequence[str]) -> Mapping[str, TopicDescription]:
        self._clock.advance(5_000)
        raise Retryable("could not look up the topic: _TRANSPORT")


def context(clock: ManualClock, attempt: int) -> SinkContext:
    return SinkContext(
        job="job",
        lineage="a" * 16,
        uid="out",
        subtask=0,
        parallelism=1,
        attempt=attempt,
        restored_checkpoint_id=0,
        files=NoFiles(),
        clock=clock,
        schema=PRODUCE_SCHEMA,
    )


class Sink:
    """A writer, its clock, its client and the broker."""

    def __init__(self) -> None:
        self.broker = FakeKafka({"out": TopicDescription(1)})
        self.client = AskedClient(FakeNetwork(self.broker, NoFaults()))
        self.clock = ManualClock()
        self.writer = StagedWriter(context(self.clock, 1), self.client, StagedSettings(["out"]))
        self.writer.recover([])
        self.client.asked = 0
        self._checkpoint = 0

    def commit_after(self, ms: int) -> None:
        self.clock.advance(ms)
        self._checkpoint += 1
        self.writer.commit(self._checkpoint)


@pytest.fixture
def sink() -> Iterator[Sink]:
    made = Sink()
    yield made
    made.writer.close()


def test_partitions_that_were_added_are_known_within_minutes(sink: Sink) -> None:
    sink.broker.topics["out"] = TopicDescription(3)
    sink.commit_after(MINUTE_MS)
    assert (sink.client.asked, sink.writer.topic("out").partitions) == (0, 1)
    sink.commit_after(5 * MINUTE_MS)
    assert (sink.client.asked, sink.writer.topic("out").partitions) == (1, 3)


def test_a_broker_that_is_away_when_topics_are_looked_up_again_costs_no_commit(sink: Sink) -> None:
    sink.broker.topics["out"] = TopicDescription(3)
    sink.client.error = Retryable("could not look up the topic: _TRANSPORT")
    sink.commit_after(6 * MINUTE_MS)
    assert sink.writer.topic("out").partitions == 1, "what was known is kept"
    sink.commit_after(1_000)
    assert sink.client.asked == 1, "not with each commit: the question may take seconds"
    sink.client.error = None
    sink.commit_after(MINUTE_MS)
    assert sink.writer.topic("out").partitions == 3


def test_what_waiting_does_not_help_is_still_raised(sink: Sink) -> None:
    sink.client.error = Fatal("the user lacks DESCRIBE on Topic out")
    with pytest.raises(Fatal, match="DESCRIBE"):
        sink.commit_after(6 * MINUTE_MS)


@pytest.mark.parametrize(("attempt", "why"), [(1, "10 s .*Nobody has ever answered"), (2, "20 s .*is safe")])
def test_an_address_at_which_nobody_has_ever_answered_is_given_up_sooner(attempt: int, why: str) -> None:
    clock = ManualClock()
    client = AwayClient(FakeNetwork(FakeKafka({}), NoFaults()), clock)
    settings = StagedSettings(["out"], delivery_timeout_ms=20_000, first_answer_ms=10_000)
    with pytest.raises(Unavailable, match=f"gave up after {why}"):
        StagedWriter(context(clock, attempt), client, settings)
