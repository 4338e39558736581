"""What a task of the Spark source reads of a real broker, without Spark around it."""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable, Iterator
from typing import Any

import pyarrow as pa
import pytest
from confluent_kafka import KafkaError, KafkaException, Producer, TopicCollection, TopicPartition
from confluent_kafka.admin import AdminClient

from onceflow.connectors.kafka.embedded import EmbeddedKafka
from onceflow.runtime.errors import BadRecordError, DataLossError
from onceflow.structured_streaming.read_plan import ReadPlan
from onceflow.structured_streaming.source_columns import make_columns, raw_schema
from onceflow.structured_streaming.source_offsets import OffsetRange
from onceflow.structured_streaming.source_options import source_options
from onceflow.structured_streaming.source_tasks import KeptReaders, read_ranges

pytestmark = pytest.mark.kafka

MakeTopic = Callable[..., str]
PURCHASE = pa.schema([("user", pa.string()), ("amount", pa.int64())])


class Reader:
    """Reads ranges of one topic as tasks of one query do."""

    def __init__(self, kafka: EmbeddedKafka, topic: str, schema: pa.Schema, options: dict[str, str]) -> None:
        given = {"bootstrap_servers": kafka.bootstrap_servers, "subscribe": topic, **options}
        checked = source_options(given, "readStream")
        self.plan = ReadPlan(uuid.uuid4().hex, checked, make_columns(schema, checked.given))
        self.admin = AdminClient({"bootstrap.servers": kafka.bootstrap_servers, "log_level": 0})
        self.kept = KeptReaders()
        self.topic = topic

    @property
    def topic_id(self) -> str:
        found = self.admin.describe_topics(TopicCollection([self.topic]))[self.topic].result(20)
        return str(found.topic_id)

    def read(self, start: int, stop: int, topic_id: str | None = None) -> list[dict[str, Any]]:
        return self.read_together((start, stop), topic_id=topic_id)

    def read_together(self, *spans: tuple[int, int], topic_id: str | None = None) -> list[dict[str, Any]]:
        """A task that reads a span of each partition, from 0 on."""
        asked = topic_id or self.topic_id
        wanted = [OffsetRange(self.topic, asked, number, *span) for number, span in enumerate(spans)]
        return [row for batch in read_ranges(self.plan, wanted, self.kept) for row in batch.to_pylist()]


@pytest.fixture
def reader(broker: EmbeddedKafka, new_topic: MakeTopic) -> Iterator[Callable[..., Reader]]:
    """`reader(schema, topic=..., option=...)`: by default of the raw columns and a new topic."""
    readers: list[Reader] = []

    def make(schema: pa.Schema | None = None, topic: str | None = None, **options: str) -> Reader:
        wanted = schema or raw_schema(options.get("includeHeaders") == "true")
        readers.append(Reader(broker, topic or new_topic("spark"), wanted, options))
        return readers[-1]

    yield make
    for each in readers:
        each.kept.close()


def produce(kafka: EmbeddedKafka, topic: str, *values: bytes | None, partition: int = 0, **more: Any) -> None:
    producer = Producer({"bootstrap.servers": kafka.bootstrap_servers, "log_level": 0})
    for value in values:
        producer.produce(topic, value, partition=partition, **more)
    assert producer.flush(30) == 0


def transact(kafka: EmbeddedKafka, topic: str, values: list[bytes], commit: bool) -> None:
    producer = Producer(
        {"bootstrap.servers": kafka.bootstrap_servers, "log_level": 0, "transactional.id": uuid.uuid4().hex}
    )
    producer.init_transactions(30)
    producer.begin_transaction()
    for value in values:
        producer.produce(topic, value, partition=0)
    producer.flush(30)
    producer.commit_transaction(30) if commit else producer.abort_transaction(30)


def wait_until_made(kafka: EmbeddedKafka, topic: str) -> None:
    """Once the topic of this name that was deleted is gone."""
    deadline = time.monotonic() + 120
    while time.monotonic() < deadline:
        try:
            kafka.create_topic(topic, 1)
            return
        except KafkaException as error:
            if error.args[0].code() != KafkaError.TOPIC_ALREADY_EXISTS:
                raise
    pytest.fail("the topic does not go away")


