"""Drives a KafkaSource as the engine does, without the engine."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import fields
from typing import Any

import pytest
from confluent_kafka import Producer, TopicPartition
from confluent_kafka.admin import AdminClient, OffsetSpec

from onceflow.connectors.kafka.embedded import EmbeddedKafka
from onceflow.connectors.kafka.fetch.direct_reading import DirectReading
from onceflow.connectors.kafka.source.source import KafkaSource
from onceflow.runtime.clock import SystemClock
from onceflow.runtime.contracts import Fetch, ReaderContext, SplitState
from onceflow.runtime.kernels.ops import PLAIN, ops, using

DEADLINE_S = 240
RECORDS_ASKED = 10_000


EAGERLY = DirectReading(records_behind=1, full_fetches=0, pause_s=0.5)
"""Whatever may be fetched directly is, as soon as librdkafka has brought a first record of it."""


class Way:
    """How this test's sources read: as users' do, unless `direct` says how directly."""

    direct: DirectReading | None = None

    def of(self, source: KafkaSource) -> KafkaSource:
        """The same source, read this way."""
        direct = self.direct
        if direct is None:
            return source

        class Tuned(KafkaSource):
            def _direct(self) -> DirectReading:
                return direct

        return Tuned(**{field.name: getattr(source, field.name) for field in fields(source)})


class Reading:
    """An open reader and all it has brought."""

    def __init__(self, source: KafkaSource, splits: Sequence[SplitState]) -> None:
        self.waits: list[str] = []
        context = ReaderContext(
            "job",
            "uid",
            0,
            1,
            SystemClock(),
            with_origin=True,
            with_timestamp=True,
            on_wait=self.waits.append,
        )
        self.reader = source.open_reader(context)
        self.reader.add_splits(splits)
        self.splits = {state.split_id for state in splits}
        self.rows: list[tuple[str, int, dict[str, Any]]] = []
        self.dead_letters: list[dict[str, Any]] = []
        self.timestamps: list[int] = []
        self.at_end: frozenset[str] = frozenset()
        self.finished: set[str] = set()

    def poll(self, timeout_ms: int = 50) -> Fetch | None:
        """One poll, remembered."""
        fetch = self.reader.poll(timeout_ms, RECORDS_ASKED)
        if fetch is None:
            return None
        assert fetch.offset is not None
        assert fetch.timestamp_ms is not None
        names = [fetch.splits[i] for i in fetch.row_split.tolist()]
        rows = fetch.records.to_pylist()
        assert len(rows) == len(names) == len(fetch.offset) == len(fetch.timestamp_ms)
        self.rows += zip(names, fetch.offset.tolist(), rows, strict=True)
        self.timestamps += fetch.timestamp_ms.tolist()
        if fetch.dead_letters is not None:
            self.dead_letters += fetch.dead_letters.to_pylist()
        assert not fetch.finished & self.finished, "told twice"
        self.finished |= fetch.finished
        self.at_end = fetch.at_end
        return fetch

    def until(self, condition: Callable[[], bool]) -> Reading:
        """Poll until it is so."""
        deadline = time.monotonic() + DEADLINE_S
        while not condition():
            assert time.monotonic() < deadline, (
                f"{len(self.rows)} rows, at end {self.at_end}, {self.waits[-3:]}"
            )
            self.poll()
        return self

    def to_the_end(self) -> Reading:
        return self.until(lambda: self.at_end | self.finished == self.splits)

    def offsets(self, split_id: str | None = None) -> list[int]:
        return [offset for name, offset, _ in self.rows if split_id in (None, name)]

    def positions(self) -> dict[str, int]:
        return {state.split_id: state.position["next_offset"] for state in self.reader.snapshot()}


class Cluster:
    """A broker as the tests see it."""

    def __init__(self, broker: EmbeddedKafka) -> None:
        self.servers = broker.bootstrap_servers
        self.admin = AdminClient({"bootstrap.servers": self.servers, "log_level": 0})

    def produce(self, topic: str, *values: bytes | None, partition: int = 0, **record: Any) -> None:
        producer = Producer(
            {"bootstrap.servers": self.servers, "log_level": 0, "message.max.bytes": 10_000_000}
        )
        for value in values:
            producer.produce(topic, value, partition=partition, **record)
        assert producer.flush(30) == 0

    def transaction(self, topic: str, *values: bytes, partition: int = 0) -> Producer:
        """An open transaction with these values in it."""
        settings = {
            "bootstrap.servers": self.servers,
            "log_level": 0,
            "transactional.id": f"{topic}-{time.monotonic_ns()}",
        }
        producer = Producer(settings)
        producer.init_transactions(30)
        producer.begin_transaction()
        for value in values:
            producer.produce(topic, value, partition=partition)
        producer.flush(30)
        return producer

    def wait_end(self, topic: str, offset: int) -> None:
        """Wait until partition 0 ends there. A transaction's marker is written after its end is answered, so
        without this it may come behind what is produced next."""
        partition, deadline = TopicPartition(topic, 0), time.monotonic() + DEADLINE_S
        while True:
            future = self.admin.list_offsets({partition: OffsetSpec.latest()})[partition]
            if (end := future.result(60).offset) == offset:
                return
            assert end < offset, f"{topic} ends at {end} already"
            assert time.monotonic() < deadline, f"{topic} ends at {end}, not yet at {offset}"

    def delete_before(self, topic: str, offset: int, partition: int = 0) -> None:
        for future in self.admin.delete_records([TopicPartition(topic, partition, offset)]).values():
            future.result(30)

    def delete_topic(self, topic: str) -> None:
        self.admin.delete_topics([topic])[topic].result(30)
        deadline = time.monotonic() + DEADLINE_S
        while topic in self.admin.list_topics(timeout=240).topics:
            assert time.monotonic() < deadline


OpenReading = Callable[..., Reading]


@pytest.fixture
def way() -> Way:
    return Way()


@pytest.fixture
def directly(way: Way) -> None:
    """Whatever may be fetched directly is."""
    way.direct = EAGERLY


@pytest.fixture(params=["by librdkafka", "directly"])
def all_ways(request: pytest.FixtureRequest) -> None:
    """The test runs twice: by librdkafka, and from the brokers themselves."""
    if request.param == "directly":
        request.getfixturevalue("directly")


@pytest.fixture(params=["by librdkafka", "directly", "without kernels"])
def all_ways_and_the_judge(request: pytest.FixtureRequest) -> Iterator[None]:
    """The test runs three times: the third time one record after the other is fetched and decoded."""
    if request.param == "directly":
        request.getfixturevalue("directly")
    with using(PLAIN if request.param == "without kernels" else ops()):
        yield


@pytest.fixture
def cluster(broker: EmbeddedKafka) -> Cluster:
    return Cluster(broker)


@pytest.fixture
def reading(way: Way) -> Iterator[OpenReading]:
    """`reading(source)` starts at the source's start, `reading(source, splits)` at these positions."""
    opened: list[Reading] = []

    def open_reading(source: KafkaSource, splits: Sequence[SplitState] | None = None) -> Reading:
        opened.append(Reading(way.of(source), initial_splits(source) if splits is None else splits))
        return opened[-1]

    yield open_reading
    for one in opened:
        one.reader.close()


@pytest.fixture
def splits_of() -> Callable[[KafkaSource], Sequence[SplitState]]:
    """The splits of a first start."""
    return initial_splits


def initial_splits(source: KafkaSource) -> Sequence[SplitState]:
    enumerator = source.open_enumerator("job", SystemClock())
    try:
        return enumerator.initial_splits()
    finally:
        enumerator.close()
