"""A backlog that is read from the broker directly: exactly, whatever happens to the broker meanwhile."""

from __future__ import annotations

import logging
import struct
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import replace
from typing import Any

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient

from onceflow.connectors.formats import Raw
from onceflow.connectors.kafka import KafkaSource
from onceflow.connectors.kafka.fetch.broker_lanes import LeaderFetch
from onceflow.connectors.kafka.protocol.fetch_messages import fetch_answer
from onceflow.connectors.kafka.protocol.polling_connection import BrokerConnection
from onceflow.connectors.kafka.protocol.wire import ProtocolError
from onceflow.runtime.errors import DataLossError, Retryable

pytestmark = [
    pytest.mark.kafka,
    pytest.mark.usefixtures("directly"),
]

PARTITIONS = 3
RECORDS = 30_000
EACH = RECORDS // PARTITIONS
_HEADER_BYTES = 61  # of a batch


@pytest.fixture(scope="module")
def mortal(module_broker: Callable[..., Any]) -> Any:
    return module_broker()


@pytest.fixture
def counted(directly: None, way: Any) -> Iterator[list[int]]:
    """How many records each direct fetch brought."""
    counts: list[int] = []

    class Counting(LeaderFetch):
        def fetch(self, records_max: int) -> Any:
            fetched = super().fetch(records_max)
            counts.append(0 if fetched is None else len(fetched))
            return fetched

    way.direct = replace(way.direct, leader=Counting)
    yield counts
    assert sum(counts) > 0, "nothing was read directly, so the test has shown nothing"


@pytest.fixture
def small_answers(directly: None, way: Any) -> None:
    """Answers are small, so that a backlog takes many."""
    way.direct = replace(way.direct, answer_bytes_max=20_000, partition_bytes_min=5_000)


