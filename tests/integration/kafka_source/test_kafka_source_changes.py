"""Topics that change: new partitions and topics are found, what is gone stops the job by name."""

from __future__ import annotations

import socket
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Any

import pytest
from confluent_kafka import KafkaError
from confluent_kafka.admin import NewPartitions

from onceflow.connectors.formats import Raw
from onceflow.connectors.kafka import KafkaSource
from onceflow.connectors.kafka.fetched import Notice
from onceflow.connectors.kafka.metadata import ClusterMetadata
from onceflow.connectors.kafka.options import KafkaOptions
from onceflow.connectors.kafka.source import broker_health
from onceflow.connectors.kafka.source.reader import KafkaReader
from onceflow.runtime.clock import SystemClock
from onceflow.runtime.contracts import SplitEnumerator, SplitState, StartingEnumerator
from onceflow.runtime.errors import DataLossError, OptionError, Retryable, Unavailable
from onceflow.runtime.testing.mutation import Mutant, mutated

pytestmark = pytest.mark.kafka

OpenEnumerator = Callable[[KafkaSource], SplitEnumerator]


def source(cluster: Any, *topics: str, **options: Any) -> KafkaSource:
    return KafkaSource(bootstrap_servers=cluster.servers, topics=topics, value=Raw(), **options)


def at(state: SplitState, **position: int) -> SplitState:
    return replace(state, position={**state.position, **position})


@pytest.fixture
def enumerator() -> Iterator[OpenEnumerator]:
    opened: list[SplitEnumerator] = []

    def open_one(described: KafkaSource) -> SplitEnumerator:
        opened.append(described.open_enumerator("job", SystemClock()))
        return opened[-1]

    yield open_one
    for one in opened:
        one.close()


def ids(splits: Sequence[SplitState]) -> list[str]:
    return sorted(state.split_id for state in splits)


def test_new_partitions_and_topics_are_found_and_read_from_their_beginning(
    cluster: Any, new_topic: Any, enumerator: OpenEnumerator, reading: Any
) -> None:
    first = new_topic("grow")
    prefix = first.rsplit("-", 1)[-1]
    described = KafkaSource(
        bootstrap_servers=cluster.servers, topic_pattern=f".*{prefix}.*", value=Raw(), start="latest"
    )
    finder = enumerator(described)
    splits = list(finder.initial_splits())
    assert ids(splits) == [f"{first}-0"]
    assert finder.discovery_interval_ms == 30_000
    assert finder.discover(frozenset(ids(splits))) == []

    cluster.admin.create_partitions([NewPartitions(first, 2)])[first].result(30)
    second = new_topic(f"x{prefix}")
    cluster.produce(second, b"early")
    found: list[SplitState] = []
    while len(found) < 2:
        found += finder.discover(frozenset(ids([*splits, *found])))
    assert ids(found) == sorted([f"{first}-1", f"{second}-0"])
    cluster.produce(first, b"new partition", partition=1)
    read = reading(described, [*splits, *found])
    read.until(lambda: len(read.rows) == 2)
    assert sorted(row["value"] for _, _, row in read.rows) == [b"early", b"new partition"]


def test_regression_a_topic_that_has_just_been_made_can_be_read_at_once(
    cluster: Any, new_topic: Any, enumerator: OpenEnumerator
) -> None:
    """Its leaders are not ready yet: the broker answers NOT_LEADER_FOR_PARTITION for a moment."""
    for _ in range(5):
        topic = new_topic("fresh", partitions=20)
        assert len(enumerator(source(cluster, topic)).initial_splits()) == 20


