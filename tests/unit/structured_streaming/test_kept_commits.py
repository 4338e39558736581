"""What a committing process keeps between micro-batches, on the fake broker."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import pyarrow as pa
import pytest

from onceflow.connectors.kafka.client import PRODUCE_SCHEMA, KafkaClient, LedgerKey, TopicDescription
from onceflow.connectors.kafka.testing.fake import FakeClient, FakeNetwork, Impatience, NoFaults
from onceflow.connectors.kafka.testing.fake_broker import FakeKafka
from onceflow.connectors.kafka.transactions.producer_settings import RouteName
from onceflow.connectors.waiting import Patience
from onceflow.structured_streaming.kept_commits import Committer, KeptCommits
from onceflow.structured_streaming.micro_batches import ledger_after
from onceflow.structured_streaming.sink_options import SinkOptions, sink_options

LEDGER = LedgerKey("onceflow.out", "ledger")
OPTIONS = {"bootstrap_servers": "b:1", "topic": "out", "uid": "out", "checkpointLocation": "/c"}


class Watched(FakeClient):
    """Counts what it is asked for, and whether it was closed."""

    def __init__(self, broker: FakeKafka) -> None:
        super().__init__(FakeNetwork(broker, NoFaults()))
        self.lookups = 0
        self.is_closed = False

    def describe_topics(self, topics: Sequence[str]) -> Mapping[str, TopicDescription]:
        self.lookups += 1
        return super().describe_topics(topics)

    def close(self) -> None:
        self.is_closed = True


@dataclass(frozen=True)
class OneRow:
    batch_id: int

    @property
    def checkpoint_id(self) -> int:
        return ledger_after(self.batch_id)

    def batches(self) -> Iterator[pa.RecordBatch]:
        row = {"topic": "out", "partition": 0, "value": b"%d" % self.batch_id}
        yield pa.RecordBatch.from_pylist([row], PRODUCE_SCHEMA)


class Marks(set[int]):
    def has(self, batch_id: int) -> bool:
        return batch_id in self

    def forget_before(self, batch_id: int) -> None:
        self -= {each for each in self if each < batch_id}


class Process:
    """One that commits for queries."""

    def __init__(self) -> None:
        self.broker = FakeKafka(topics={"out": TopicDescription(3)})
        self.kept = KeptCommits()
        self.clients: list[Watched] = []
        self.marks: dict[str, Marks] = {}

    def open(self, route: RouteName) -> tuple[KafkaClient, Patience]:
        self.clients.append(Watched(self.broker))
        return self.clients[-1], Impatience()

    def take(self, options: SinkOptions, query: str, route: RouteName = "bulk") -> Committer:
        return self.kept.take(options, self.ledger(query), query, route, self.open)

    def ledger(self, query: str) -> LedgerKey:
        return replace(LEDGER, transactional_id=f"onceflow.{query}")

    def commit(
        self,
        batch_id: int,
        query: str = "q",
        options: SinkOptions | None = None,
        route: RouteName = "bulk",
    ) -> None:
        committer = self.take(options or checked(), query, route)
        assert committer.topics({"out"})["out"].partitions == 3
        marks = self.marks.setdefault(query, Marks())
        committer.commits.commit(batch_id, [OneRow(batch_id)], marks)
        self.kept.give_back(self.ledger(query), query, committer)


def checked(**more: str) -> SinkOptions:
    return sink_options({**OPTIONS, **more}, "writeStream")


@pytest.fixture
def process() -> Process:
    return Process()


def test_the_batches_of_a_query_use_one_client_and_look_its_topics_up_once(process: Process) -> None:
    for batch_id in range(4):
        process.commit(batch_id)
    (client,) = process.clients
    assert (process.kept.opened, client.lookups, client.is_closed) == (1, 1, False)
    assert [row["value"] for row in process.broker.visible] == [b"0", b"1", b"2", b"3"]
    process.kept.close()
    assert client.is_closed


def test_a_topic_that_was_not_asked_for_before_is_looked_up_at_once(process: Process) -> None:
    process.commit(0)
    committer = process.take(checked(), "q")
    process.broker.topics["more"] = TopicDescription(7)
    assert committer.topics({"out", "more"})["more"].partitions == 7


def test_other_options_of_the_same_query_open_a_new_client(process: Process) -> None:
    process.commit(0)
    process.commit(1, options=checked(transaction_timeout="1 min"))
    assert [client.is_closed for client in process.clients] == [True, False]
    assert len(process.broker.visible) == 2


def test_a_large_batch_opens_a_client_that_the_small_ones_after_it_use_too(process: Process) -> None:
    routes: tuple[RouteName, ...] = ("bulk", "direct", "bulk", "direct")
    for batch_id, route in enumerate(routes):
        process.commit(batch_id, route=route)
    assert [client.is_closed for client in process.clients] == [True, False]
    assert len(process.broker.visible) == 4


def test_queries_do_not_share_and_only_a_few_are_kept(process: Process) -> None:
    for number in range(6):
        process.commit(0, query=f"q{number}")
    assert [client.is_closed for client in process.clients] == [True, True, False, False, False, False]


def test_one_that_was_taken_and_not_given_back_is_not_used_again(process: Process) -> None:
    """After an error the sink closes it."""
    process.commit(0)
    process.take(checked(), "q").close()
    process.commit(1)
    assert [client.is_closed for client in process.clients] == [True, False]
    assert [row["value"] for row in process.broker.visible] == [b"0", b"1"]
