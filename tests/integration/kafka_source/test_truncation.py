"""Logs that lost their end: a broker is stopped, the end of a partition's file is cut off, and the broker,
which begins a new leader's epoch, is written to again. Whoever read what is gone says so, and reads no more.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import pytest
from confluent_kafka import Producer, TopicPartition
from confluent_kafka.admin import AdminClient

from onceflow.connectors.formats import Raw
from onceflow.connectors.kafka import KafkaSource
from onceflow.connectors.kafka.fetch.checked_assignment import NO_EPOCH, CheckedAssignment
from onceflow.connectors.kafka.fetch.lane_opener import LaneOpener, Start
from onceflow.connectors.kafka.metadata import ClusterMetadata
from onceflow.connectors.kafka.source.positions import ReaderPositions
from onceflow.connectors.kafka.split import KafkaSplit
from onceflow.runtime.clock import SystemClock
from onceflow.runtime.contracts import SplitState
from onceflow.runtime.errors import DataLossError
from onceflow.runtime.testing.mutation import Mutant, mutated
from onceflow.structured_streaming.read_plan import ReadPlan
from onceflow.structured_streaming.source_columns import make_columns, raw_schema
from onceflow.structured_streaming.source_offsets import Offsets
from onceflow.structured_streaming.source_options import source_options
from onceflow.structured_streaming.source_planning import Planner
from onceflow.structured_streaming.source_stream import StreamPlanner
from onceflow.structured_streaming.source_tasks import KeptReaders, read_ranges

pytestmark = [pytest.mark.kafka, pytest.mark.slow]

RECORDS, CUT_AT, MORE = 40, 25, 30
"""How many are written one by one, where the log is cut, and by how many it grows again."""
SENTENCE = (
    r"{topic}-0 has to go on at offset {next}, but the broker's log (was cut at|ends at) {cut}: the records "
    r"at offsets {cut} to {last} that were read are gone from it .*: start the job anew, without the "
    r"checkpoint"
)


@pytest.fixture(scope="module")
def mortal(module_broker: Callable[..., Any]) -> Any:
    return module_broker()


def source(broker: Any, topic: str, **options: Any) -> KafkaSource:
    return KafkaSource(bootstrap_servers=broker.bootstrap_servers, topics=topic, value=Raw(), **options)


def filled(broker: Any) -> str:
    topic: str = broker.create_topic(f"cut-{time.monotonic_ns()}", 1)
    write(broker, topic, range(RECORDS))
    return topic


def write(broker: Any, topic: str, values: range) -> None:
    """Each in a batch of its own."""
    producer = Producer({"bootstrap.servers": broker.bootstrap_servers, "log_level": 0})
    for value in values:
        producer.produce(topic, b"%06d" % value, partition=0)
        assert producer.flush(30) == 0


def cut(broker: Any, *topics: str) -> None:
    """The broker, stopped, loses the end of these logs: what is left are the first records."""
    broker.stop()
    for topic in topics:
        segment = broker.data_dir / "logs" / f"{topic}-0" / f"{0:020}.log"
        size = segment.stat().st_size
        assert size % RECORDS == 0
        with segment.open("r+b") as file:
            file.truncate(size // RECORDS * CUT_AT)
    broker.start()


def sentence(topic: str, next_offset: int = RECORDS, cut_at: int = CUT_AT) -> str:
    return SENTENCE.format(topic=topic, next=next_offset, cut=cut_at, last=next_offset - 1)


def read_to_loss(read: Any) -> None:
    """A loss is never an error that may be tried again."""
    read.until(lambda: False)


def values(read: Any) -> list[int]:
    return [int(row["value"]) for _, _, row in read.rows]


@pytest.mark.usefixtures("all_ways")
def test_a_log_that_is_cut_while_it_is_read_is_lost_records(mortal: Any, reading: Any) -> None:
    """One that grows again, further than it was read, and one that does not."""
    reads = {filled(mortal): grows for grows in (0, MORE)}
    open_reads = {topic: reading(source(mortal, topic)).to_the_end() for topic in reads}
    cut(mortal, *reads)
    for topic, grows in reads.items():
        write(mortal, topic, range(100, 100 + grows))
        with pytest.raises(DataLossError, match=sentence(topic)):
            read_to_loss(open_reads[topic])
        assert values(open_reads[topic]) == list(range(RECORDS))


def restored(broker: Any, topic: str, states: Sequence[SplitState], reading: Any) -> Any:
    """Restore these splits as a job does that is started again."""
    enumerator = source(broker, topic).open_enumerator("job", SystemClock())
    try:
        enumerator.check_restored(states)
    finally:
        enumerator.close()
    return reading(source(broker, topic), states)


@pytest.mark.usefixtures("all_ways")
def test_a_log_that_was_cut_while_nobody_read_it_is_lost_records(mortal: Any, reading: Any) -> None:
    """The same is said; a partition with a stop offset far away is read directly at once."""
    cases = {filled(mortal): (grows, stop) for grows in (0, MORE) for stop in (None, 1 << 40)}
    states = {topic: reading(source(mortal, topic)).to_the_end().reader.snapshot() for topic in cases}
    cut(mortal, *cases)
    for topic, (grows, stop) in cases.items():
        write(mortal, topic, range(100, 100 + grows))
        with_stop = [replace(each, position={**each.position, "stop_offset": stop}) for each in states[topic]]
        with pytest.raises(DataLossError, match=sentence(topic)):
            read_to_loss(restored(mortal, topic, with_stop, reading))


def _split_without_epoch(self: ReaderPositions, index: int) -> KafkaSplit:
    return replace(_split(self, index), leader_epoch=None, epoch_offset=None)


def _assigned_unchecked(self: CheckedAssignment, positions: Sequence[TopicPartition]) -> None:
    self._consumer.incremental_assign(list(positions))


def _lane_without_epoch(self: LaneOpener, number: int, start: Start) -> Any:
    return _lane(self, number, start._replace(epoch=NO_EPOCH))


_split, _lane = ReaderPositions.split, LaneOpener._lane

MUTANTS = [
    ("librdkafka", Mutant("a split keeps no epoch", [(ReaderPositions, "split", _split_without_epoch)])),
    (
        "librdkafka",
        Mutant("an assignment is unchecked", [(CheckedAssignment, "assign", _assigned_unchecked)]),
    ),
    ("direct", Mutant("a direct fetch sends no epoch", [(LaneOpener, "_lane", _lane_without_epoch)])),
]


@pytest.mark.parametrize(("route", "mutant"), MUTANTS, ids=[mutant.title for _, mutant in MUTANTS])
def test_a_mutant_reads_on_over_lost_records(
    mortal: Any, reading: Any, request: pytest.FixtureRequest, route: str, mutant: Mutant
) -> None:
    """Which the test before this one would notice: here the same happens, without an error."""
    if route == "direct":
        request.getfixturevalue("directly")
    topic = filled(mortal)
    with mutated(mutant):
        states = reading(source(mortal, topic)).to_the_end().reader.snapshot()
        states = [replace(each, position={**each.position, "stop_offset": 1 << 40}) for each in states]
        cut(mortal, topic)
        write(mortal, topic, range(100, 100 + MORE))
        read = restored(mortal, topic, states, reading)
        read.until(lambda: bool(read.rows))
    assert values(read)[0] == 100 + RECORDS - CUT_AT


@pytest.mark.usefixtures("all_ways")
def test_a_log_that_was_cut_behind_what_was_read_is_read_on(mortal: Any, reading: Any) -> None:
    topic = filled(mortal)
    read = reading(source(mortal, topic)).to_the_end()
    (state,) = read.reader.snapshot()
    assert (state.position["leader_epoch"], state.position["epoch_offset"]) == (0, RECORDS)
    states = [replace(state, position={**state.position, "next_offset": CUT_AT, "epoch_offset": CUT_AT})]
    cut(mortal, topic)
    write(mortal, topic, range(100, 100 + MORE))
    read = restored(mortal, topic, states, reading).to_the_end()
    assert values(read) == list(range(100, 100 + MORE))
    (state,) = read.reader.snapshot()
    assert state.position["leader_epoch"] > 0


class Query:
    """A query of Structured Streaming, without Spark: what the driver plans and a task reads."""

    def __init__(self, broker: Any, topic: str, **options: str) -> None:
        given = {"bootstrap_servers": broker.bootstrap_servers, "subscribe": topic, **options}
        checked = source_options({**given, "startingOffsets": "earliest"}, "readStream")
        self._cluster = ClusterMetadata(checked.kafka, SystemClock(), 30_000)
        self.stream = StreamPlanner(checked, Planner(checked, self._cluster), SystemClock())
        self.plan = ReadPlan(topic, checked, make_columns(raw_schema(False), checked.given))

    def batch(self, start: Offsets) -> tuple[Offsets, list[int]]:
        """The next one: where it ends, and what is in it."""
        end = Offsets.from_json(self.stream.latest(start, None).json())
        kept = KeptReaders()
        try:
            tasks = [read_ranges(self.plan, each, kept) for each in self.stream.tasks(start, end)]
            return end, [int(row["value"]) for task in tasks for one in task for row in one.to_pylist()]
        finally:
            kept.close()

    def close(self) -> None:
        self._cluster.close()


def test_a_micro_batch_behind_lost_records_is_not_read(mortal: Any) -> None:
    """It fails, or goes on behind what is lost if it may."""
    queries = {}
    for is_fatal in (True, False):
        topic = filled(mortal)
        queries[is_fatal] = (topic, Query(mortal, topic, failOnDataLoss=str(is_fatal).lower()))
    try:
        ends = {}
        for is_fatal, (_, query) in queries.items():
            ends[is_fatal], found = query.batch(query.stream.initial())
            assert found == list(range(RECORDS))
        cut(mortal, *(topic for topic, _ in queries.values()))
        for topic, _ in queries.values():
            write(mortal, topic, range(100, 100 + MORE))
        topic, fatal = queries[True]
        with pytest.raises(DataLossError, match=sentence(topic) + ".* set failOnDataLoss to false"):
            fatal.batch(ends[True])
        _, found = queries[False][1].batch(ends[False])
        assert found == list(range(100 + RECORDS - CUT_AT, 100 + MORE))
    finally:
        for _, query in queries.values():
            query.close()


def test_a_split_that_was_kept_without_an_epoch_is_read_on(mortal: Any, reading: Any) -> None:
    topic = filled(mortal)
    (state,) = reading(source(mortal, topic)).to_the_end().reader.snapshot()
    old = {name: value for name, value in state.position.items() if "epoch" not in name}
    states = [replace(state, position={**old, "next_offset": 7})]
    read = restored(mortal, topic, states, reading).to_the_end()
    assert values(read) == list(range(7, RECORDS))
    write(mortal, topic, range(100, 101))
    read.until(lambda: len(read.rows) == RECORDS - 7 + 1)


@pytest.mark.usefixtures("all_ways")
@pytest.mark.parametrize("stop_offset", [None, 1 << 40])
def test_a_last_record_that_retention_deleted_is_not_missed(
    mortal: Any, reading: Any, stop_offset: int | None
) -> None:
    """Reading begins behind the last record, before the marker: that is gone, and was no record."""
    topic: str = mortal.create_topic(f"retention-{time.monotonic_ns()}", 1)
    producer = Producer(
        {"bootstrap.servers": mortal.bootstrap_servers, "log_level": 0, "transactional.id": topic}
    )
    producer.init_transactions(30)
    producer.begin_transaction()
    producer.produce(topic, b"000000", partition=0)
    producer.commit_transaction(30)
    read = reading(source(mortal, topic))
    read.until(lambda: read.positions()[f"{topic}-0"] == 2)
    (state,) = read.reader.snapshot()
    assert state.position["epoch_offset"] == 1
    admin = AdminClient({"bootstrap.servers": mortal.bootstrap_servers, "log_level": 0})
    (deleted,) = admin.delete_records([TopicPartition(topic, 0, 2)]).values()
    deleted.result(30)
    states = [replace(state, position={**state.position, "stop_offset": stop_offset})]
    read = restored(mortal, topic, states, reading)
    write(mortal, topic, range(100, 102))
    read.until(lambda: len(read.rows) == 2)
    assert values(read) == [100, 101]


class LostMarker:
    """A partition whose last marker is cut off: all records that were read are still there. What comes
    instead of the marker would be skipped."""

    def __init__(self, broker: Any, reading: Any) -> None:
        self.topic: str = broker.create_topic(f"marker-{time.monotonic_ns()}", 1)
        write(broker, self.topic, range(3))
        self._segment = broker.data_dir / "logs" / f"{self.topic}-0" / f"{0:020}.log"
        producer = Producer(
            {"bootstrap.servers": broker.bootstrap_servers, "log_level": 0, "transactional.id": self.topic}
        )
        producer.init_transactions(30)
        producer.begin_transaction()
        producer.produce(self.topic, b"000003", partition=0)
        producer.flush(30)
        self._size = self._segment.stat().st_size
        producer.commit_transaction(30)
        self.read = reading(source(broker, self.topic))
        self.read.until(lambda: self.read.positions()[f"{self.topic}-0"] == 5)

    def cut(self) -> None:
        """While the broker is stopped."""
        with self._segment.open("r+b") as file:
            file.truncate(self._size)
        for snapshot in self._segment.parent.glob("*.snapshot"):
            snapshot.unlink()  # the producer is unknown now, so its transaction is not open


@pytest.mark.usefixtures("all_ways")
def test_records_where_the_lost_marker_of_a_transaction_was_are_lost_records_too(
    mortal: Any, reading: Any
) -> None:
    """For a reader that goes on, and for one that is restored."""
    going_on, stopped = LostMarker(mortal, reading), LostMarker(mortal, reading)
    states = stopped.read.reader.snapshot()
    mortal.stop()
    going_on.cut()
    stopped.cut()
    mortal.start()
    for each in (going_on, stopped):
        write(mortal, each.topic, range(100, 102))
    reads = ((going_on.topic, going_on.read), (stopped.topic, None))
    for topic, read in reads:
        with pytest.raises(DataLossError, match=rf"{topic}-0 has to go on at offset 5, .* cut at 4"):
            read_to_loss(read or restored(mortal, topic, states, reading))