def test_a_source_may_begin_elsewhere_than_its_program_says(
    cluster: Any, new_topic: Any, enumerator: OpenEnumerator
) -> None:
    """Once: new partitions and the next start are as the program says."""
    topic = new_topic("elsewhere", partitions=2)
    cluster.produce(topic, *(b"%d" % i for i in range(6)))
    finder = enumerator(source(cluster, topic, start="latest"))
    assert isinstance(finder, StartingEnumerator)
    for start, offset in (
        ("earliest", 0),
        ("latest", 6),
        ("timestamp:2001-01-01T00:00:00Z", 0),
        ({f"{topic}-0": 4, f"{topic}-1": 0}, 4),
    ):
        found = {s.split_id: s.position["next_offset"] for s in finder.splits_from(start)}
        assert found == {f"{topic}-0": offset, f"{topic}-1": 0}, start
    assert [s.position["next_offset"] for s in finder.initial_splits()] == [6, 0]
    with pytest.raises(OptionError, match=f"names no offset for {topic}-1: name every partition"):
        finder.splits_from({f"{topic}-0": 4})
    with pytest.raises(DataLossError, match="from offset 7, but the broker has 0 to 6"):
        finder.splits_from({f"{topic}-0": 7, f"{topic}-1": 0})
    with pytest.raises(OptionError, match="'never'"):
        finder.splits_from("never")


def test_a_bounded_source_finds_nothing_new(cluster: Any, new_topic: Any, enumerator: OpenEnumerator) -> None:
    topic = new_topic("fixed")
    finder = enumerator(source(cluster, topic, until="latest"))
    finder.initial_splits()
    cluster.admin.create_partitions([NewPartitions(topic, 2)])[topic].result(30)
    assert finder.discovery_interval_ms is None
    assert finder.discover(frozenset()) == []


def test_offsets_that_retention_deleted_stop_a_restore(
    cluster: Any, new_topic: Any, enumerator: OpenEnumerator
) -> None:
    topic = new_topic("retention")
    cluster.produce(topic, *(b"%d" % i for i in range(10)))
    finder = enumerator(source(cluster, topic))
    (split,) = finder.initial_splits()
    finder.check_restored([split, at(split, next_offset=10)])
    cluster.delete_before(topic, 6)
    finder.check_restored([at(split, next_offset=6)])
    with pytest.raises(
        DataLossError, match=rf"{topic}-0 .* offset 5, but the broker has only 6 to 10: 1 offsets"
    ):
        finder.check_restored([at(split, next_offset=5)])
    with pytest.raises(DataLossError, match=rf"{topic}-0 .* offset 11, but the broker's log ends at 10"):
        finder.check_restored([at(split, next_offset=11)])
    finder.check_restored([at(split, next_offset=3, stop_offset=3)])  # finished: nothing is missing


def test_offsets_deleted_under_a_running_reader_stop_it(
    cluster: Any, new_topic: Any, enumerator: OpenEnumerator, reading: Any
) -> None:
    topic = new_topic("running", partitions=2)
    cluster.produce(topic, *(b"%d" % i for i in range(10)))
    cluster.produce(topic, b"other", partition=1)
    splits = enumerator(source(cluster, topic)).initial_splits()
    cluster.delete_before(topic, 4)
    read = reading(source(cluster, topic), splits)
    with pytest.raises(DataLossError, match=rf"{topic}-0 .* offset 0, but the broker has only 4 to 10"):
        read.until(lambda: False)
    assert read.offsets(f"{topic}-0") == []
    assert read.positions()[f"{topic}-0"] == 0


def test_a_partition_that_stands_still_because_its_error_was_not_heard_is_assigned_anew_and_said(
    cluster: Any, new_topic: Any, enumerator: OpenEnumerator, reading: Any
) -> None:
    """The reader is deaf to the first error here, and soon impatient. librdkafka tells an error once, and
    reads nothing of its partition from then on: without a look at that, the reader waits for ever."""
    topic = new_topic("deaf")
    cluster.produce(topic, *(b"%d" % i for i in range(10)))
    splits = enumerator(source(cluster, topic)).initial_splits()
    cluster.delete_before(topic, 4)
    hear, unheard = KafkaReader._note, []

    def deaf_at_first(self: KafkaReader, notice: Notice) -> None:
        if unheard:
            hear(self, notice)
        else:
            unheard.append(notice.error.code())

    wrong = [(KafkaReader, "_note", deaf_at_first), (broker_health, "_STOPPED_MS", 2_000)]
    with mutated(Mutant("the first error is not heard", wrong)):
        read = reading(source(cluster, topic), splits)
        with pytest.raises(DataLossError, match=rf"{topic}-0 .* offset 0, but the broker has only 4 to 10"):
            read.until(lambda: False)
    assert unheard == [KafkaError._AUTO_OFFSET_RESET]
    assert read.waits[-1] == f"{topic}-0 was not read any more: it is assigned anew, from offset 0"