def test_raw_columns_are_those_of_sparks_own_source(
    broker: EmbeddedKafka, reader: Callable[..., Reader]
) -> None:
    it = reader(includeHeaders="true")
    produce(broker, it.topic, b"v1", key=b"k1", timestamp=1_700_000_000_123, headers=[("h", b"x")])
    produce(broker, it.topic, None)
    first, second = it.read(0, 2)
    assert first["timestamp"].timestamp() == 1_700_000_000.123
    del first["timestamp"], second["timestamp"]
    assert first == {
        "key": b"k1", "value": b"v1", "topic": it.topic, "partition": 0, "offset": 0,
        "timestampType": 0,
        "headers": [{"key": "h", "value": b"x"}],
    }  # fmt: skip
    assert second["key"] is second["value"] is second["headers"] is None


def test_a_schema_chooses_among_the_raw_columns(broker: EmbeddedKafka, reader: Callable[..., Reader]) -> None:
    it = reader(pa.schema([("offset", pa.int64()), ("value", pa.string())]))
    produce(broker, it.topic, b"a", b"b")
    assert it.read(0, 2) == [{"offset": 0, "value": "a"}, {"offset": 1, "value": "b"}]


def test_a_range_ends_exactly_where_it_is_told_and_the_next_one_goes_on_with_the_same_consumer(
    broker: EmbeddedKafka, reader: Callable[..., Reader]
) -> None:
    it = reader(pa.schema([("offset", pa.int64())]))
    produce(broker, it.topic, *[b"%d" % i for i in range(100)])
    offsets = [row["offset"] for start in range(0, 100, 7) for row in it.read(start, min(start + 7, 100))]
    assert offsets == list(range(100))
    assert [row["offset"] for row in it.read(3, 5)] == [3, 4]  # back, as when a batch is read again
    assert it.kept.opened == 1


def test_aborted_records_are_not_seen_and_a_range_that_ends_with_markers_ends(
    broker: EmbeddedKafka, reader: Callable[..., Reader]
) -> None:
    it = reader(pa.schema([("offset", pa.int64()), ("value", pa.binary())]))
    transact(broker, it.topic, [b"yes"] * 3, commit=True)  # offsets 0 to 2, marker 3
    transact(broker, it.topic, [b"no"] * 4, commit=False)  # 4 to 7, marker 8
    assert [row["offset"] for row in it.read(0, 9)] == [0, 1, 2]
    assert it.read(3, 9) == []
    assert it.read(8, 9) == []
    dirty = reader(pa.schema([("offset", pa.int64())]), topic=it.topic, isolation="read_uncommitted")
    assert [row["offset"] for row in dirty.read(0, 9)] == [0, 1, 2, 4, 5, 6, 7]


def test_a_record_that_is_not_json_fails_with_its_place(
    broker: EmbeddedKafka, reader: Callable[..., Reader]
) -> None:
    it = reader(PURCHASE, format="json")
    produce(broker, it.topic, b'{"user":"a","amount":1}', b'{"user":', b'{"user":"b","amount":2}')
    with pytest.raises(BadRecordError, match=rf"record in {it.topic}-0 at offset 1 can't be decoded"):
        it.read(0, 3)
    assert it.read(2, 3) == [{"user": "b", "amount": 2}]


def test_permissive_keeps_what_is_no_json_in_its_place_in_a_column_of_its_own(
    broker: EmbeddedKafka, reader: Callable[..., Reader]
) -> None:
    schema = PURCHASE.append(pa.field("bad", pa.string())).append(pa.field("at", pa.int64()))
    it = reader(schema, format="json", mode="permissive", columnNameOfCorruptRecord="bad", offset_column="at")
    produce(broker, it.topic, b'{"user":"a","amount":1}', b"\xff{", b'{"user":"b"}', b"[]")
    assert it.read(0, 4) == [
        {"user": "a", "amount": 1, "bad": None, "at": 0},
        {"user": None, "amount": None, "bad": "\ufffd{", "at": 1},
        {"user": "b", "amount": None, "bad": None, "at": 2},
        {"user": None, "amount": None, "bad": "[]", "at": 3},
    ]