def backlog(broker: Any) -> str:
    """Batches of a few hundred records, in transactions, every other of which is aborted."""
    topic: str = broker.create_topic(f"backlog-{time.monotonic_ns()}", PARTITIONS)
    plain = {
        "bootstrap.servers": broker.bootstrap_servers,
        "log_level": 0,
        "batch.num.messages": 300,
        "linger.ms": 50,
    }
    producer = Producer({**plain, "transactional.id": topic})
    producer.init_transactions(60)
    for first in range(0, RECORDS, RECORDS // 10):
        for value, is_aborted in ((b"aborted", True), (None, False)):
            producer.begin_transaction()
            for i in range(first, first + RECORDS // 10):
                producer.produce(topic, value or b"%d" % i, partition=i % PARTITIONS)
            producer.flush(60)
            if is_aborted:
                producer.abort_transaction(60)
            else:
                producer.commit_transaction(60)
    return topic


def source(broker: Any, topic: str, **options: Any) -> KafkaSource:
    return KafkaSource(bootstrap_servers=broker.bootstrap_servers, topics=topic, value=Raw(), **options)


def values(read: Any, topic: str) -> dict[str, list[int]]:
    found: dict[str, list[int]] = {f"{topic}-{partition}": [] for partition in range(PARTITIONS)}
    for split, _, row in read.rows:
        found[split].append(int(row["value"]))
    return found


def expected(topic: str) -> dict[str, list[int]]:
    return {f"{topic}-{p}": list(range(p, RECORDS, PARTITIONS)) for p in range(PARTITIONS)}


def test_a_backlog_is_read_directly_and_what_comes_later_by_librdkafka(
    mortal: Any, reading: Any, counted: list[int]
) -> None:
    topic = backlog(mortal)
    read = reading(source(mortal, topic)).to_the_end()
    assert values(read, topic) == expected(topic)
    assert sum(counted) > 0.3 * RECORDS
    counted_before = sum(counted)
    producer = Producer({"bootstrap.servers": mortal.bootstrap_servers, "log_level": 0})
    producer.produce(topic, b"-1", partition=1)
    assert producer.flush(30) == 0
    read.until(lambda: len(read.rows) == RECORDS + 1).to_the_end()
    assert values(read, topic)[f"{topic}-1"][-1] == -1
    assert sum(counted) == counted_before


def test_a_bounded_backlog_is_finished_behind_its_last_marker(
    mortal: Any, reading: Any, counted: list[int]
) -> None:
    topic = backlog(mortal)
    read = reading(source(mortal, topic, until="latest"))
    read.until(lambda: read.finished == read.splits)
    assert values(read, topic) == expected(topic)
    assert all(offset > 2 * EACH for offset in read.positions().values())


@pytest.mark.slow
@pytest.mark.usefixtures("small_answers")
@pytest.mark.parametrize("fault", ["kill", "pause"])
def test_a_broker_that_goes_away_is_waited_for(
    mortal: Any, reading: Any, counted: list[int], fault: str
) -> None:
    topic = backlog(mortal)
    read = reading(source(mortal, topic))
    read.until(lambda: sum(counted) > RECORDS / 10)
    assert len(read.rows) < RECORDS
    getattr(mortal, fault)()
    try:
        read.until(lambda: bool(read.waits))
    finally:
        mortal.start() if fault == "kill" else mortal.resume()
    assert "is away since" in read.waits[0]
    read.to_the_end()
    assert values(read, topic) == expected(topic)


@pytest.mark.usefixtures("small_answers")
@pytest.mark.parametrize("is_made_anew", [False, True])
def test_a_topic_deleted_while_it_is_read_stops_it(
    mortal: Any, reading: Any, counted: list[int], is_made_anew: bool
) -> None:
    topic = backlog(mortal)
    read = reading(source(mortal, topic))
    read.until(lambda: sum(counted) > RECORDS / 10)
    admin = AdminClient({"bootstrap.servers": mortal.bootstrap_servers, "log_level": 0})
    admin.delete_topics([topic])[topic].result(30)
    deadline = time.monotonic() + 120
    while topic in admin.list_topics(timeout=240).topics:
        assert time.monotonic() < deadline
    if is_made_anew:
        mortal.create_topic(topic, PARTITIONS)

    def read_on() -> None:
        while True:
            with suppress(Retryable):
                read.until(lambda: False)

    with pytest.raises(DataLossError, match=r"has been deleted while|made anew|log ends at 0"):
        read_on()
    found = values(read, topic)
    assert found == {split: all_[: len(found[split])] for split, all_ in expected(topic).items()}


def test_a_fault_in_the_middle_of_an_answer_loses_nothing_of_it(mortal: Any, reading: Any, way: Any) -> None:
    sections = 0

    class Failing(LeaderFetch):
        def _open(self, lane: Any, batch: Any) -> Any:
            nonlocal sections
            sections += 1
            if sections == 5:
                raise ProtocolError("the checksum is wrong")
            return super()._open(lane, batch)

    way.direct = replace(way.direct, leader=Failing)
    topic = backlog(mortal)
    read = reading(source(mortal, topic)).to_the_end()
    assert sections >= 5
    assert values(read, topic) == expected(topic)


@pytest.mark.parametrize("wrong", ["byte", "leader", "correlation", "records", "closed"])
def test_an_answer_that_is_no_good_is_asked_for_again_by_librdkafka(
    mortal: Any,
    reading: Any,
    counted: list[int],
    way: Any,
    caplog: pytest.LogCaptureFixture,
    wrong: str,
) -> None:
    caplog.set_level(logging.INFO, "onceflow")
    answers = 0

    class Spoiling(BrokerConnection):
        def receive(self) -> Any:
            nonlocal answers
            frame = super().receive()
            answers += frame is not None
            if frame is not None and answers == 2:
                if wrong == "closed":
                    raise ConnectionResetError("the broker closed the connection")
                spoil(frame, wrong)
            return frame

    way.direct = replace(way.direct, connection=Spoiling, answer_bytes_max=40_000)
    topic = backlog(mortal)
    read = reading(source(mortal, topic)).to_the_end()
    assert answers >= 2
    assert "librdkafka goes on reading" in caplog.text
    assert values(read, topic) == expected(topic)


def spoil(frame: Any, wrong: str) -> None:
    if wrong == "correlation":
        frame[3] ^= 1
    first = next(p for p in fetch_answer(frame.data).partitions if _has_whole_batch(frame, p))
    if wrong == "leader":  # the error code follows on the partition's number
        frame[first.start - _before_records(first) + 5] = 6
    if wrong == "byte":
        frame[first.start + _HEADER_BYTES + 2] ^= 1
    if wrong == "records":
        struct.pack_into(">b", frame, first.start + 16, 1)  # an old version of batches


def _has_whole_batch(frame: Any, partition: Any) -> bool:
    """The last batch of an answer may be cut off: nobody looks at that."""
    size = partition.end - partition.start
    return size > _HEADER_BYTES and 12 + struct.unpack_from(">i", frame, partition.start + 8)[0] <= size


def _before_records(partition: Any) -> int:
    """Bytes from a partition's number to its records: number, error, three offsets, aborted ones, replica,
    length."""
    size = partition.end - partition.start + 1
    length_bytes = 1 if size < 1 << 7 else 2 if size < 1 << 14 else 3
    return 4 + 2 + 24 + 1 + 17 * len(partition.aborted) + 4 + length_bytes
