"""`onceflow-kafka` at both ends: what the source gives goes into the sink as it is, and columns of every type
come back as they were."""

from __future__ import annotations

import json
import uuid
from collections.abc import Callable
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, Message, Producer, TopicPartition

from onceflow.connectors.formats.avro.schema.derived import avro_of_arrow
from onceflow.connectors.kafka.embedded import EmbeddedKafka
from onceflow.structured_streaming.arrow_types import arrow_schema_of

pytestmark = [pytest.mark.kafka, pytest.mark.spark, pytest.mark.timeout(600)]

MakeTopic = Callable[..., str]


def source(reader: Any, kafka: EmbeddedKafka, topic: str, **options: str) -> Any:
    given = {"kafka.bootstrap.servers": kafka.bootstrap_servers, "subscribe": topic, **options}
    return reader.format("onceflow-kafka").options(startingOffsets="earliest", **given)


def visible(kafka: EmbeddedKafka, topic: str, count: int) -> list[Message]:
    """The first `count` records of a topic with one partition that a read_committed reader sees."""
    settings = {"bootstrap.servers": kafka.bootstrap_servers, "log_level": 0, "group.id": uuid.uuid4().hex}
    consumer = Consumer({**settings, "isolation.level": "read_committed"})
    consumer.assign([TopicPartition(topic, 0, 0)])
    found: list[Message] = []
    while len(found) < count:
        found += consumer.consume(count - len(found), 30)
        assert all(message.error() is None for message in found)
    consumer.close()
    return found


def test_all_columns_of_the_source_are_taken_by_the_sink(
    spark: Any, broker: EmbeddedKafka, new_topic: MakeTopic, tmp_path: Path
) -> None:
    """The sink takes those, too, that it leaves out, as Spark's own does: offset, timestamp,
    timestampType."""
    events, copy = new_topic("events"), new_topic("copy")
    producer = Producer({"bootstrap.servers": broker.bootstrap_servers, "log_level": 0})
    producer.produce(events, b"\xff\x00", key="k\u00fc", headers=[("h", b"x"), ("n", None)])
    producer.produce(events, None, key=b"gone")
    producer.produce(events, b"no key")
    assert producer.flush(30) == 0
    rows = source(spark.readStream, broker, events, includeHeaders="true").load()
    writing = rows.drop("topic").writeStream.format("onceflow-kafka").option("topic", copy)
    given = {"kafka.bootstrap.servers": broker.bootstrap_servers, "uid": copy}
    query = writing.options(checkpointLocation=str(tmp_path / "checkpoint"), **given)
    assert query.trigger(availableNow=True).start().awaitTermination(200), "the query does not end"
    assert [(m.key(), m.value(), m.headers()) for m in visible(broker, copy, 3)] == [
        ("k\u00fc".encode(), b"\xff\x00", [("h", b"x"), ("n", None)]),
        (b"gone", None, None),
        (None, b"no key", None),
    ]


COLUMNS = {
    "name": "STRING",
    "at": "TIMESTAMP",
    "local": "TIMESTAMP_NTZ",
    "day": "DATE",
    "price": "DECIMAL(20,3)",
    "ratio": "DOUBLE",
    "raw": "BINARY",
    "nested": "STRUCT<at: TIMESTAMP, prices: ARRAY<DECIMAL(5,2)>>",
    "counts": "MAP<STRING, BIGINT>",
    "nothing": "STRING",
}
ROW = {
    "name": "k\u00fcche",
    "at": datetime(2026, 1, 2, 3, 4, 5, 678_901, UTC),
    "local": datetime(2026, 1, 2, 3, 4, 5, 6),
    "day": date(2026, 1, 2),
    "price": Decimal("12345678901234567.890"),
    "ratio": 0.1,
    "raw": b"\x00\xff",
    "nested": {"at": datetime(1969, 12, 31, tzinfo=UTC), "prices": [Decimal("-1.50"), None]},
    "counts": {"a": 1 << 62},
    "nothing": None,
}


@pytest.mark.parametrize("form", ["json", "avro"])
@pytest.mark.parametrize("zone", ["UTC", "Asia/Tokyo"])
def test_columns_of_every_type_come_back_as_they_were(
    spark: Any, broker: EmbeddedKafka, new_topic: MakeTopic, form: str, zone: str
) -> None:
    topic = new_topic(form)
    schema = ", ".join(f"{name} {type_}" for name, type_ in COLUMNS.items())
    before = spark.conf.get("spark.sql.session.timeZone")
    spark.conf.set("spark.sql.session.timeZone", zone)
    try:
        written = spark.createDataFrame([tuple(ROW.values())], schema)
        options = {"bootstrap_servers": broker.bootstrap_servers, "topic": topic, "format": form}
        written.write.format("onceflow-kafka").options(key="name", **options).mode("append").save()
        (message,) = visible(broker, topic, 1)
        assert message.key() == "k\u00fcche".encode()
        more = (
            {}
            if form == "json"
            else {"avro_schema": json.dumps(avro_of_arrow(arrow_schema_of(written.schema), "Row"))}
        )
        read = source(spark.read, broker, topic, format=form, **more).schema(schema).load()
        assert read.collect() == written.collect()
    finally:
        spark.conf.set("spark.sql.session.timeZone", before)