def test_records_deleted_before_they_were_read_stop_the_query_unless_it_may_go_on(
    broker: EmbeddedKafka, reader: Callable[..., Reader]
) -> None:
    it = reader(pa.schema([("offset", pa.int64())]))
    produce(broker, it.topic, *[b"x"] * 10)
    place = TopicPartition(it.topic, 0, 6)
    it.admin.delete_records([place])[place].result(30)
    with pytest.raises(DataLossError, match=r"only 6 to 10.*set failOnDataLoss to false"):
        it.read(2, 9)
    lenient = reader(pa.schema([("offset", pa.int64())]), topic=it.topic, failOnDataLoss="false")
    assert [row["offset"] for row in lenient.read(2, 9)] == [6, 7, 8]
    assert lenient.read(2, 5) == []


def test_a_topic_made_anew_under_a_running_task_is_noticed(
    broker: EmbeddedKafka, reader: Callable[..., Reader]
) -> None:
    it = reader(pa.schema([("offset", pa.int64())]))
    produce(broker, it.topic, b"x")
    old = it.topic_id
    it.admin.delete_topics([it.topic])[it.topic].result(30)
    wait_until_made(broker, it.topic)
    with pytest.raises(DataLossError, match="deleted"):
        it.read(0, 1, topic_id=old)


def test_the_brokers_own_time_is_told_from_the_producers(
    broker: EmbeddedKafka, new_topic: MakeTopic, reader: Callable[..., Reader]
) -> None:
    topic = new_topic("appended", config={"message.timestamp.type": "LogAppendTime"})
    it = reader(pa.schema([("timestampType", pa.int32())]), topic=topic)
    produce(broker, topic, b"x")
    assert it.read(0, 1) == [{"timestampType": 1}]


PLACED = pa.schema([("partition", pa.int32()), ("offset", pa.int64()), ("value", pa.string())])


def test_one_task_reads_several_partitions_and_says_of_each_row_where_it_is_from(
    broker: EmbeddedKafka, new_topic: MakeTopic, reader: Callable[..., Reader]
) -> None:
    """Twice by the same consumer, in which the partitions have other numbers the second time."""
    it = reader(PLACED, topic=new_topic("several", 3))
    for partition in range(3):
        produce(broker, it.topic, *(b"%d-%d" % (partition, n) for n in range(9)), partition=partition)
    for spans in (((0, 4), (2, 3), (5, 5)), ((4, 9), (3, 9), (5, 9))):
        rows = it.read_together(*spans)
        by_partition = {p: [row for row in rows if row["partition"] == p] for p in range(3)}
        for partition, (start, stop) in enumerate(spans):
            assert [row["offset"] for row in by_partition[partition]] == list(range(start, stop))
        assert all(row["value"] == f"{row['partition']}-{row['offset']}" for row in rows)
    assert it.kept.opened == 1


def test_what_is_gone_of_one_partition_leaves_the_others_of_the_task_whole(
    broker: EmbeddedKafka, new_topic: MakeTopic, reader: Callable[..., Reader]
) -> None:
    it = reader(PLACED, topic=new_topic("gap", 2), failOnDataLoss="false")
    for partition in range(2):
        produce(broker, it.topic, *[b"x"] * 10, partition=partition)
    place = TopicPartition(it.topic, 1, 6)
    it.admin.delete_records([place])[place].result(30)
    rows = it.read_together((0, 10), (2, 9))
    assert sorted((row["partition"], row["offset"]) for row in rows) == [
        *((0, offset) for offset in range(10)), (1, 6), (1, 7), (1, 8),
    ]  # fmt: skip


def test_bad_records_of_several_partitions_stay_with_their_own(
    broker: EmbeddedKafka, new_topic: MakeTopic, reader: Callable[..., Reader]
) -> None:
    schema = pa.schema([("user", pa.string()), ("p", pa.int32()), ("_corrupt_record", pa.string())])
    more = {"format": "json", "mode": "permissive", "partition_column": "p"}
    it = reader(schema, topic=new_topic("bad", 3), **more)
    for partition, values in enumerate([[b'{"user": "a"}', b"no"], [b'{"user": "b"}'], [b"bad"]]):
        produce(broker, it.topic, *values, partition=partition)
    rows = it.read_together((0, 2), (0, 1), (0, 1))
    assert sorted((row["p"], row["user"], row["_corrupt_record"]) for row in rows if row["user"]) == [
        (0, "a", None), (1, "b", None),
    ]  # fmt: skip
    assert sorted((row["p"], row["_corrupt_record"]) for row in rows if not row["user"]) == [
        (0, "no"), (2, "bad"),
    ]  # fmt: skip