def test_a_topic_made_anew_stops_a_restore_and_discovery(
    cluster: Any, new_topic: Any, enumerator: OpenEnumerator, broker: Any
) -> None:
    topic = new_topic("anew")
    cluster.produce(topic, b"old")
    finder = enumerator(source(cluster, topic))
    splits = finder.initial_splits()
    cluster.delete_topic(topic)
    with pytest.raises(
        DataLossError, match=f"{topic}-0 can't go on at offset 0: topic '{topic}' has been deleted"
    ):
        enumerator(source(cluster, topic)).check_restored(splits)
    broker.create_topic(topic, 1)
    cluster.produce(topic, b"new", b"new")
    with pytest.raises(DataLossError, match="made anew"):
        enumerator(source(cluster, topic)).check_restored(splits)
    with pytest.raises(DataLossError, match="made anew"):
        finder.discover(frozenset(ids(splits)))


@pytest.mark.parametrize("is_made_anew", [False, True])
def test_a_topic_deleted_under_a_running_reader_stops_it(
    cluster: Any, new_topic: Any, reading: Any, broker: Any, is_made_anew: bool
) -> None:
    topic = new_topic("under")
    cluster.produce(topic, b"old")
    read = reading(source(cluster, topic)).to_the_end()
    cluster.delete_topic(topic)
    if is_made_anew:
        broker.create_topic(topic, 1)
        cluster.produce(topic, b"new")  # at offset 0, which is behind us: no error from the broker

    def read_on() -> None:
        while True:  # a passing fault may come first: offset 1 was out of range, then the record came
            with suppress(Retryable):
                read.until(lambda: False)

    with pytest.raises(DataLossError, match="made anew" if is_made_anew else "has been deleted while"):
        read_on()


def test_topics_that_are_not_there_are_named(
    cluster: Any, new_topic: Any, enumerator: OpenEnumerator
) -> None:
    topic = new_topic("spelling")
    with pytest.raises(OptionError, match=rf"'{topic[:-1]}' does not exist \(did you mean '{topic}'\?\)"):
        enumerator(source(cluster, topic[:-1])).initial_splits()
    nothing = KafkaSource(bootstrap_servers=cluster.servers, topic_pattern="nothing-like-it", value=Raw())
    with pytest.raises(OptionError, match="no topic matches topic_pattern='nothing-like-it'"):
        enumerator(nothing).initial_splits()
    assert cluster.admin.list_topics(timeout=240).topics.get("nothing-like-it") is None


def test_a_cluster_that_does_not_answer_is_named_with_the_reason() -> None:
    with socket.socket() as taken:  # bound, but nobody listens
        taken.bind(("127.0.0.1", 0))
        servers = f"127.0.0.1:{taken.getsockname()[1]}"
        metadata = ClusterMetadata(KafkaOptions(servers), SystemClock(), timeout_ms=1_000)
        with pytest.raises(Unavailable, match=f"topic 't' from Kafka at {servers}: .*refused"):
            metadata.describe(["t"])
        with pytest.raises(Unavailable, match=f"list of topics from Kafka at {servers}: .*refused"):
            metadata.topic_names()
        metadata.close()


@pytest.mark.parametrize("servers", ["127.0.0.1:1", "nobody.invalid:9092"])
def test_an_address_at_which_nobody_answers_is_named_after_broker_timeout(servers: str) -> None:
    never = KafkaSource(bootstrap_servers=servers, topics="t", value=Raw(), broker_timeout="1 s")
    enumerator = never.open_enumerator("job", SystemClock())
    with pytest.raises(Unavailable, match=rf"Kafka at {servers}: .*broker_timeout \(1 s\)"):
        enumerator.initial_splits()
    enumerator.close()
